"""Where the wall time of a run went, from what its first rank wrote and when. Pure."""

from __future__ import annotations

import math

from dlperf.runs.events import Stream

#: in their order; together they are all of a run
STAGES = (
    *("processes", "import", "meeting", "build", "first_step", "warm_up"),
    *("windows", "input", "skew", "checks"),
)


def stages(stream: Stream, seconds: float) -> dict[str, float]:
    """Seconds of each stage of a run that took so many; nothing of one that did not come to its end, or whose log is
    not ours.

    processes: launcher, container, interpreter, and ending them. meeting: waiting for other ranks, before and after
    the framework's import. first_step: the one that compiles; it is not in warm_up. windows: less input, the wait for
    batches, and skew, in which the slowest rank was not done. checks: what else the worker did, such as reading losses,
    samples of the tensors, probes of kernels, loader and network.
    """
    first = (stream.ranks or (stream,))[0]
    at = first.times
    if stream.end is None or not {"start", "imported", "built", "warm", "end"} <= at.keys():
        return {}
    met, agreed = at.get("met", at["start"]), at.get("agreed", at["imported"])
    first_step = float(first.warm["first_step_seconds"])
    found = {
        "processes": max(seconds - (at["end"] - at["start"]), 0.0),
        "import": at["imported"] - met,
        "meeting": met - at["start"] + agreed - at["imported"],
        "build": at["built"] - agreed,
        "first_step": first_step,
        "warm_up": float(first.warm["seconds"]) - first_step,
        "input": math.fsum(window.input_seconds or 0.0 for window in stream.windows),
        "skew": math.fsum(window.skew_seconds for window in stream.windows),
    }
    found["windows"] = math.fsum(window.seconds for window in stream.windows) - found["input"] - found["skew"]
    found["checks"] = seconds - math.fsum(found.values())
    return {name: max(found[name], 0.0) for name in STAGES}
