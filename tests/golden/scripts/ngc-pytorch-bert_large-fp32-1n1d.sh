#!/bin/sh
# bert_large-fp32-ngc-pytorch-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/pytorch:20.03-py3 \
  env PYTHONUNBUFFERED=1 NVIDIA_TF32_OVERRIDE=0 python3 -m torch.distributed.launch --nproc_per_node=1 --nnodes 1 \
    --node_rank=0 --master_addr=127.0.0.1 --master_port=29500 /workspace/examples/bert/run_pretraining.py \
    --input_dir=/workspace/examples/bert/data/hdf5_lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_5/wikicorpus_en \
    --output_dir=results --config_file=/workspace/examples/bert/bert_config_large.json \
    --bert_model=bert-large-uncased --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 \
    --max_steps=150 --warmup_proportion=1 --num_steps_per_checkpoint=1000 --learning_rate=6e-3 --seed=42 --do_train \
    --json-summary dllogger.json 2>&1 &
wait $!
