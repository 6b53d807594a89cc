#!/bin/sh
# bert_base-amp_fp16-ngc-tensorflow1-2n8d-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/tensorflow:20.03-tf1-py3 \
  env PYTHONUNBUFFERED=1 horovodrun -p 10000 -np 16 -H a:8,b:8 python3 /workspace/bert/run_pretraining.py \
    --input_files_dir=/workspace/bert/data/tfrecord --eval_files_dir=/workspace/bert/data/tfrecord \
    --output_dir=results --bert_config_file=/workspace/bert/data/bert_config.json --do_train=True --do_eval=False \
    --train_batch_size=32 --eval_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 \
    --num_train_steps=120 --num_warmup_steps=10000 --num_accumulation_steps=1 --save_checkpoints_steps=10000 \
    --learning_rate=1e-4 --optimizer_type=adam --horovod --use_fp16 --allreduce_post_accumulation=False 2>&1 &
wait $!
