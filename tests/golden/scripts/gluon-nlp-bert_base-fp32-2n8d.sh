#!/bin/sh
# bert_base-fp32-gluon-nlp-2n8d-b32, repeat 1 of 7
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 mpirun -oversubscribe -np 16 -H a:8,b:8 -bind-to none -map-by slot -x LD_LIBRARY_PATH -x \
    PATH -mca pml ob1 -mca btl '^openib' -mca plm_rsh_args '-p 22 -q -o StrictHostKeyChecking=no' -mca \
    btl_tcp_if_include ib0 /environment/bin/python ../../../../source/gluon-nlp/scripts/bert/run_pretraining.py \
    --model bert_12_768_12 --dtype float32 --warmup_ratio 1 --comm_backend horovod --total_batch_size 512 \
    --total_batch_size_eval 512 --accumulate 1 --lr 1e-4 --max_seq_length 128 --max_predictions_per_seq 20 \
    --num_steps 200 --log_interval 1 --ckpt_interval 1000 --no_compute_acc --data \
    '/datasets/bert/mxnet/wiki_128_npy_part_0/*' 2>&1
