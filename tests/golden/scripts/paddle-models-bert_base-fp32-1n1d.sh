#!/bin/sh
# bert_base-fp32-paddle-models-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0 /environment/bin/python -u \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/train.py --is_distributed false \
    --use_cuda true --use_fast_executor true --weight_sharing true --batch_size 4096 --data_dir DIR \
    --validation_set_dir DIR --bert_config_path \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/data/demo_config/bert_config.json \
    --vocab_path \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/data/demo_config/vocab.txt \
    --generate_neg_sample true --save_steps 10000 --learning_rate 1e-4 --weight_decay 0.01 --warmup_steps 120 \
    --num_train_steps 120 --max_seq_len 128 --skip_steps 1 --validation_steps 1000 --use_fp16 False \
    --use_dynamic_loss_scaling False --init_loss_scaling 128.0 --verbose true --checkpoints checkpoints 2>&1
