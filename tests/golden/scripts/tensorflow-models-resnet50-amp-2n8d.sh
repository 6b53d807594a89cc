#!/bin/sh
# resnet50-amp_fp16-tensorflow-models-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 PYTHONPATH=../../../../source/tensorflow-models CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
    /environment/bin/python \
    ../../../../source/tensorflow-models/official/vision/image_classification/classifier_trainer.py \
    --mode=train_and_eval --model_type=resnet --dataset=imagenet --model_dir=output \
    --data_dir=/datasets/ImageNet/tfrecord \
    --config_file=../../../../source/tensorflow-models/official/vision/image_classification/configs/examples/resnet/imagenet/gpu.yaml \
    '--params_override=runtime.distribution_strategy=multi_worker_mirrored,runtime.worker_hosts='"'"'a:29500,b:29500'"'"',runtime.task_index='"$2"',runtime.all_reduce_alg=nccl,runtime.num_gpus=8,runtime.batchnorm_spatial_persistent=False,train_dataset.dtype=float16,validation_dataset.dtype=float16,train_dataset.batch_size=32,train_dataset.use_per_replica_batch_size=True,model.optimizer.momentum=0.875,model.loss.label_smoothing=0.1,train.epochs=1,train.steps=600,evaluation.epochs_between_evals=10' 2>&1
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
