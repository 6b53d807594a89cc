"""Where the time of a step goes: a profile of each system of a comparison, from the jobs that it ran.

    profile.py COMPARISON FOLDER

Writes FOLDER/<job>.txt, the kernels with the most time in five steps, and prints the first lines of each.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WARM_STEPS, STEPS, KERNELS = 10, 5, 40


def main(comparison: Path, folder: Path) -> int:
    """1 if one could not be profiled. Each in a process of its own, as when it was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = []
    for path in sorted(comparison.glob("runs/*/0/job.json")):
        if not path.parent.parent.name.count("_plain"):
            to = folder / f"{path.parent.parent.name}.txt"
            codes.append(subprocess.call([sys.executable, "-P", __file__, str(path), str(to), "alone"]))
    return max(codes, default=1)


def alone(job_json: Path, to: Path) -> int:
    from dlperf import models
    from dlperf.adapters.api import Job
    from dlperf.adapters.ranks import Ranks

    request = json.loads(job_json.read_text())
    job = Job(**request["job"])
    module: Any = importlib.import_module(f"dlperf.adapters.{request['adapter']}.{models.FAMILY_OF[job.model]}")
    trainer = module.build(job, Ranks())
    for _ in range(WARM_STEPS):
        trainer.step()
    trainer.wait()

    def steps() -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            trainer.step()
        trainer.wait()
        return (time.perf_counter() - began) / STEPS

    plain = steps()
    seconds, counts = PROFILERS[request["adapter"]](steps, job.device)
    text = table(job_json.parent.parent.name, plain, seconds, counts)
    to.write_text(text)
    print("\n".join(text.splitlines()[:12]), flush=True)
    return 0


def table(name: str, step: float, seconds: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """Kernels by time, per step; and the share of the step in which none ran, if they do not overlap."""
    busy = sum(seconds.values()) / STEPS
    lines = [
        f"{name}: {1e3 * step:.3f} ms a step without the profiler; kernels {1e3 * busy:.3f} ms, "
        f"{sum(counts.values()) / STEPS:.0f} of them",
        "  ms/step   share   calls  kernel",
    ]
    for kernel, took in sorted(seconds.items(), key=lambda pair: -pair[1])[:KERNELS]:
        per_step = took / STEPS
        lines.append(f"{1e3 * per_step:9.3f} {per_step / busy:7.1%} {counts[kernel] / STEPS:7.1f}  {kernel[:150]}")
    return "\n".join(lines) + "\n"


def of_torch(steps: Callable[[], float], device: str) -> tuple[dict[str, float], dict[str, int]]:
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CUDA] if device == "cuda" else [ProfilerActivity.CPU]
    with profile(activities=kinds) as taken:
        steps()
    field = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    found = [one for one in taken.key_averages() if getattr(one, field) > 0]
    return {one.key: getattr(one, field) / 1e6 for one in found}, {one.key: one.count for one in found}


def of_jax(steps: Callable[[], float], device: str) -> tuple[dict[str, float], dict[str, int]]:
    import tempfile

    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            steps()
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
        seconds: dict[str, float] = {}
        counts: Counter[str] = Counter()
        for plane in planes:
            if ("/device:GPU" in plane.name) if device == "cuda" else ("/host:CPU" in plane.name):
                for line in plane.lines:
                    if device == "cuda" and not line.name.startswith("Stream"):
                        continue  # the others say the same again, by module and operation
                    for event in line.events:
                        seconds[event.name] = seconds.get(event.name, 0.0) + event.duration_ns / 1e9
                        counts[event.name] += 1
    return seconds, dict(counts)


PROFILERS = {"pytorch": of_torch, "jax": of_jax}

if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(alone(Path(sys.argv[1]), Path(sys.argv[2])))
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
