"""What a log is: its format, or why it is not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dlperf.importlogs.format import Format

#: bytes of a log's head in which its arguments are looked for, and that are read at once
HEAD, BLOCK = 2**20, 2**20
#: of a block in which it is looked for other formats
SAMPLE = 2**15
#: what is no pre-training of a model, wherever it stands
FINE_TUNING = re.compile(
    rb"run_(?:squad|glue|classifier|ner|qa)\b|exact_match|\beval_f1\b|\bsquad[-_/ ]?v?[12]\.[01]|\bSQuAD\b|\bCoNLL"
    rb"|ForQuestionAnswering|ForSequenceClassification|ForTokenClassification|Iteration: \d+ +step_loss :"
    rb"|task_name['\"]?\s*[:=]\s*['\"]?(?:mrpc|mnli|cola|sst|qqp|qnli|rte|wnli|sts)",
    re.IGNORECASE,
)
EVALUATION = re.compile(
    rb"Mode:\s+(?:forward-only|evaluation)|mode\s*[:=]\s*['\"]?(?:inference|inference_benchmark|evaluate|predict|pred|val)"
    rb"\b"
)
#: one of which what is above begins with, in small letters: to look for these is many times as fast
WORDS = (
    b"run_",
    b"exact_match",
    b"eval_f1",
    b"squad",
    b"conll",
    b"answering",
    b"classification",
    b"step_loss",
    b"task_name",
)
#: lines of a log that has no line of training
EVALUATED = re.compile(
    rb"\bval\.(?:total_)?ips\b|throughput_val|eval_samples_per_second|inference_sequences_per_second|^Test: \[|\[Eval\]"
    rb"|, test batch |inference_throughput",
    re.MULTILINE,
)
#: what other logs have, and what they are
OTHERS = (
    (rb"elapsed time per iteration \(ms\)|\| consumed samples:", "Megatron-LM's GPT"),
    (rb"SamplesPerSec=", "DeepSpeed"),
    (rb"\bwps=|\| wps ", "fairseq"),
    (rb"frames/s \| took", "NVIDIA's speech synthesis (dllogger)"),
    (rb"hr@10 :", "NVIDIA's NCF (dllogger)"),
    (rb"lossvalue|arcface|partial_fc", "InsightFace's face recognition"),
    (rb"epoch time: [\d.]+(?: ms)?, per step time", "MindSpore"),
    (rb"iter \d+: loss [\d.]+, time [\d.]+ ?ms", "nanoGPT"),
    (rb"d2\.utils\.events|eta: .* iter: \d+ +total_loss", "Detectron2"),
    (rb"\d+/\d+ \[=*>?\.*\] - .*ms/step", "Keras"),
    (rb"completed step: \d+, seconds", "MaxText"),
    (rb"Tok/s", "NVIDIA's translation"),
    (rb"Iteration \d+ \([\d.]+ iter/s", "Caffe"),
    (rb"Ultralytics|YOLOv\d", "Ultralytics' YOLO"),
)


class Refused(Exception):
    """A log that is not read, and why."""


def recognised(path: Path, forms: Mapping[str, Format], named: str | None) -> tuple[list[Format], str]:
    """The formats whose lines may be there, and the head of the log. Refused where it is known to be something else."""
    found, head, other, evaluated = _seen(path, forms.values())
    where = path.name
    if not head:
        raise Refused("it is empty")
    if b"\0" in head[:8192]:
        raise Refused("it is binary, not a log")
    small = head.lower()
    if any(word in small for word in WORDS) and (fine := FINE_TUNING.search(head)):
        raise Refused(f"{where}:{_line(head, fine.start())}: fine-tuning, which is not pre-training")
    if b"mode" in small and (inference := EVALUATION.search(head)):
        raise Refused(f"{where}:{_line(head, inference.start())}: evaluation or inference, which is not training")
    if other and not (named and forms[named] in found):
        raise Refused(f"it looks like the log of {other}")
    if named and forms[named] not in found:
        looks = f"; it looks like {found[0].title}" if found else ""
        raise Refused(f"it has no line of --format {named}{looks}")
    if not found:
        raise Refused(
            "its figures are of evaluation, which is not training"
            if evaluated
            else "no line is of a format that is known"
        )
    return ([forms[named]] if named else found), head.decode("utf-8", "replace")


def _seen(path: Path, forms: Iterable[Format]) -> tuple[list[Format], bytes, str, bool]:
    left = {one.name: one for one in forms}
    found: list[Format] = []
    head, other, evaluated, before = b"", "", False, b""
    others = [(re.compile(pattern), name) for pattern, name in OTHERS]
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            text = before + block
            if len(head) < HEAD:
                head += block
                evaluated = evaluated or bool(EVALUATED.search(block[:SAMPLE]))
                other = other or next((name for pattern, name in others if pattern.search(block[:SAMPLE])), "")
            for one in [one for one in left.values() if one.needle in text]:
                found.append(left.pop(one.name))
            before = block[-64:]
    return found, head, other, evaluated


def _line(head: bytes, at: int) -> int:
    return head.count(b"\n", 0, at) + 1
