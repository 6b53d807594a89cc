"""MLPerf's mllog: the time from start to stop of the run, samples over seconds of its epochs, and what it tracked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, TypeGuard

from dlperf.errors import whole_number
from dlperf.importlogs.facts import Said, said
from dlperf.importlogs.format import THEIRS, Event, Format

#: of a line that is read
LONGEST = 2**16
#: as of v0.5 and of v0.6; later ones have all in the JSON
V05 = re.compile(r":::MLPv0\.5\.\d \w+ (\d{1,12}\.\d{1,9}) \([^)]*\) (\w+)(?:: (.*))?")
V06 = re.compile(r":::MLL (\d{1,12}\.\d{1,9}) (\w+): (\{.*)")
MODELS = {"resnet": "resnet50", "bert": "bert_large"}
#: what samples are counted over, the first that is there, and what is to be said of it
SPANS = {
    "epoch": "of whole epochs, their first steps and what is between them too",
    "block": "of blocks of epochs, their first steps and evaluation too",
}
OURS = "samples over seconds"
#: epochs that no run of these benchmarks takes
ABSURD = 1000
#: keys with one number
NUMBERS = ("train_samples", "global_batch_size", "opt_learning_rate_training_steps")


class Seen:
    """What its lines tell: moments and their lines by key, epochs that ended, numbers, and rates that it printed."""

    def __init__(self) -> None:
        self.moments: dict[str, tuple[int, float]] = {}
        self.epochs = {"epoch": 0.0, "block": 0.0}
        self.begun = 0.0  # epochs of the block that has not ended
        self.numbers = dict.fromkeys(NUMBERS, 0.0)
        self.rates: dict[str, list[tuple[int, float]]] = {}
        self.failed = ""  # what its last run_stop says that is no success

    def add(self, number: int, key: str, seconds: float, value: Any, metadata: Mapping[str, Any]) -> None:
        if key in self.numbers and _sane(value):
            self.numbers[key] = float(value)
        if key in ("throughput", "tracked_stats"):
            rate = value.get("throughput") if isinstance(value, dict) else value
            if _sane(rate):
                self.rates.setdefault(key, []).append((number, float(rate)))
        if not _sane(seconds):
            return
        if key in ("run_start", "epoch_start", "block_start"):
            self.moments.setdefault(key, (number, seconds))
        elif key in ("run_stop", "epoch_stop", "block_stop"):
            self.moments[key] = (number, seconds)
            if key == "run_stop":
                status = str(metadata.get("status", "without success"))[:40]
                self.failed = "" if status == "success" else f"its run_stop at line {number} tells {status!r}"
                if self.failed:
                    self.moments.pop(key)
        self.epochs["epoch"] += key == "epoch_stop"
        if key == "block_start":
            self.begun = count if _sane(count := metadata.get("epoch_count")) else 0.0
        elif key == "block_stop":
            self.epochs["block"] += self.begun
            self.begun = 0.0

    def samples(self, of: str) -> tuple[float, str]:
        """How many were trained on in its epochs or blocks, and what is to be said of it; 0 where that cannot be told.

        MLPerf's BERT calls the samples of its data or those of the whole run `train_samples`, and Google's of v0.7
        counts steps in `epoch_count`. No run is longer than its schedule of learning rates.
        """
        epochs, batch = self.epochs[of], self.numbers["global_batch_size"]
        counted = epochs * self.numbers["train_samples"]
        most = self.numbers["opt_learning_rate_training_steps"] * batch * 1.02
        if counted and (counted > most if most else epochs > ABSURD):
            steps = 0.1 * most < epochs * batch <= most
            said = f"its epoch_count counts steps: {epochs:.0f} of {batch:.0f} samples" if steps else ""
            return (epochs * batch if steps else 0.0), said
        return counted, ""

    def span(self, of: str) -> tuple[int, int, float]:
        """The lines of its first start and last stop, and the seconds between; 0 of what is not there."""
        if f"{of}_start" not in self.moments or f"{of}_stop" not in self.moments:
            return 0, 0, 0.0
        (since, start), (until, stop) = self.moments[f"{of}_start"], self.moments[f"{of}_stop"]
        return since, until, stop - start


def events(lines: Iterable[tuple[int, str]]) -> list[Event]:
    seen = Seen()
    for number, text in lines:
        seen.add(number, *_event(text))
    found: list[Event] = []
    for of, doubt in SPANS.items():
        since, until, seconds = seen.span(of)
        samples, said = seen.samples(of)
        if samples and seconds > 0 and not found:
            doubts = "; ".join(filter(None, [said, doubt, seen.failed]))
            found.append(Event(OURS, samples / seconds, "samples_over_seconds", since, until, "", doubts, "throughput"))
    if rates := seen.rates.get("tracked_stats") or seen.rates.get("throughput"):
        mean = fmean(rate for _, rate in rates)
        doubt = "; ".join(filter(None, [f"the mean of {len(rates)} rates that it tells", seen.failed]))
        found.append(Event(THEIRS, mean, "mean_of_rates", rates[0][0], rates[-1][0], "", doubt, "throughput"))
    since, until, seconds = seen.span("run")
    if seconds > 0:
        left = seen.numbers["train_samples"] and any(seen.epochs.values()) and not found
        doubt = "no rate is made of its epochs and train_samples: it cannot have trained on that many" if left else ""
        found.append(Event("run_start to run_stop", seconds / 60, "one_run", since, until, "", doubt, "time_to_train"))
    return [one for one in found if math.isfinite(one.value) and one.value > 0]


def _sane(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and 0 < value < 1e15


def _event(text: str) -> tuple[str, float, Any, Mapping[str, Any]]:
    """Of a line its key, seconds, value and metadata; an empty key where it is none."""
    text = text[:LONGEST]
    if old := V05.search(text):
        status = {"status": "success"} if '"success": true' in (old[3] or "") else {}
        return old[2], float(old[1]), _json(old[3] or "").get("value"), status
    if older := V06.search(text):
        told, seconds, key = _json(older[3]), float(older[1]), older[2]
    else:
        told = _json(text.partition(":::MLLOG")[2])
        time, key = told.get("time_ms"), str(told.get("key"))
        seconds = float(time or 0) / 1000 if _sane(time) else 0.0
    metadata = told.get("metadata")
    return key, seconds, told.get("value"), metadata if isinstance(metadata, dict) else {}


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _value(key: str, head: str) -> Said | None:
    found = re.search(rf'\b{key}(?:", "value"|: \{{"value"): "?([\w.-]{{1,80}})', head)
    return said(found) if found else None


def told(head: str) -> dict[str, str]:
    """The batch of all devices, the parts of it, and the benchmark."""
    found: dict[str, str] = {}
    every, parts = _value("global_batch_size", head), _value("gradient_accumulation_steps", head)
    found |= {"batch": every} if every else {}
    found |= {"accumulation": parts} if parts else {}
    whole, each = whole_number(every), _value("d_batch_size", head)
    share = (whole_number(each) or 0) * (whole_number(parts) or 1)
    if whole and each and share and whole % share == 0:
        found["devices"] = Said(str(whole // share), each.at)
    if name := _value("submission_benchmark", head):
        found["model"] = Said(MODELS.get(name, name), name.at)
    return found


def other(head: str) -> str:
    """The benchmark, where it is none of those that are read."""
    name = _value("submission_benchmark", head)
    if name is None or name in MODELS:
        return ""
    return f"it is MLPerf's {name}; of MLPerf's benchmarks only {' and '.join(MODELS)} are read"


FORMAT = Format(
    name="mllog",
    title="MLPerf's mllog",
    framework="",
    unit="samples/s",
    needle=b":::ML",
    logs=(),
    told=(told,),
    other=other,
    who="the mean of the rates that MLPerf's script tracks",
    batch="global",
    events=events,
)
