#!/bin/sh
# transformer_big-amp_fp16-ngc-pytorch-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/pytorch:20.03-py3 \
  env PYTHONUNBUFFERED=1 python3 -m torch.distributed.launch --nproc_per_node=8 --nnodes 2 --node_rank="$2" \
    --master_addr=a --master_port=29500 /workspace/translation/train.py --distributed-init-method env:// \
    /data/wmt14_en_de_joined_dict --distributed-world-size 16 --arch transformer_wmt_en_de_big_t2t \
    --share-all-embeddings --optimizer adam --adam-betas '(0.9, 0.997)' --adam-eps 1e-9 --clip-norm 0.0 \
    --lr-scheduler inverse_sqrt --warmup-init-lr 0.0 --warmup-updates 4000 --lr 0.0006 --min-lr 0.0 --dropout 0.1 \
    --weight-decay 0.0 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 2048 --seed 1 \
    --max-update 150 --no-save --fuse-layer-norm --log-interval 1 --save-dir results --amp --amp-level O2 2>&1 &
wait $!
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
