#!/bin/sh
# bert_base-fp32-mxnet-b4, repeat 1 of 3
case "$1" in
inside)
cd "$(dirname "$0")" &&
exec env \
  PYTHONPATH="$PWD"/../../../code \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  OMP_NUM_THREADS=2 \
  MALLOC_MMAP_THRESHOLD_=4294967296 \
  MALLOC_TRIM_THRESHOLD_=8589934592 \
  MALLOC_TOP_PAD_=67108864 \
  python -m dlperf.adapters.worker job.json .
exit
;;
esac
if [ -e "$(dirname "$0")/events.rank0.jsonl" ]; then
command -v dlperf >/dev/null && exec dlperf repeat "$(dirname "$0")"
echo "This run was made. Again, in a new folder: python -m dlperf.repeat '$(dirname "$0")'" >&2
exit 1
fi
cd "$(dirname "$0")" || exit
rm -f rank*.json versions*.json
root="$(cd ../../.. && pwd)"
cpus="$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
[ "$cpus" != "$(cat /sys/devices/system/cpu/online)" ] || cpus=
exec $(setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM) docker run \
  --rm --init --pull never \
  --user "$(id -u):$(id -g)" \
  --env HOME=/tmp --env USER=dlperf \
  --label "dlperf.run=$(pwd -P)" \
  --mount "type=bind,src=$root,dst=$root" --workdir "$PWD" \
  ${cpus:+--cpuset-cpus "$cpus"} \
  --uts host \
  --shm-size 16g \
  dlperf/mxnet:cpu-0123456789ab sh "$PWD"/launch.sh inside
