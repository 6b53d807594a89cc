#!/bin/sh
# resnet50-amp_fp16-ngc-mxnet-2n8d-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/mxnet:20.03-py3 \
  env PYTHONUNBUFFERED=1 MXNET_UPDATE_ON_KVSTORE=0 MXNET_EXEC_ENABLE_ADDTO=1 MXNET_USE_TENSORRT=0 \
    MXNET_GPU_WORKER_NTHREADS=2 MXNET_GPU_COPY_NTHREADS=1 MXNET_OPTIMIZER_AGGREGATION_SIZE=54 \
    HOROVOD_CYCLE_TIME=0.1 HOROVOD_FUSION_THRESHOLD=67108864 HOROVOD_NUM_NCCL_STREAMS=2 MXNET_HOROVOD_NUM_GROUPS=16 \
    MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD=999 MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD=25 horovodrun -np 16 -H \
    a:8,b:8 -p 10001 --start-timeout 600 python3 /workspace/rn50/train.py --dtype float16 --amp --fuse-bn-relu 1 \
    --fuse-bn-add-relu 1 --input-layout NCHW --conv-layout NHWC --batchnorm-layout NHWC --pooling-layout NHWC \
    --arch resnetv15 --num-layers 50 --num-classes 1000 --mode train --data-train \
    /data/imagenet/train-val-recordio-passthrough/train.rec --data-train-idx \
    /data/imagenet/train-val-recordio-passthrough/train.idx --gpus 0,1,2,3,4,5,6,7 --batch-size 512 --image-shape \
    3,224,224 --lr 0.256 --lr-schedule cosine --optimizer sgd --mom 0.875 --wd 3.0517578125e-05 --label-smoothing \
    0.1 --kv-store horovod --data-backend dali-gpu --benchmark-iters 120 --no-metrics --disp-batches 1 \
    --save-frequency 0 --num-epochs 1 2>&1 &
wait $!
