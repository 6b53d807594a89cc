#!/bin/sh
# bert_base-fp32-oneflow-benchmark-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0 /environment/bin/python \
    ../../../../source/oneflow-benchmark/LanguageModeling/BERT/run_pretraining.py --gpu_num_per_node=1 \
    --num_nodes=1 --node_ips=localhost --learning_rate=1e-4 --batch_size_per_device=32 --iter_num=140 \
    --loss_print_every_n_iter=20 --seq_length=128 --max_predictions_per_seq=20 --num_hidden_layers=12 \
    --num_attention_heads=12 --max_position_embeddings=512 --type_vocab_size=2 --vocab_size=30522 \
    --attention_probs_dropout_prob=0.1 --hidden_dropout_prob=0.1 --hidden_size_per_head=64 \
    --data_dir=/datasets/bert/of_wiki_seq_len_128 --data_part_num=32 --log_dir=log --model_save_every_n_iter=10000 \
    --save_last_snapshot=False --model_save_dir=snapshots 2>&1
