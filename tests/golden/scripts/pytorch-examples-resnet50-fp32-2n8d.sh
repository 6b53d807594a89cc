#!/bin/sh
# resnet50-fp32-pytorch-examples-2n8d-b32, repeat 1 of 7
case "$1" in
node)
cd "$(dirname "$0")" && mkdir -p work &&
cd work &&
exec env PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 /environment/bin/python \
    ../../../../source/pytorch-examples/imagenet/main.py --arch resnet50 --epochs 1 --batch-size 256 --lr 0.256 \
    --workers 8 --momentum 0.125 --print-freq 1 --multiprocessing-distributed --dist-backend nccl --dist-url \
    tcp://a:11222 --world-size 2 --rank "$2" DIR 2>&1
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
