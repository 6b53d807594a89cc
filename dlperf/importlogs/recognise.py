"""What a log is: its format, or why it is not read."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from dlperf.importlogs.format import Format
from dlperf.importlogs.others import TOOLS, TRAINING, kind, looks_like, source
from dlperf.upstream.logs import OUT_OF_MEMORY

#: bytes of a log's head in which its arguments are looked for, and that are read at once
HEAD, BLOCK = 2**20, 2**20
#: of the head in which it is looked for other programs
SAMPLE = 2**15
#: what is no pre-training of a model, wherever it stands
FINE_TUNING = re.compile(
    rb"(?:run|finetune)_(?:tf_)?(?:squad|glue|classifier|ner|re|qa|swag|xnli|msra|race|sentence|summarization"
    rb"|translation)(?:_\w{1,40})?\.(?:py|sh)|\bexact_match\b|\beval_f1\b"
    rb"|For(?:QuestionAnswering|SequenceClassification|TokenClassification|MultipleChoice)"
    rb"|DLL [^\n]{0,40} - (?:Epoch: \d+ )?Iteration: \d+ +step_loss :|using pre-trained model"
    rb"|finetune_checkpoint : (?!None)|model\.pretrained : True"
    rb"|task_name['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?:squad|mrpc|mnli|cola|sst|qqp|qnli|rte|wnli|sts|xnli|lcqmc|chnsenticorp)",
    re.IGNORECASE,
)
#: in small letters, one for each part of what is above: to look for these first is many times as fast
HINTS = tuple(
    b"run_ finetune exact_match eval_f1 answering classification multiplechoice step_loss pre-trained pretrained "
    b"task_name".split()
)
#: a script's arguments, in one line, and among them that it does not train
ARGUMENTS = re.compile(rb"PARAMETER|Namespace\(|Mode:  |--mode|^mode")
NO_TRAINING = re.compile(
    rb"\bMode: +(?:forward[- ]only|evaluation)"
    rb"|\bmode['\"]?\s?[:=]?\s?['\"]?(?:inference|inference_benchmark|evaluate|predict|pred|val)\b"
)
#: of files' names, what logs do not end with
SOURCES = frozenset(
    [
        *(".py", ".ipynb", ".sh", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".go", ".java", ".js", ".rs", ".ts"),
        *(".diff", ".patch", ".md", ".rst", ".tex"),
    ]
)
#: what few characters of a text are, though logs that were written to while they were emptied have some
STRANGE = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
#: lines of a log that has no line of training
EVALUATED = re.compile(
    rb"\bval\.(?:total_)?ips\b|throughput_val|eval_samples_per_second|inference_sequences_per_second|^Test: \[|\[Eval\]"
    rb"|, test +batch |^Testbatch \d|^validation: epoch |inference_throughput",
    re.MULTILINE,
)
PAGE = re.compile(rb"^[ \t]*<(?:!doctype |html)", re.MULTILINE | re.IGNORECASE)
#: pytorch/examples evaluates what it has loaded as pre-trained
TESTED, TRAINED = re.compile(rb"^Test: \[", re.MULTILINE), re.compile(rb"^Epoch: \[", re.MULTILINE)


#: what a process says when it dies
CRASHES = re.compile(
    r"^.*(?:out of memory|OutOfMemory|RESOURCE_EXHAUSTED|ResourceExhausted|cudaMalloc failed|Segmentation fault"
    r"|core dumped|Check failure stack trace|exited on signal \d|terminate called after"
    r"|Traceback \(most recent call).*$|^(?:Aborted|Killed)\b.*$",
    re.MULTILINE,
)
#: bytes of a log's end in which that is looked for
TAIL = 2**14


class Refused(Exception):
    """A log that is not read, and why."""


class Unusable(Refused):
    """A log that has lines of a format, but no figure of them: too few, or of a size that nobody tells."""


class Unlike(Refused):
    """A log without a line of the format that it was tried as, but ones that it quotes."""


class Seen(NamedTuple):
    """found: the formats whose lines may be there. head: the beginning of the log."""

    found: list[Format]
    head: bytes

    @property
    def text(self) -> str:
        return self.head.decode("utf-8", "replace")


def seen(path: Path, forms: Mapping[str, Format], named: str | None) -> Seen:
    """Refused where it cannot be a log of training."""
    found, head = _look(path, forms.values())
    if not head:
        raise Refused("it is empty")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Refused("it is UTF-16; convert it to UTF-8 first")
    start = head[:8192].decode("utf-8", "replace")
    if len(STRANGE.findall(start)) > len(start) // 8:
        raise Refused("it is binary, not a log")
    if not named and path.suffix.lower() in SOURCES:
        raise Refused("by its name it is source code or a page, not a log; give --format if it is one")
    if not named and (code := source(head[:SAMPLE])):
        raise Refused(f"it is {code}, not a log; give --format if it is one")
    if named and forms[named] not in found:
        looks = f"; it looks like {found[0].title}" if found else ""
        raise Refused(f"it has no line of --format {named}{looks}")
    return Seen([forms[named]] if named else found, head)


@lru_cache(maxsize=2)  # asked again for each format, and each size that may be
def no_training(name: str, head: bytes) -> str:
    """Where a log says that it is of fine-tuning, evaluation or inference; empty if it does not."""
    small = head.lower()
    if any(hint in small for hint in HINTS) and (fine := FINE_TUNING.search(head)):
        if fine[0].startswith(b"using pre") and (tested := TESTED.search(head)) and not TRAINED.search(head):
            return f"{name}:{_line(head, tested.start())}: evaluation, which is not training"
        return f"{name}:{_line(head, fine.start())}: fine-tuning, which is not pre-training"
    if b"mode" not in small:
        return ""
    until = 0
    for found in NO_TRAINING.finditer(head):
        if found.start() >= until:
            since, until = head.rfind(b"\n", 0, found.start()) + 1, head.find(b"\n", found.start())
            until = until if until >= 0 else len(head)
            line = head[since:until]
            if ARGUMENTS.search(line) and NO_TRAINING.search(line):
                return f"{name}:{_line(head, since)}: evaluation or inference, which is not training"
    return ""


def crashed(path: Path, needle: bytes) -> str:
    """The line of a crash after which no line has the needle; empty where it did not end so."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL))
        tail = file.read(TAIL)
    rest = tail[tail.rfind(needle) + 1 :].decode("utf-8", "replace")
    if "KeyboardInterrupt" in rest:  # somebody ended it
        return ""
    found = CRASHES.search(rest)
    return found[0].strip()[:80] if found else ""


