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
  LD_LIBRARY_PATH=/cache/envs/oneflow-cpu-0123/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  DLPERF_LAUNCHER=slurm \
  DLPERF_SET='' \
  /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.worker job.json .
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
DLPERF_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ,)"
export DLPERF_HOSTS
srun --kill-on-bad-exit=1 --cpu-bind=none --job-name=bert_base-fp32-oneflow-b4-r1 --nodes=2 --ntasks=4 --ntasks-per-node=2 --relative=0 --gpus-per-node=2 sh "$PWD"/launch.sh rank &
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
