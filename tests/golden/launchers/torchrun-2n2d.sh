#!/bin/sh
# bert_base-fp32-oneflow-b4, repeat 1 of 3
case "$1" in
rank)
cd "$(dirname "$0")" &&
exec env \
  PYTHONPATH="$PWD"/../../../code \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  OMP_NUM_THREADS=2 \
  MALLOC_MMAP_THRESHOLD_=4294967296 \
  MALLOC_TRIM_THRESHOLD_=8589934592 \
  MALLOC_TOP_PAD_=67108864 \
  LD_LIBRARY_PATH=/cache/envs/oneflow-cpu-0123/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  DLPERF_LAUNCHER=torchrun \
  DLPERF_HOSTS=10.77.0.1,10.77.0.2 \
  DLPERF_SET='MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_' \
  /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.worker job.json .
exit
;;
node)
cd "$(dirname "$0")" &&
PYTHONPATH="$PWD"/../../../code exec /cache/envs/oneflow-cpu-0123/bin/python -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank "$2" --master-addr 10.77.0.1 --master-port 29400 --no-python sh "$PWD"/launch.sh rank
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
/bed/rsh -tt 10.77.0.1 "sh '$there/launch.sh' node 0" </dev/null &
pids="$pids $!"
/bed/rsh -tt 10.77.0.2 "sh '$there/launch.sh' node 1" </dev/null &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
