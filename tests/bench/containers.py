"""What a container costs: each framework in its environment and in its image, interleaved: `make bench-containers`.

Both run the same script of the same lock on the same processors, in fresh processes in random order. On a busy machine
this measures something else: all processes of a container together get the share of one outside of it. Before: a Docker
engine, and `python -m dlperf.images build`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from dlperf import launchers, models
from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import runner
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import RunError, UsageError, handle_signals
from dlperf.figures import statistics
from dlperf.flags import DEFAULTS
from dlperf.planning import plan
from dlperf.planning.checks import from_arguments
from dlperf.planning.spec import Spec
from dlperf.runs import bundle
from dlperf.runs.execute import execute
from dlperf.schema import Job
from dlperf.systems.native import Native

WINDOWS = 4


def main(argv: Sequence[str] | None = None) -> int:
    """0, however the ratios are; 1 if nothing ran; 2 for a wrong request."""
    made = argparse.ArgumentParser(
        prog="make bench-containers", description=__doc__.splitlines()[0] if __doc__ else None
    )
    made.add_argument("--frameworks", metavar="F,...", default="pytorch", help="default: pytorch")
    made.add_argument("--model", metavar="M", default="resnet50", help="default: resnet50")
    made.add_argument("--batch-size", metavar="N", default="8", help="default: 8")
    made.add_argument("--repeats", metavar="N", default="5", help="fresh processes on each side; default: 5")
    made.add_argument("--env", metavar="E", default="docker", help="docker (default), podman or apptainer")
    made.add_argument("--image", metavar="I,...", help="as in python -m dlperf.compare")
    arguments = vars(made.parse_args(argv))
    handle_signals()
    try:
        return _bench(arguments)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _bench(arguments: Mapping[str, object]) -> int:
    adapters = reader.adapters()
    asked = {
        **DEFAULTS,
        "device": "cpu",
        "windows": WINDOWS,
        "dry_run": False,
        "tuned": "off",
        "no_verify": True,
        **arguments,
    }
    spec = from_arguments(asked, adapters)
    measured = 0
    for job in plan.from_spec(spec, adapters).jobs:
        try:
            sides = _measure(spec, job, adapters[job.adapter])
        except RunError as error:
            print(f"{job.system}: {error}")
            continue
        print(text(job, *sides), flush=True)
        measured += all(sides)
    return 0 if measured else 1


#: samples per second, and per second of processor time
Rates = tuple[float, float]


def _measure(spec: Spec, job: Job, adapter: Adapter) -> tuple[list[Rates], list[Rates]]:
    """In the image and in the environment."""
    inside = kinds.ensure(adapter, job.environment, spec.env, print, spec.images)
    outside = kinds.ensure(adapter, job.environment, "venv", print)
    rates: tuple[list[Rates], list[Rates]] = [], []
    with tempfile.TemporaryDirectory() as folder:
        bundle.copy_code(Path(folder, "code"), [adapter])
        for repeat in range(spec.protocol.repeats):
            for side in random.sample([0, 1], 2):
                name = f"{job.id}-{side}"
                at = runner.run_folder(replace(job, id=name), repeat)
                rates[side].append(_run(spec, job, adapter, repeat, (inside, outside)[side], Path(folder, at)))
    return rates


def _run(spec: Spec, job: Job, adapter: Adapter, repeat: int, environment: Environment, folder: Path) -> Rates:
    native = Native()
    script = native.script(adapter, job, spec, repeat, environment)
    outcome = execute(
        folder,
        native.request(adapter, job, spec),
        script,
        lambda: native.read(adapter, job, spec, repeat, environment, folder),
        native.failure,
        spec.timeout,
        lambda: None,
        launchers.find(job.launcher),
        environment.engine,
    )
    stream, failure = outcome.stream, outcome.failure
    if failure:
        raise RunError(failure.kind, f"in {environment.kind}: {failure.message}", failure.lines)
    samples = sum(one.samples for one in stream.windows)
    times = sum(one.seconds for one in stream.windows), sum(one.cpu_seconds for one in stream.windows)
    return samples / times[0], samples / times[1]


def text(job: Job, inside: Sequence[Rates], outside: Sequence[Rates]) -> str:
    """For each kind of rate both medians, and their ratio with its 95 % interval. Pure."""
    unit = models.FAMILIES[job.family].RATE_UNIT
    lines = [f"{job.system} {job.model} {job.precision}, n={len(inside)}"]
    for number, kind in enumerate((unit, f"{unit.removesuffix('/s')} per second of processor time")):
        mine, others = ([rates[number] for rates in side] for side in (inside, outside))
        ratio = statistics.ratio(dict(enumerate(mine)), dict(enumerate(others)))
        interval = "" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
        lines.append(f"  in {median(mine):.4g}, out {median(others):.4g} {kind}; in / out {ratio.centre:.3f}{interval}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
