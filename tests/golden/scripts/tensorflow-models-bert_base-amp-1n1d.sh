#!/bin/sh
# bert_base-amp_fp16-tensorflow-models-b64, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 PYTHONPATH=../../../../source/tensorflow-models CUDA_VISIBLE_DEVICES=0 \
    /environment/bin/python ../../../../source/tensorflow-models/official/nlp/bert/run_pretraining.py \
    '--input_files=/datasets/bert/wiki/*.tfrecord' --max_seq_length=128 --max_predictions_per_seq=20 \
    --train_batch_size=64 --num_steps_per_epoch=120 --num_train_epochs=1 --warmup_steps=10000 \
    --use_next_sentence_label=True --train_summary_interval=0 --optimizer_type=adamw --num_gpus=1 \
    --datasets_num_private_threads=8 --dtype=fp16 --enable_xla=false --model_dir=output \
    --bert_config_file=/datasets/bert/uncased_L-12_H-768_A-12/bert_config.json 2>&1
