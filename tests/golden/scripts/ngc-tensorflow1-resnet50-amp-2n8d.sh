#!/bin/sh
# resnet50-amp_fp16-ngc-tensorflow1-2n8d-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/tensorflow:20.03-tf1-py3 \
  env PYTHONUNBUFFERED=1 mpirun --allow-run-as-root -np 16 -H a:8,b:8 -bind-to none -map-by slot -x \
    LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl '^openib' -mca plm_rsh_args \
    '-p 12345 -q -o StrictHostKeyChecking=no' -mca btl_tcp_if_include ib0 python3 /workspace/rn50v15_tf/main.py \
    --arch=resnet50 --mode=train --iter_unit=batch --num_iter=120 --batch_size=32 --warmup_steps=0 --lr_init=0.256 \
    --use_cosine_lr --label_smoothing 0.1 --lr_warmup_epochs=8 --momentum=0.875 --weight_decay=3.0517578125e-05 \
    --precision=fp32 --use_tf_amp --use_static_loss_scaling --loss_scale=128 --data_dir=/data/tfrecords --use_dali \
    --data_idx_dir=/data/dali_idx --results_dir=results --weight_init=fan_in --display_every=1 \
    --gpu_memory_fraction=0.98 2>&1 &
wait $!
