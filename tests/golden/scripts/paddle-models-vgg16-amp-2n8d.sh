#!/bin/sh
# vgg16-amp_fp16-paddle-models-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 FLAGS_fraction_of_gpu_memory_to_use=0.98 \
    /environment/bin/python -m paddle.distributed.launch --cluster_node_ips=a,b --node_ip="$3" \
    ../../../../source/paddle-models/PaddleCV/image_classification/train.py --use_fp16=True \
    --use_dynamic_loss_scaling=true --scale_loss=128.0 --data_dir=/datasets/ImageNet/Paddle --validate=False \
    --model=VGG16 --batch_size=256 --print_step=1 --save_step=10000 --reader_thread=8 --lr_strategy=cosine_decay \
    --lr=0.01 --num_epochs=90 --l2_decay=3e-4 --max_iter=120 --model_save_dir=output/ 2>&1
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
