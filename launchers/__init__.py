"""Places ranks on machines: one module per engine, found by name.

Another engine joins by an entry point of the group "dlperf.launchers", whose object is a `Launcher`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from dlperf.launchers.api import Launch, Launcher
from dlperf.launchers.jobs import Jobs

__all__ = ["BUILT_IN", "Jobs", "Launch", "Launcher", "find", "inside", "names", "with_jobs"]

BUILT_IN = ("local", "torchrun", "mpi", "horovod", "slurm", "kubernetes", "emulated")
GROUP = "dlperf.launchers"


def names(nnodes: int = 1) -> tuple[str, ...]:
    """All launchers that reach so many nodes."""
    known = (*BUILT_IN, *sorted({entry.name for entry in entry_points(group=GROUP)} - set(BUILT_IN)))
    return tuple(name for name in known if nnodes == 1 or find(name).many_nodes)


def find(name: str) -> Launcher:
    """The launcher of this name, which is one of `names()`."""
    if name in BUILT_IN:
        found = import_module(f"dlperf.launchers.{name}").LAUNCHER
    else:
        (entry,) = entry_points(group=GROUP, name=name)
        found = entry.load()
    assert isinstance(found, Launcher)
    return found


def with_jobs() -> tuple[Jobs, ...]:
    """All engines that have jobs."""
    return tuple(found for found in map(find, names()) if isinstance(found, Jobs))


def inside() -> bool:
    """Whether this process is in a job of one of them."""
    return any(engine.inside() for engine in with_jobs())
