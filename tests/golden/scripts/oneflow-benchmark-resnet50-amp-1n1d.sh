#!/bin/sh
# resnet50-amp_fp16-oneflow-benchmark-b256, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 NCCL_LAUNCH_MODE=PARALLEL CUDA_VISIBLE_DEVICES=0 /environment/bin/python \
    ../../../../source/oneflow-benchmark/Classification/cnns/of_cnn_train_val.py --num_examples=30720 \
    --train_data_dir=/datasets/ImageNet/ofrecord/train --train_data_part_num=256 --num_nodes=1 --gpu_num_per_node=1 \
    --optimizer=sgd --momentum=0.875 --label_smoothing=0.1 --learning_rate=0.001 --loss_print_every_n_iter=20 \
    --batch_size_per_device=256 --val_batch_size_per_device=125 --num_epoch=1 --use_fp16 --channel_last=True \
    --pad_output --fuse_bn_relu=True --fuse_bn_add_relu=True --nccl_fusion_threshold_mb=16 --nccl_fusion_max_ops=24 \
    --gpu_image_decoder=True --log_dir=log --node_ips=localhost --model=resnet50 2>&1
