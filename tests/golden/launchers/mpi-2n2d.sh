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
  DLPERF_LAUNCHER=mpi \
  DLPERF_HOSTS=10.77.0.1,10.77.0.2 \
  DLPERF_SET='MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_' \
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
exec mpirun $([ "$(id -u)" = 0 ] && echo --allow-run-as-root) -np 4 --bind-to none --host 10.77.0.1:2,10.77.0.2:2 --map-by ppr:2:node --mca plm_rsh_agent /bed/rsh --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 -x A=1 sh "$PWD"/launch.sh rank
