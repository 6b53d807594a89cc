"""MLPerf's mllog: the time from start to stop of the run, and samples over seconds of its epochs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from dlperf.importlogs.format import Event, Format

#: of a line that is read
LONGEST = 2**16
#: as of v0.5 and of v0.6; later ones have all in the JSON
V05 = re.compile(r":::MLPv0\.5\.\d \w+ (\d{1,12}\.\d{1,9}) \([^)]*\) (\w+)(?:: (.*))?")
V06 = re.compile(r":::MLL (\d{1,12}\.\d{1,9}) (\w+): (\{.*)")
MODELS = {"resnet": "resnet50", "bert": "bert_large"}


def events(lines: Iterable[tuple[int, str]]) -> list[Event]:
    moments: dict[str, tuple[int, float]] = {}
    epochs, samples = 0, 0.0
    for number, text in lines:
        key, seconds, value, success = _event(text)
        if key == "train_samples" and _sane(value):
            samples = float(value)
        if not _sane(seconds):
            continue
        if key in ("run_start", "epoch_start"):
            moments.setdefault(key, (number, seconds))
        elif key in ("run_stop", "epoch_stop"):
            moments[key] = (number, seconds)
            epochs += key == "epoch_stop"
            if key == "run_stop" and not success:
                moments.pop(key)
    found = []
    if epochs and samples and "epoch_start" in moments and (seconds := _seconds(moments, "epoch")) > 0:
        (since, _), (until, _) = moments["epoch_start"], moments["epoch_stop"]
        doubt = "of whole epochs, their first steps and what is between them too"
        rate = samples * epochs / seconds
        found.append(Event("samples over seconds", rate, "samples_over_seconds", since, until, "", doubt, "throughput"))
    if "run_start" in moments and "run_stop" in moments and (seconds := _seconds(moments, "run")) > 0:
        (since, _), (until, _) = moments["run_start"], moments["run_stop"]
        found.append(Event("run_start to run_stop", seconds / 60, "one_run", since, until, "", "", "time_to_train"))
    return [one for one in found if math.isfinite(one.value)]


def _sane(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value < 1e15


def _seconds(moments: dict[str, tuple[int, float]], of: str) -> float:
    return moments[f"{of}_stop"][1] - moments[f"{of}_start"][1]


def _event(text: str) -> tuple[str, Any, Any, bool]:
    """Of a line its key, seconds, value, and whether it tells of success; an empty key where it is none."""
    text = text[:LONGEST]
    if old := V05.search(text):
        return old[2], float(old[1]), _json(old[3] or "").get("value"), '"success": true' in (old[3] or "")
    if older := V06.search(text):
        told, seconds, key = _json(older[3]), float(older[1]), older[2]
    else:
        told = _json(text.partition(":::MLLOG")[2])
        time, key = told.get("time_ms"), str(told.get("key"))
        seconds = float(time or 0) / 1000 if _sane(time) else 0.0
    metadata = told.get("metadata") or {}
    return key, seconds, told.get("value"), isinstance(metadata, dict) and metadata.get("status") == "success"


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def told(head: str) -> dict[str, str]:
    """The batch of all devices and the benchmark."""
    found = {}
    for name, key in {"batch": "global_batch_size", "model": "submission_benchmark"}.items():
        if value := re.search(rf'\b{key}(?:", "value"|: \{{"value"): "?([\w.-]{{1,80}})', head):
            found[name] = value[1]
    if "model" in found:
        found["model"] = MODELS.get(found["model"], found["model"])
    return found


FORMAT = Format(
    name="mllog",
    title="MLPerf's mllog",
    framework="",
    unit="samples/s",
    needle=b":::ML",
    logs=(),
    told=(told,),
    batch="global",
    events=events,
)
