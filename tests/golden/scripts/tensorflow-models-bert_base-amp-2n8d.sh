#!/bin/sh
# bert_base-amp_fp16-tensorflow-models-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 PYTHONPATH=../../../../source/tensorflow-models CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
    /environment/bin/python ../../../../source/tensorflow-models/official/nlp/bert/run_pretraining.py \
    '--input_files=/datasets/bert/wiki/*.tfrecord' --max_seq_length=128 --max_predictions_per_seq=20 \
    --train_batch_size=512 --num_steps_per_epoch=120 --num_train_epochs=1 --warmup_steps=10000 \
    --use_next_sentence_label=True --train_summary_interval=0 --optimizer_type=adamw --num_gpus=8 \
    --datasets_num_private_threads=8 --dtype=fp16 --enable_xla=false --model_dir=output \
    --bert_config_file=/datasets/bert/uncased_L-12_H-768_A-12/bert_config.json \
    --distribution_strategy=multi_worker_mirrored --worker_hosts=a:29500,b:29500 --task_index="$2" \
    --all_reduce_alg=nccl 2>&1
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
