#!/bin/sh
# resnet50-amp_fp16-ngc-pytorch-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
name="dlperf-$$"
trap 'docker kill "$name" >/dev/null 2>&1; exit 143' TERM INT
docker run --rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host \
  --name "$name" --label "dlperf.run=$(pwd -P)" -w /dlperf \
  -v "$PWD"/work:/dlperf \
  nvcr.io/nvidia/pytorch:20.03-py3 \
  env PYTHONUNBUFFERED=1 python /workspace/rn50/multiproc.py --nnodes 2 --node_rank "$2" --nproc_per_node 8 \
    --master_addr a --master_port=29500 /workspace/rn50/main.py --data-backend dali-cpu --raport-file raport.json \
    -j8 -p 1 --lr 0.256 --optimizer-batch-size -1 --warmup 8 --arch resnet50 -c fanin --label-smoothing 0.1 \
    --lr-schedule cosine --mom 0.125 --wd 3.0517578125e-05 --workspace . -b 32 --epochs 1 --prof 150 \
    --training-only --no-checkpoints --amp --dynamic-loss-scale /data/image 2>&1 &
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
