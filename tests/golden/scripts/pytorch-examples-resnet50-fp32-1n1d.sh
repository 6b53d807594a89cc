#!/bin/sh
# resnet50-fp32-pytorch-examples-b128, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0 /environment/bin/python \
    ../../../../source/pytorch-examples/imagenet/main.py --arch resnet50 --epochs 1 --batch-size 128 --lr 0.128 \
    --workers 8 --momentum 0.125 --print-freq 1 --multiprocessing-distributed --dist-backend nccl --dist-url \
    tcp://127.0.0.1:11222 --world-size 1 --rank 0 DIR 2>&1
