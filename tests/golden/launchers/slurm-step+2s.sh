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
  DLPERF_LAUNCHER=local \
  DLPERF_SET='MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_' \
  /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.worker job.json .
exit
;;
node)
cd "$(dirname "$0")" &&
NODE_RANK="$SLURM_PROCID" NNODES=2 PYTHONPATH="$PWD"/../../../code \
exec /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.spawn 2+1 sh "$PWD"/launch.sh rank
exit
;;
esac
if [ -e "$(dirname "$0")/events.rank0.jsonl" ]; then
command -v dlperf >/dev/null && exec dlperf repeat "$(dirname "$0")"
echo "This run was made. Again, in a new folder: python -m dlperf.repeat '$(dirname "$0")'" >&2
exit 1
fi
cd "$(dirname "$0")" || exit
rm -f rank*.json server*.json versions*.json
DLPERF_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ,)"
export DLPERF_HOSTS
srun --kill-on-bad-exit=1 --cpu-bind=none --job-name=bert_base-fp32-oneflow-b4-r1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --relative=0 sh "$PWD"/launch.sh node &
step=$!
stop() {
  trap '' TERM INT
  kill -TERM $step 2>/dev/null
  for _ in 1 2 3; do kill -0 $step 2>/dev/null || exit 143; sleep 1; done
  squeue -h -s -j "$SLURM_JOB_ID" -o '%i %j' | sed -n 's/ bert_base-fp32-oneflow-b4-r1$//p' | xargs -r scancel --signal=KILL
  exit 143
}
trap stop TERM INT
wait $step
