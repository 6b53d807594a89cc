#!/bin/sh
# transformer_big-fp32-ngc-pytorch-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/pytorch:20.03-py3 \
  env PYTHONUNBUFFERED=1 NVIDIA_TF32_OVERRIDE=0 python3 /workspace/translation/train.py \
    /data/wmt14_en_de_joined_dict --distributed-world-size 1 --arch transformer_wmt_en_de_big_t2t \
    --share-all-embeddings --optimizer adam --adam-betas '(0.9, 0.997)' --adam-eps 1e-9 --clip-norm 0.0 \
    --lr-scheduler inverse_sqrt --warmup-init-lr 0.0 --warmup-updates 4000 --lr 0.0006 --min-lr 0.0 --dropout 0.1 \
    --weight-decay 0.0 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 2048 --seed 1 \
    --max-update 150 --no-save --fuse-layer-norm --log-interval 1 --save-dir results 2>&1 &
wait $!
