"""Reads what the workers wrote. A file may be missing, half-written or full of something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlperf.schema import Failure, Window

#: what a window's event says; skew is known only when all ranks are side by side
WINDOW = tuple(name for name in Window.__dataclass_fields__ if name != "skew_seconds")


@dataclass(frozen=True)
class Stream:
    """The events of one rank. `end` is None unless the worker came to its end."""

    start: Mapping[str, Any] = field(default_factory=dict)
    built: Mapping[str, Any] = field(default_factory=dict)
    warm: Mapping[str, Any] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    trajectory: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    failed: Mapping[str, Any] | None = None
    bad_line: str = ""

    @property
    def failure(self) -> Failure | None:
        """What went wrong as far as the worker could say it; None for a complete stream."""
        if self.failed is not None:
            lines = str(self.failed.get("traceback", "")).strip().splitlines()
            return Failure(
                str(self.failed.get("kind", "crash")), str(self.failed.get("message", "")), tuple(lines[-15:])
            )
        if self.end is None or self.bad_line or not (self.windows or self.trajectory):
            detail = f"; line {self.bad_line} is not an event" if self.bad_line else ""
            return Failure("crash", f"the worker stopped without a word{detail}")
        return None


def read(path: Path) -> Stream:
    """The events in a file, as far as it goes. Never raises for what the file holds."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Stream()
    found: dict[str, Any] = {"windows": []}
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            if event["event"] == "window":
                found["windows"].append(Window(**{key: event[key] for key in WINDOW}))
            elif event["event"] in ("start", "built", "warm", "trajectory", "end", "failed"):
                found[event["event"]] = event
        except (ValueError, TypeError, KeyError):
            found["bad_line"] = f"{number} of {path.name}"
    return Stream(**{**found, "windows": tuple(found["windows"])})
