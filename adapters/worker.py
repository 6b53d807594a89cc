"""Runs one job in the environment of one framework: `python -m dlperf.adapters.worker JOB.json EVENTS_DIR`.

JOB.json holds {"adapter": "pytorch", "job": {...}}, see dlperf.adapters.api.Job. The worker owns the loop and the
clock, so that the same lines time every framework, and writes one JSON object per line to events.rank<N>.jsonl:

    start    rank, world_size, pid, versions, machine
    built    seconds (import and build), parameter_count
    warm     steps, seconds, first_step_seconds, loss, effective, shapes
    window   index, steps, samples, seconds, cpu_seconds, loss
    trajectory   in place of the two above, for checking: see dlperf.adapters.trace
    end      peak_memory_bytes, peak_device_memory_bytes, cpu_seconds, seconds
    failed   kind (crash | out_of_memory | nan | unsupported | wrong_tensor), message, traceback

A stream that does not close with `end` is a failed run.
"""

import contextlib
import ctypes
import importlib
import json
import math
import os
import signal
import sys
import time
import traceback

from dlperf import models
from dlperf.adapters import probe, ranks, trace
from dlperf.adapters.api import Job, Unsupported


class NotFinite(Exception):
    """The loss is NaN or infinite."""


class Events:
    """A file of JSON lines; each line has left this process before the next step runs."""

    def __init__(self, file):
        self._file = file

    def write(self, event, **fields):
        line = {"event": event, "time": time.time()}
        line.update(fields)
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def main(argv):
    job_path, events_dir = argv
    _die_with_parent()
    with open(job_path, encoding="utf-8") as file:
        request = json.load(file)
    place = ranks.from_environment()
    path = os.path.join(events_dir, f"events.rank{place.rank}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        return _run_and_tell(request["adapter"], Job(**request["job"]), place, Events(file), events_dir)


def _run_and_tell(adapter, job, place, events, folder):
    """The exit code. Whatever is raised becomes the last event."""
    try:
        run(adapter, job, place, events, folder)
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        events.write("failed", kind=_kind(error), message=message, traceback=traceback.format_exc())
        traceback.print_exc()
        return 1
    return 0


def run(adapter, job, place, events, folder):
    """Build, warm up, time the windows; or, for checking, write down a trajectory in `folder`."""
    began = time.perf_counter()
    module = importlib.import_module(f"dlperf.adapters.{adapter}.{models.FAMILY_OF[job.model]}")
    events.write(
        "start",
        rank=place.rank,
        world_size=place.world_size,
        pid=os.getpid(),
        versions=dict(module.versions()),
        machine=probe.machine(),
    )
    trainer = module.build(job, place)
    trainer.wait()
    events.write("built", seconds=time.perf_counter() - began, parameter_count=int(trainer.parameter_count))
    if job.trace_steps:
        trajectory = trace.record(trainer, job, place, folder)
        for step, loss in enumerate(trajectory["losses"]):
            _finite(loss, f"step {step}")
        events.write("trajectory", **trajectory)
    else:
        _warm_up(trainer, job, events)
        for index in range(job.windows):
            _window(trainer, job, place, index, events)
    device_memory = trainer.peak_memory()
    trainer.close()
    events.write(
        "end",
        peak_memory_bytes=probe.peak_memory_bytes(),
        peak_device_memory_bytes=device_memory,
        cpu_seconds=time.process_time(),
        seconds=time.perf_counter() - began,
    )


def _warm_up(trainer, job, events):
    """At least one step runs before the windows: the first one compiles."""
    began = time.perf_counter()
    loss = trainer.step()
    trainer.wait()
    first = time.perf_counter() - began
    for _ in range(job.warmup_steps - 1):
        loss = trainer.step()
    trainer.wait()
    events.write(
        "warm",
        steps=max(job.warmup_steps, 1),
        seconds=time.perf_counter() - began,
        first_step_seconds=first,
        loss=_finite(trainer.read(loss), "warm-up"),
        **trace.what_ran(trainer),
    )


def _window(trainer, job, place, index, events):
    """Steps are enqueued without a wait in between, since a wait at each step punishes asynchronous frameworks."""
    trainer.wait()
    cpu_began = time.process_time()
    began = time.perf_counter()
    for _ in range(job.steps_per_window):
        loss = trainer.step()
    trainer.wait()
    seconds = time.perf_counter() - began
    cpu_seconds = time.process_time() - cpu_began
    events.write(
        "window",
        index=index,
        steps=job.steps_per_window,
        samples=job.steps_per_window * job.batch_size * place.world_size,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        loss=_finite(trainer.read(loss), f"window {index}"),
    )


def _finite(loss, where):
    if not math.isfinite(loss):
        raise NotFinite(f"the loss is {loss} after {where}")
    return loss


_OUT_OF_MEMORY = (
    "out of memory",
    "resource_exhausted",
    "bad_alloc",
    "can't allocate memory",
    "cannot allocate memory",
)


def _kind(error):
    """The word for the report's table. Frameworks raise their own classes, so the text decides."""
    if isinstance(error, NotFinite):
        return "nan"
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, trace.WrongTensor):
        return "wrong_tensor"
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY):
        return "out_of_memory"
    return "crash"


def _die_with_parent():
    """Linux ends this process when the core is killed, so that no orphan disturbs later measurements."""
    PR_SET_PDEATHSIG = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
