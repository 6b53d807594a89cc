"""Why a run failed, from its end, its events and what it printed."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dlperf.docker import engine as engine_
from dlperf.docker.engine import REFUSED
from dlperf.errors import shortened
from dlperf.launchers import Launcher
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure


def failure(ended: Exit, stream: Stream, folder: Path, launcher: Launcher | None = None) -> Failure | None:
    """What the outside saw goes before what the workers wrote: a killed worker writes nothing, and the ranks that lost
    it write only that."""
    lines = last_lines(folder)
    if ended.timed_out:
        return outside(ended, lines, _where(stream))
    said = printed(folder) if launcher else ""
    if launcher and launcher.gone and (gone := launcher.gone.search(said)):
        return Failure("launcher", f"the launcher lost a node: {gone['said']}; {_where(stream)}", lines)
    if launcher and launcher.stopped and (stopped := launcher.stopped.search(said)):
        return Failure("launcher", f"the launcher was stopped: {stopped.group()}; {_where(stream)}", lines)
    lost = launcher.first_ended(said) if launcher else None
    # some abort when they lose one, and Slurm ends those that are left
    follows = any(one.failed for one in stream.ranks) and lost and FOLLOWING.search(lost.how)
    if lost and (stream.ranks or stream.servers) and not follows:
        host = (stream.hosts[lost.rank] if lost.role == "rank" else "") or lost.host
        kind = "out_of_memory" if ended.machine_ran_out_of_memory else "killed"
        log = _last(_end(folder / f"log.{lost.role}{lost.rank}.txt"))
        return Failure(kind, f"{lost.role} {lost.rank} on {host}: {lost.how}", log or lines)
    told = stream.failure
    if ended.engine and ended.code in REFUSED and not stream.start:
        error = engine_.explained(ended.engine, "the image", printed(folder))
        return Failure(error.kind, str(error), lines)
    if ended.signal and stream.failed is None:
        return outside(ended, lines)
    if ended.code != 0 and stream.ranks and not any(one.failed for one in stream.ranks):
        return Failure("launcher", _launcher_said(ended, stream, folder, launcher), lines)
    if told is None and ended.code != 0:
        return Failure("crash", f"it ended with exit code {ended.code} after its last event{last_words(lines)}", lines)
    if told and not (stream.failed or stream.bad_line or told.lines):  # it says no more than that there was no word
        told = dataclasses.replace(told, message=told.message + last_words(lines))
    return dataclasses.replace(told, lines=told.lines or lines) if told else None


#: how ranks end because of another
FOLLOWING = re.compile("abrt|abort|^terminated$", re.IGNORECASE)


def last_words(lines: Sequence[str]) -> str:
    """ ": ModuleNotFoundError: No module named 'numpy'", the last line that was printed; empty if there is none."""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {said if len(said) <= WORDS else said[:WORDS] + '…'}" if said else ""


#: of a last line, in a message: characters
WORDS = 300


def outside(ended: Exit, lines: tuple[str, ...], where: str = "") -> Failure | None:
    """What the end of the process alone tells: that it took too long, or by which signal it ended."""
    if ended.timed_out:
        message = f"timed out after {ended.timeout:g} s (--timeout); all its processes were killed"
        return Failure("timeout", message + (f"; {where}" if where else ""), lines)
    if ended.signal:
        name = signal.Signals(ended.signal).name
        if ended.machine_ran_out_of_memory:
            return Failure("out_of_memory", f"killed by the system, which was out of memory ({name})", lines)
        if ended.signal == signal.SIGILL:
            why = "it used an instruction that this CPU lacks: its packages were built for newer ones"
            return Failure("unsupported", f"{why} (signal {ended.signal}, {name})", lines)
        return Failure("killed", f"killed by signal {ended.signal} ({name})", lines)
    return None


def _where(stream: Stream) -> str:
    """How far each rank had come, where that differs or a rank is missing: "rank 1 on node2 had not started"."""
    stages = [one.stage for one in stream.ranks]
    behind = min(stages, key=STAGES.index) if stages else ""
    late = [number for number, stage in enumerate(stages) if stage == behind]
    return f"{', '.join(map(stream.name, late[:8]))} {behind}" if stages else ""


#: of events.Stream.stage, the earliest first
STAGES = (
    "had not started",
    "was being built, or waited for other ranks",
    "was warming up",
    "was training",
    "had ended",
)


def _launcher_said(ended: Exit, stream: Stream, folder: Path, launcher: Launcher | None) -> str:
    """No rank has said why: what the engine says, or else its last words, and which ranks it had not started."""
    text = printed(folder)
    found = launcher.cause.search(text) if launcher else None
    lines = [line.strip() for line in text.splitlines() if line.strip(" -*=")]
    said = found.group().strip() if found else lines[-1] if lines else "it printed nothing"
    return f"the launcher ended with exit code {ended.code}: {said}; {_where(stream)}"


def printed(folder: Path) -> str:
    """What the launcher and, where they are not apart, the ranks printed last."""
    return "\n".join(_end(folder / name) for name in ("stdout.log", "stderr.log"))


def last_lines(folder: Path) -> tuple[str, ...]:
    """The end of what was printed: standard error, or standard output where that is empty."""
    return _last(_end(folder / "stderr.log")) or _last(_end(folder / "stdout.log"))


#: of a log, bytes at its end that are read, and lines that a failure shows
END, LINES = 2**20, 15


def _end(path: Path) -> str:
    """The end of a log, from the start of a line on if that is there; a log may be larger than the memory."""
    with suppress(OSError), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        found = file.read(END)
        if size > END:
            found = found.partition(b"\n")[2] or found
        return found.decode("utf-8", "replace")
    return ""


def _last(text: str) -> tuple[str, ...]:
    return tuple(map(shortened, text.splitlines()[-LINES:]))
