#!/bin/sh
# vgg16-fp32-paddle-models-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0 FLAGS_fraction_of_gpu_memory_to_use=0.98 /environment/bin/python \
    -m paddle.distributed.launch ../../../../source/paddle-models/PaddleCV/image_classification/train.py \
    --data_dir=/datasets/ImageNet/Paddle --validate=False --model=VGG16 --batch_size=32 --print_step=1 \
    --save_step=10000 --reader_thread=8 --lr_strategy=cosine_decay --lr=0.01 --num_epochs=90 --l2_decay=3e-4 \
    --max_iter=120 --model_save_dir=output/ 2>&1
