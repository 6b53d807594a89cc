#!/bin/sh
# gpt2-fp32-nanogpt-b8, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 NVIDIA_TF32_OVERRIDE=0 CUDA_VISIBLE_DEVICES=0 /environment/bin/python \
    ../../../../source/nanogpt/./train.py --dtype=float32 --dataset=DIR --block_size=1024 --batch_size=8 \
    --gradient_accumulation_steps=1 --bias=True --max_iters=121 --eval_iters=1 --out_dir=. 2>&1
