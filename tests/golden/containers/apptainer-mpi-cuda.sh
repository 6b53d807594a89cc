#!/bin/sh
# bert_base-fp32-mxnet-b4, repeat 1 of 3
case "$1" in
rank)
cd "$(dirname "$0")" || exit
root="$(cd ../../.. && pwd)"
exec $(setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM) apptainer exec \
  --home /tmp \
  --mount "type=bind,src=$root,dst=$root" --pwd "$PWD" \
  --mount type=bind,src=/data,dst=/data,ro \
  --nv \
  --env CUDA_VISIBLE_DEVICES=1 \
  '/images/a b.sif' sh "$PWD"/launch.sh inside
exit
;;
inside)
cd "$(dirname "$0")" &&
exec env \
  PYTHONPATH="$PWD"/../../../code \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  OMP_NUM_THREADS=2 \
  DLPERF_LAUNCHER=mpi \
  DLPERF_HOSTS=10.77.0.1,10.77.0.2 \
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
exec mpirun $([ "$(id -u)" = 0 ] && echo --allow-run-as-root) -np 4 --bind-to none --host 10.77.0.1:2,10.77.0.2:2 --map-by ppr:2:node sh "$PWD"/launch.sh rank
