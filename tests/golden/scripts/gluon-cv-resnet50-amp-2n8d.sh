#!/bin/sh
# resnet50-amp_fp16-gluon-cv-2n8d-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 mpirun --allow-run-as-root -oversubscribe -np 16 -H \
    a:8,b:8 -bind-to none -map-by slot -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl '^openib' -mca plm_rsh_args \
    '-p 22  -q -o StrictHostKeyChecking=no' -mca btl_tcp_if_include ib0 /environment/bin/python \
    ../../../../source/gluon-cv/scripts/classification/imagenet/train_horovod.py --model=resnet50_v1b --use-rec \
    --rec-train=/datasets/ImageNet/MXNet/train.rec --rec-val=/datasets/ImageNet/MXNet/val.rec --batch-size=32 \
    --dtype=float16 --log-interval=1 --save-frequency=10000 --lr=0.001 --momentum=0.875 --wd=0.000030518 \
    --num-epochs=1 --warmup-epochs=1 2>&1
