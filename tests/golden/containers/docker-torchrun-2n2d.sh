#!/bin/sh
# bert_base-fp32-mxnet-b4, repeat 1 of 3
case "$1" in
rank)
cd "$(dirname "$0")" &&
exec env \
  PYTHONPATH="$PWD"/../../../code \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  OMP_NUM_THREADS=2 \
  DLPERF_LAUNCHER=torchrun \
  DLPERF_HOSTS=10.77.0.1,10.77.0.2 \
  python -m dlperf.adapters.worker job.json .
exit
;;
node)
cd "$(dirname "$0")" || exit
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
  --network host \
  --ipc host \
  --ulimit memlock=-1 \
  --ulimit stack=67108864 \
  --gpus all \
  --device /dev/infiniband --cap-add IPC_LOCK \
  nvcr.io/nvidia/pytorch:25.12-py3 sh "$PWD"/launch.sh inside "$2"
exit
;;
inside)
cd "$(dirname "$0")" &&
PYTHONPATH="$PWD"/../../../code exec python -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank "$2" --master-addr 10.77.0.1 --master-port 29400 --no-python sh "$PWD"/launch.sh rank
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
trap 'kill $pids 2>/dev/null; exit 143' TERM INT
there="$(printf '%s' "$PWD" | sed "s/'/'\\\\''/g")"
ssh -tt 10.77.0.1 "sh '$there/launch.sh' node 0" </dev/null &
pids="$pids $!"
ssh -tt 10.77.0.2 "sh '$there/launch.sh' node 1" </dev/null &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
