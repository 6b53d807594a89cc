#!/bin/sh
# bert_base-fp32-paddle-models-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 worker_endpoints=a:29500,b:29500 \
    current_endpoint="$3":29500 /environment/bin/python -u \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/train.py --is_distributed true \
    --use_cuda true --use_fast_executor true --weight_sharing true --batch_size 4096 --data_dir DIR \
    --validation_set_dir DIR --bert_config_path \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/data/demo_config/bert_config.json \
    --vocab_path \
    ../../../../source/paddle-models/PaddleNLP/pretrain_language_models/BERT/data/demo_config/vocab.txt \
    --generate_neg_sample true --save_steps 10000 --learning_rate 1e-4 --weight_decay 0.01 --warmup_steps 120 \
    --num_train_steps 120 --max_seq_len 128 --skip_steps 1 --validation_steps 1000 --use_fp16 False \
    --use_dynamic_loss_scaling False --init_loss_scaling 128.0 --verbose true --checkpoints checkpoints 2>&1
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
