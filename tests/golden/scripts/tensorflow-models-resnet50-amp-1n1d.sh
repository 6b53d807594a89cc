#!/bin/sh
# resnet50-amp_fp16-tensorflow-models-b256, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 PYTHONPATH=../../../../source/tensorflow-models CUDA_VISIBLE_DEVICES=0 \
    /environment/bin/python \
    ../../../../source/tensorflow-models/official/vision/image_classification/classifier_trainer.py \
    --mode=train_and_eval --model_type=resnet --dataset=imagenet --model_dir=output \
    --data_dir=/datasets/ImageNet/tfrecord \
    --config_file=../../../../source/tensorflow-models/official/vision/image_classification/configs/examples/resnet/imagenet/gpu.yaml \
    --params_override=runtime.distribution_strategy=mirrored,runtime.num_gpus=1,runtime.batchnorm_spatial_persistent=True,train_dataset.dtype=float16,validation_dataset.dtype=float16,train_dataset.batch_size=256,train_dataset.use_per_replica_batch_size=True,model.optimizer.momentum=0.875,model.loss.label_smoothing=0.1,train.epochs=1,train.steps=600,evaluation.epochs_between_evals=10 2>&1
