#!/bin/sh
# gpt2-fp32-nanogpt-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 NVIDIA_TF32_OVERRIDE=0 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 /environment/bin/python -m \
    torch.distributed.run --nproc_per_node=8 --nnodes=2 --node_rank="$2" --master_addr=a --master_port=29500 \
    ../../../../source/nanogpt/./train.py --dtype=float32 --dataset=DIR --block_size=1024 --batch_size=32 \
    --gradient_accumulation_steps=16 --bias=True --max_iters=121 --eval_iters=1 --out_dir=. 2>&1
exit
;;
esac
cd "$(dirname "$0")" || exit
trap 'kill $pids 2>/dev/null; exit 143' TERM INT
ssh -tt a "sh '$PWD/launch.sh' node 0 a" </dev/null &
pids="$pids $!"
ssh -tt b "sh '$PWD/launch.sh' node 1 b" </dev/null &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
