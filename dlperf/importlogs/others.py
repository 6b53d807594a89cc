"""Logs that are of no format here: what their lines have, and what they are. The first that fits counts."""

from __future__ import annotations

import json
import re
from functools import cache

#: programs that train, by a line of each
TRAINING = (
    (rb"elapsed time per iteration \(ms\):?|\| consumed samples:", "Megatron-LM"),
    (rb"samples/iter: |iteration \d+ \| .*tokens_per_sec", "GPT-NeoX"),
    (rb"wps: [\d.,]+ +mfu: |tps: [\d,]+ +(?:tflops: [\d.,]+ +)?mfu: ", "TorchTitan"),
    (rb"completed step: \d+, seconds: ", "MaxText"),
    (rb"iter \d+: loss [\d.]+, time [\d.]+ ?ms", "nanoGPT"),
    (rb"SamplesPerSec=", "DeepSpeed"),
    (rb"\bwps=[\d.]+|\| wps [\d.]+|\"wps\": \"", "fairseq"),
    (rb"interval_samples_per_second", "PaddleNLP's Trainer"),
    (rb"throughput/samples_per_sec", "Composer"),
    (rb"d2\.utils\.events|eta: .* iter: \d+ +total_loss", "Detectron2"),
    (rb"maskrcnn_benchmark\.trainer", "maskrcnn-benchmark"),
    (rb"mm(?:det|seg|cls|pretrain|pose|action)\w* - INFO|mmengine - INFO|Epoch ?\(train\) +\[\d+\]", "OpenMMLab"),
    (rb"Ultralytics|\bYOLOv\d|Epoch +gpu_mem +box", "YOLO"),
    (rb"^ ?\d+: [\d.]+, [\d.]+ avg(?: loss)?, [\d.]+ rate,", "Darknet"),
    (rb"Epoch: \[\d+\] +\[ *\d+/\d+\] +eta: .*img/s: ", "torchvision's references"),
    (rb"Train: \d+ \[ *\d+/\d+ \( *\d+%\)\]", "timm"),
    (rb"^Train Epoch: \d+ \[\d+/\d+", "pytorch/examples' MNIST"),
    (rb"\| epoch +\d+ \| +\d+/ *\d+ batches \| lr ", "pytorch/examples' language model"),
    (rb"\bnum_segments=\d+, .*\bvideo_loader=", "gluon-cv's action recognition"),
    (rb"\[Epoch \d+\]\[Batch \d+\], .*Speed: ", "gluon-cv's detection or segmentation"),
    (rb"lossvalue|arcface|partial_fc", "InsightFace's face recognition"),
    (rb"(?:Epoch|Iter)\[\d+\] Batch \[[\d-]+\]\s+Speed: ", "a script with MXNet's Speedometer"),
    (rb"\[TRAIN\] epoch: \d+, iter: \d+/\d+", "PaddleSeg"),
    (rb"Epoch: \[\d+\] +\[ *\d+/\d+\] learning_rate: ", "PaddleDetection"),
    (rb"global_step: \d+, .*avg_samples: ", "PaddleOCR"),
    (rb"frames/s \| took|train_items_per_sec : ", "NVIDIA's speech synthesis (dllogger)"),
    (rb"hr@10 :", "NVIDIA's NCF (dllogger)"),
    (rb"Tok/s", "NVIDIA's translation"),
    (rb":::NVLOGv", "NVIDIA's logger before dllogger"),
    (rb"^DLLL \{", "dllogger's JSON file; what its script printed can be read"),
    (rb"Img/sec per (?:GPU|CPU|device)", "Horovod's synthetic benchmark"),
    (rb"Samples per second ?: |MLPerf Results Summary", "MLPerf's inference"),
    (rb"epoch time: [\d.]+(?: ms)?, per step time", "MindSpore"),
    (rb"\d{1,9}/\d{1,9} (?:\[=*>?\.*\]|\xe2\x94\x81+).* \d+m?s/step", "Keras"),
    (rb"global_step/sec: |INFO:tensorflow:loss = ", "a TensorFlow Estimator"),
    (rb"Iteration \d+ \([\d.]+ iter/s|solver\.cpp:\d+\] Iteration \d+", "Caffe"),
    (rb"step_idx: \d+, epoch: \d+, batch: ", "PaddlePaddle's Transformer"),
    (rb"ips:? [\d.]+ (?:example|word)/sec|Run Worker Begin|-- Role: TRAINER --", "PaddlePaddle's parameter servers"),
    (rb"epoch: \d+, progress: \d+/\d+, step: \d+, ave loss: ", "PaddleNLP's fine-tuning"),
    (rb"^\[Epoch \d+\] Train-acc: [\d.]+, loss: [\d.]+ \| Val-acc: ", "gluon-cv's fine-tuning"),
    (rb"\btest_io['\"]?(?: : |=)True", "NVIDIA's convolutional networks for MXNet, which read data only (test_io)"),
    (rb"Average images/sec: [\d.]+\s+Median images/sec|avg_img/sec : ", "NVIDIA's object detection"),
    (rb"^\d+ time \d{10}\.\d+ loss [\d.]+", "OneFlow's Wide & Deep"),
    (rb"^(?:LOG|WARNING|ERROR|VLOG) \([\w-]+\[\d+\.", "Kaldi"),
    (rb"Transformer \| epoch \d+ ", "NVIDIA's Transformer"),
    (rb"worker_index: \d+, step\d+, train_loss", "FleetX"),
    (rb"\[LightGBM\]|\[\d+\]\s+train-\w+:", "gradient-boosted trees"),
)
#: programs that do not
TOOLS = (
    (rb"NVIDIA-SMI \d|^\| +GPU +Name +|# gpu +pwr +gtemp|^timestamp, .*\[(?:%|MiB|W)\]", "nvidia-smi"),
    (rb"^\d{4}/\d\d/\d\d [\d:.]{8,16}, .*\d (?:MiB|%|W)(?:,|$)", "nvidia-smi"),
    (rb"TensorRT\.trtexec|=== Performance summary ===", "TensorRT's trtexec, which is inference"),
    (rb"^(?:slurmstepd|srun|sbatch|salloc): |^ +JOBID PARTITION |StdOut=/", "Slurm"),
    (rb"^(?:Name|NAME)(?:space)?:? +READY +STATUS|^NAME +READY +STATUS|^Events:$|kubelet +", "kubectl"),
    (rb"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \w+\.go:\d+\]", "a Kubernetes component"),
    (rb"\"(?:GET|POST|HEAD|PUT) /\S* HTTP/[\d.]+\" \d{3} ", "a web server's access"),
    (rb"^(?:Collecting|Requirement already satisfied:|Successfully installed|Downloading) \S+", "pip"),
    (rb"^(?:Get|Hit|Ign):\d+ https?://|^Reading package lists\.\.\.", "apt"),
    (rb"^Step \d+/\d+ : |^#\d+ \[[^\]\n]*\d+/\d+\] ", "docker build"),
    (rb"^=+ test session starts =+|^=+ \d+ (?:passed|failed)", "pytest"),
    (rb"^\[ *\d+\.\d{6}\] ", "a kernel's messages"),
    (rb"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ \S+?(?:\[\d+\])?: ", "a syslog"),
)


