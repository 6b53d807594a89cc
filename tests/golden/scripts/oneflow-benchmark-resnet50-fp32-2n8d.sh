#!/bin/sh
# resnet50-fp32-oneflow-benchmark-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 NCCL_LAUNCH_MODE=PARALLEL CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 /environment/bin/python \
    ../../../../source/oneflow-benchmark/Classification/cnns/of_cnn_train_val.py --num_examples=61440 \
    --train_data_dir=/datasets/ImageNet/ofrecord/train --train_data_part_num=256 --num_nodes=2 --gpu_num_per_node=8 \
    --optimizer=sgd --momentum=0.875 --label_smoothing=0.1 --learning_rate=0.001 --loss_print_every_n_iter=20 \
    --batch_size_per_device=32 --val_batch_size_per_device=125 --num_epoch=1 --nccl_fusion_threshold_mb=16 \
    --nccl_fusion_max_ops=24 --gpu_image_decoder=True --log_dir=log --node_ips=a,b --model=resnet50 2>&1
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
