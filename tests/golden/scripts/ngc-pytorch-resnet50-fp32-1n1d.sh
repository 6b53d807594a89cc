#!/bin/sh
# resnet50-fp32-ngc-pytorch-b128, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/pytorch:20.03-py3 \
  env PYTHONUNBUFFERED=1 NVIDIA_TF32_OVERRIDE=0 python /workspace/rn50/multiproc.py --nnodes 1 --node_rank 0 \
    --nproc_per_node 1 --master_addr 127.0.0.1 --master_port=29500 /workspace/rn50/main.py --data-backend dali-cpu \
    --raport-file raport.json -j8 -p 1 --lr 0.128 --optimizer-batch-size -1 --warmup 8 --arch resnet50 -c fanin \
    --label-smoothing 0.1 --lr-schedule cosine --mom 0.125 --wd 3.0517578125e-05 --workspace . -b 128 --epochs 1 \
    --prof 150 --training-only --no-checkpoints /data/image 2>&1 &
wait $!