@cache
def _patterns(named: tuple[tuple[bytes, str], ...]) -> list[tuple[re.Pattern[bytes], str]]:
    return [(re.compile(pattern, re.MULTILINE), name) for pattern, name in named]


def looks_like(text: bytes, named: tuple[tuple[bytes, str], ...]) -> str:
    """Which of these programs; empty where it is none."""
    return next((name for pattern, name in _patterns(named) if pattern.search(text)), "")


#: lines that only programs in Python have, headings and blocks as Markdown has them
IMPORTS = re.compile(rb"^(?:import \w|from [\w.]+ import )", re.MULTILINE)
CODE = re.compile(rb"^[ \t]*(?:(?:def|class) \w+.*:$|if __name__ == |return\b|@\w)", re.MULTILINE)
HEADINGS = re.compile(rb"^#{1,4} \w?[^\n#]{2,120}$", re.MULTILINE)


def source(text: bytes) -> str:
    """What a file is that people write and that may quote logs; empty where it may be one."""
    if text.startswith(b"#!"):
        return "a script"
    if b"import " in text and b"def " in text:
        imports, code = len(IMPORTS.findall(text)), len(CODE.findall(text))
        if imports > 1 and code > 1 and (imports + code) * 20 > text.count(b"\n"):
            return "source code"
    return "a page in Markdown" if text.count(b"```") > 1 and len(HEADINGS.findall(text)) > 2 else ""


#: of a value between commas
NAME = re.compile(rb"(?:^|,) ?([A-Za-z_]\w*)(?:[=: ])")


def kind(text: bytes) -> str:
    """What a file is that is no text of lines; empty where it may be a log."""
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return ""
        return "JSON"
    lines = text.splitlines()[:10]
    commas = [line.count(b",") for line in lines]
    names = {tuple(NAME.findall(line)) for line in lines}
    if len(names) == 1 and len(names.pop()) > 1:
        return ""  # each value has its name, as logs have them
    return "a table of values between commas" if len(commas) > 2 and min(commas) == max(commas) > 1 else ""
