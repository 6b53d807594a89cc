"""MLPerf's mllog: the time from start to stop of the run, and samples over seconds of its epochs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from dlperf.importlogs.format import Event, Format

#: of a line that is read
LONGEST = 2**16


def events(lines: Iterable[tuple[int, str]]) -> list[Event]:
    moments: dict[str, tuple[int, float]] = {}
    epochs, samples = 0, 0.0
    for number, text in lines:
        one = _event(text)
        key, time = str(one.get("key")), one.get("time_ms")
        value = one.get("value")
        if key == "train_samples" and isinstance(value, (int, float)) and 0 < value < 1e15:
            samples = float(value)
        if not isinstance(time, (int, float)) or not 0 < time < 1e15:
            continue
        if key in ("run_start", "epoch_start"):
            moments.setdefault(key, (number, float(time)))
        elif key in ("run_stop", "epoch_stop"):
            moments[key] = (number, float(time))
            epochs += key == "epoch_stop"
            if key == "run_stop" and (one.get("metadata") or {}).get("status") != "success":
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


def _seconds(moments: dict[str, tuple[int, float]], of: str) -> float:
    return (moments[f"{of}_stop"][1] - moments[f"{of}_start"][1]) / 1000


def _event(text: str) -> dict[str, Any]:
    """Of a line; empty where it is none."""
    try:
        found = json.loads(text[:LONGEST].partition(":::MLLOG")[2])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("metadata", {}), (dict, type(None))) else {}


FORMAT = Format(
    name="mllog",
    title="MLPerf's mllog",
    framework="",
    unit="samples/s",
    needle=b":::MLLOG",
    logs=(),
    events=events,
)
