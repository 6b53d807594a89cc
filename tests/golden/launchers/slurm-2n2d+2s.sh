#!/bin/sh
#SBATCH --job-name=bert_base-fp32-oneflow-b4-r1
#SBATCH --nodes=2
#SBATCH --ntasks=6
#SBATCH --ntasks-per-node=3
#SBATCH --output=slurm.log
#SBATCH --no-requeue
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
batch)
DLPERF_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ,)"
export DLPERF_HOSTS
exec srun --kill-on-bad-exit=1 --cpu-bind=none --nodes=2 --ntasks=2 --ntasks-per-node=1 sh "$PWD"/launch.sh node
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
rm -f slurm.log
job= silent=0
state() { scontrol -o show job "$job" 2>/dev/null | sed -n 's/.*JobState=\([^ ]*\).*/\1/p'; }
tell() { scontrol -o show job "$job" 2>/dev/null |
  sed -n 's/.*JobState=\([^ ]*\) Reason=\([^ ]*\).*/Slurm job '"$job"' is \1 (\2)/p' >&2; }
stop() { trap '' TERM INT; [ -z "$job" ] || { tell; scancel "$job"; }; exit 143; }
trap stop TERM INT
job="$(sbatch --parsable "$PWD"/launch.sh batch)" || exit
job="${job%%;*}"
while :; do
  case "$(state)" in
  COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE) break ;;
  "") silent=$((silent + 1)); [ $silent -lt 60 ] || { echo "Slurm no longer answers about job $job" >&2; stop; } ;;
  *) silent=0 ;;
  esac
  sleep 0.5 & wait $!
done
cat slurm.log >&2
[ "$(state)" != COMPLETED ] || exit 0
tell
exit 1