def unlike(head: bytes, forms: Iterable[Format], quoted: Sequence[str]) -> Refused:
    """Of a log that no format has a line of, or those of `quoted` lines that it quotes."""
    if EVALUATED.search(head):
        return Refused("its figures are of evaluation, which is not training")
    if quoted:
        return Refused(f"it quotes lines of {quoted[0]}; give the log that they are from")
    sample, text = head[:SAMPLE], head.decode("utf-8", "replace")
    if other := looks_like(sample, TRAINING):
        return Refused(f"it looks like the log of {other}")
    for form in forms:
        if form.begins and form.begins.search(text):
            why = "; it ran out of memory" if OUT_OF_MEMORY.search(text) else ""
            return Refused(f"it looks like the log of {form.title}, but has no line of a step{why}")
    if other := looks_like(sample, TOOLS):
        return Refused(f"it looks like the log of {other}")
    if PAGE.search(sample):
        return Refused("it is a web page, not a log")
    return Refused(f"it is {kind(head)}, not a log" if kind(head) else "no line is of a format that is known")


def _look(path: Path, forms: Iterable[Format]) -> tuple[list[Format], bytes]:
    left = {one.name: one for one in forms}
    found: list[Format] = []
    head = before = b""
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            text = before + block
            head = head or block[:HEAD]
            for one in [one for one in left.values() if one.needle in text]:
                found.append(left.pop(one.name))
            before = block[-64:]
    return found, head


def _line(head: bytes, at: int) -> int:
    return head.count(b"\n", 0, at) + 1
