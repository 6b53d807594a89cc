"""A comparison that an engine's jobs hold: submitted from one machine, run on others, followed from here or later.

allocation/*.sh, *.yaml    what is submitted: the script, or the object, of each job
allocation/submitted.jsonl one line for each job that was submitted
allocation/jobs.jsonl      what jobs write: when each began and ended, and its code
allocation/<id>.log        what its comparison prints
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf import launchers, parcel
from dlperf.errors import Problem, RunError, UsageError, decimal, either
from dlperf.flags import FLAGS
from dlperf.launchers import Jobs, slurm
from dlperf.launchers.jobs import PLACE, TOLD, Batch, State
from dlperf.shell import quote
from dlperf.words import count, duration

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter
    from dlperf.planning.plan import Plan
    from dlperf.planning.spec import Spec
    from dlperf.schema import Job, Record

SUBMITTED = "submitted.jsonl"
#: seconds between two questions to the engine, from the first on: an answer that is as before makes them rarer
ASKED = (1.0, 60.0)
#: answers in which a job that has not said that it ended is missing, before it is taken for gone
GONE = 3
#: seconds of a run on a GPU besides its steps, and of a proof: import, compiling, fetching of files
ON_A_GPU = 90.0


def wanted(spec: Spec) -> bool:
    """Whether its rows are for jobs that hold several, and this process is in none."""
    return spec.allocation not in ("", "run") and launchers.find(spec.launcher).elsewhere(max(spec.nnodes), spec.hosts)


def engine_of(spec: Spec) -> Jobs:
    """What has the jobs of a request that is `wanted`."""
    found = launchers.find(spec.launcher)
    assert isinstance(found, Jobs)
    return found


def engine(folder: Path) -> Jobs:
    """What has the jobs of a comparison that was submitted, by what was written for it; UsageError where that is
    gone."""
    suffixes = {path.suffix for path in (folder / PLACE).iterdir()}
    for one in launchers.with_jobs():
        if one.suffix in suffixes:
            return one
    raise UsageError([Problem(str(folder / PLACE), "", says="what was submitted is gone. Start a new comparison.")])


def batches(
    spec: Spec, plan: Plan, folder: Path, arguments: Mapping[str, object], adapters: Mapping[str, Adapter]
) -> dict[str, Batch]:
    """The jobs that hold the rows, by the names of their scripts. UsageError where --max-node-hours is too few."""
    from dlperf.planning.plan import size

    suffix = engine_of(spec).suffix
    groups: dict[str, Sequence[Job]] = {f"job{suffix}": plan.jobs}
    if spec.allocation == "row":
        groups = {f"{number:03}-{job.id}{suffix}": [job] for number, job in enumerate(sorted(plan.jobs, key=size), 1)}
    there = engine_of(spec).there(folder, spec.launcher_arguments)
    given = arguments.get("max_node_hours")
    node_hours = decimal(str(given)) if given else math.inf
    if not node_hours or node_hours < 0:
        raise UsageError([Problem("--max-node-hours", given, "a number of hours times nodes, more than 0")])
    return {
        name: _batch(spec, plan, jobs, there, arguments, adapters, node_hours / len(groups))
        for name, jobs in groups.items()
    }


def _batch(
    spec: Spec,
    plan: Plan,
    jobs: Sequence[Job],
    folder: Path,
    arguments: Mapping[str, object],
    adapters: Mapping[str, Adapter],
    node_hours: float,
) -> Batch:
    nnodes = max(job.nnodes for job in jobs)
    given = engine_of(spec).limit(spec.launcher_arguments)
    limit = min(given or minutes(seconds(spec, jobs, adapters)), 60 * node_hours // nnodes)
    if limit < 1:
        each = f"a job of {count(nnodes, 'node')} may take {node_hours:.3g} node-hours of it"
        says = f"{each}, less than a minute. Allow more."
        raise UsageError([Problem("--max-node-hours", arguments["max_node_hours"], says=says)])
    alone = [] if len(jobs) == len(plan.jobs) else ["--only", ",".join(job.id for job in jobs)]
    kept = [f"--{name}" for name in ("strict", "quiet") if arguments[name]]
    again = ["--resume", str(folder), *alone, *kept]
    return Batch(
        name=f"dlperf-{folder.name}",
        nnodes=nnodes,
        nproc_per_node=max(job.nproc_per_node + job.servers // job.nnodes for job in jobs),
        device=spec.device,
        minutes=int(limit),
        folder=folder,
        words=[*words(spec, arguments), "--output", str(folder), *alone, *kept],
        again=again,
        python=spec.launcher_arguments.get("python", engine_of(spec).python),
        hosts=spec.hosts,
        arguments=spec.launcher_arguments,
    )


def words(spec: Spec, arguments: Mapping[str, object]) -> list[str]:
    """Of the command line that asks for the same on a node, which decides there what was not given."""
    asked: dict[str, object] = {flag.key: arguments[flag.key] for flag in FLAGS if flag.compare and flag.asks}
    asked |= {"launcher": spec.launcher, "allocation": spec.allocation}
    if not engine_of(spec).shares:  # a site's file is not there
        asked["launcher_arg"] = [f"{key}={value}" for key, value in spec.launcher_arguments.items()]
    if spec.allocation == "row":  # the names of the rows depend on it
        asked["device"] = spec.device
    found: list[str] = []
    for flag in FLAGS:
        value = asked.get(flag.key)
        if value is True:
            found.append(flag.flag)
        elif value:
            found += [
                part for text in (value if isinstance(value, list) else [value]) for part in (flag.flag, str(text))
            ]
    return found


def seconds(spec: Spec, jobs: Sequence[Job], adapters: Mapping[str, Adapter]) -> float:
    """About how long these rows take, without making environments; of a GPU what the protocol asks for at least."""
    from dlperf.comparison import estimate

    expected = estimate.expected(spec, [job for job in jobs for _ in range(job.runs(spec.protocol.repeats))], adapters)
    if expected.seconds is not None:
        return expected.seconds
    protocol = spec.protocol
    each = ON_A_GPU + protocol.warmup_seconds + protocol.windows * protocol.window_seconds
    return min(each, spec.timeout) * expected.runs + ON_A_GPU * expected.proofs


def minutes(seconds: float) -> int:
    """A limit that leaves room: twice what is expected, in half hours."""
    return 30 * max(1, math.ceil(2 * seconds / 1800))


def node_hours(asked: Iterable[Batch]) -> float:
    """That jobs may take at most."""
    return sum(one.nnodes * one.minutes / 60 for one in asked)


def text(spec: Spec, asked: Mapping[str, Batch], arguments: Mapping[str, Any], folder: Path, working: Path) -> str:
    """For --dry-run: what is submitted, what this site's file said of it, and what was assumed of the nodes."""
    lines = [f"# from dlperf.toml: {' '.join(f'{k}={v!r}' for k, v in _of_site(spec, arguments).items())}"]
    lines = lines if _of_site(spec, arguments) else []
    for name, one in asked.items():
        lines += ["", f"# {folder / PLACE / name}", engine_of(spec).batch(one, working).rstrip()]
    jobs = "one job" if len(asked) == 1 else f"{len(asked)} jobs, one after the other"
    nodes = max(one.nnodes for one in asked.values())
    most = f"at most {node_hours(asked.values()):.3g} node-hours"
    head = f"# {engine_of(spec).title}: {jobs} of up to {count(nodes, 'node')}, {most}."
    return "\n".join([head, *lines])


def assumed(spec: Spec, arguments: Mapping[str, Any]) -> str:
    """For --dry-run, which asks nobody: what of other machines was assumed; empty where these run nothing."""
    far = launchers.find(spec.launcher).elsewhere(max(spec.nnodes), spec.hosts)
    found = [f"device {spec.device}"] * (arguments["device"] in (None, "auto"))
    found += [f"{spec.threads} CPU threads for each rank"] * (not arguments["threads"])
    return f"# assumed, and asked of the nodes when it runs: {', '.join(found)}" if far and found else ""


def _of_site(spec: Spec, arguments: Mapping[str, Any]) -> dict[str, str]:
    return dict((arguments.get("site") or {}).get(spec.launcher, {}))


def write(spec: Spec, asked: Mapping[str, Batch], folder: Path, working: Path) -> None:
    """What is submitted, in the folder of a new comparison."""
    place = folder / PLACE
    place.mkdir()
    for name, one in asked.items():
        (place / name).write_text(engine_of(spec).batch(one, working), encoding="utf-8")


def in_held(folder: Path, more: Sequence[str] = ()) -> int:
    """Run the jobs' scripts in the allocation that this process has. more: words for its command. The exit code."""
    scripts = sorted((folder / PLACE).glob("*.sh"))
    return max(subprocess.run([*slurm.HERE, "sh", script, *more], check=False).returncode for script in scripts)


def submit(folder: Path, more: Sequence[str] = ()) -> list[str]:
    """Submit a comparison's jobs, each after the one before. more: words for its command. Their ids."""
    place, ids, of = folder / PLACE, list[str](), engine(folder)
    for name in sorted(path.name for path in place.glob(f"*{of.suffix}")):
        ids.append(of.submit(place / name, ids[-1] if ids else "", more))
        with open(place / SUBMITTED, "a", encoding="utf-8") as file:
            file.write(json.dumps({"job": ids[-1], "script": name, "first": ids[0], "at": int(time.time())}) + "\n")
    return ids


def named(folder: Path, ids: Sequence[str]) -> str:
    """ "Slurm job 7, 8"."""
    return f"{engine(folder).title} job {', '.join(ids)}"


def last(folder: Path) -> list[str]:
    """The jobs that were submitted together, last."""
    found = [*_lines(folder / PLACE / SUBMITTED)]
    return [one["job"] for one in found if one["first"] == found[-1]["first"]]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Each whole line: one that is being written, or that NFS shows as zeros, is passed over."""
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                yield json.loads(line)


@dataclass
class Follower:
    """What is told of jobs while somebody looks."""

    folder: Path
    jobs: Sequence[str]
    tell: Callable[[str], None]
    _shown: dict[str, int] = field(default_factory=dict)
    _states: dict[str, State] = field(default_factory=dict)
    _missed: dict[str, int] = field(default_factory=dict)
    _logs: dict[str, str] = field(default_factory=dict)
    _results: str = ""

    def __post_init__(self) -> None:
        self.engine = engine(self.folder)

    def follow(self) -> dict[str, State]:
        """Until all jobs have ended: how each did."""
        wait, asked, noted = ASKED[0], 0.0, 0
        while True:
            self._show()
            lines = len([*_lines(self.folder / PLACE / TOLD)])
            if lines != noted or time.monotonic() - asked >= wait:
                changed = self._ask() or lines != noted
                asked, noted = time.monotonic(), lines
                wait = ASKED[0] if changed else min(2 * wait, ASKED[1])
                ended = {job: state for job, state in self._states.items() if state.over}
                if len(ended) == len(self.jobs):
                    self._show()
                    self._bring()
                    return ended
            time.sleep(0.5)

    def _show(self) -> None:
        """What the jobs have printed since."""
        for name in (*self.jobs, *self._logs):
            with suppress(OSError), open(self.folder / PLACE / f"{name}.log", "rb") as file:
                file.seek(self._shown.get(name, 0))
                new = file.read()
                whole = new[: new.rfind(b"\n") + 1]
                self._shown[name] = file.tell() - len(new) + len(whole)
                if whole:
                    self.tell(whole.decode("utf-8", "replace").rstrip("\n"))

    def _bring(self) -> None:
        """What came of it, where it is in no folder that this machine sees."""
        if self.engine.shares:
            return
        wanting = parcel.unpack(self._results, self.folder)
        if wanting:
            self.tell(f"{wanting}. They are in {there(self.folder)}.")
        if (self.folder / "report.md").exists():
            self.tell(f"Here: {self.folder / 'report.md'} and {self.folder / 'report.html'}")

    def _fetch(self) -> bool:
        """What the engine has to be asked for. Whether there is more of it."""
        before = dict(self._logs)
        for job in self.jobs:
            for name, text in self.engine.printed(job).items():
                self._logs[name], self._results = parcel.split(text)
                (self.folder / PLACE / f"{name}.log").write_text(self._logs[name], encoding="utf-8")
        return before != self._logs

    def _ask(self) -> bool:
        """Ask for all jobs in one call. Whether something changed."""
        before = dict(self._states)
        told = dict[str, int]()
        for one in _lines(self.folder / PLACE / TOLD):  # a job that was requeued began again
            told.pop(one["job"], None)
            told |= {one["job"]: one["code"]} if one["event"] == "ended" else {}
        found = self.engine.states(self.jobs)
        for job in self.jobs:
            if found is None or (job not in found and job not in told):
                self._missed[job] = self._missed.get(job, 0) + (found is not None)
                if self._missed[job] < GONE:
                    continue
            state = (found or {}).get(job) or State("COMPLETED" if job in told else "UNKNOWN", "")
            state = self._states[job] = state._replace(code=told.get(job, state.code))
            was = before.get(job, State("", ""))
            again = state.name == "RUNNING" and state.reason not in ("", "None", was.reason)  # with another pod
            if (state.name not in (was.name, "COMPLETING") or again) and not (state.over and state.code == 0):
                self.tell(f"{self.engine.title} job {job} {state.words(self.engine.title)}")
            if state.never:
                self.engine.cancel(self.jobs)
                says = f"{self.engine.title} job {job} would wait for ever ({state.reason}), and was cancelled"
                raise RunError("launcher", says)
        return self._fetch() or before != self._states


def there(folder: Path) -> str:
    """Where a comparison's folder is, by what was submitted: "the folder /dlperf/out-ab12cd of the volume"."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((folder / PLACE).glob("*.yaml")))
    found = re.search(r"python\S* -m dlperf.parcel (.*)", text)
    return f"the folder {found[1] if found else 'of it'} of the volume"


def used(folder: Path, records: Iterable[Record]) -> str:
    """How long a comparison's jobs ran, and in what share of it steps were measured; empty where one did not say when
    it ended."""
    began, seconds = dict[str, int](), 0
    for one in _lines(folder / PLACE / TOLD):
        if one["event"] == "began" and one["job"] not in began:
            began[one["job"]] = one["at"]
        elif one["event"] == "ended":
            seconds += one["at"] - began.pop(one["job"], one["at"])
    if began or not seconds:
        return ""
    measured = math.fsum(window.seconds for record in records for window in record.windows)
    return f"Its jobs ran for {duration(seconds)}, {100 * measured / seconds:.0f} % of it in measured steps."


def leave(folder: Path) -> str:
    """How to come back to a comparison whose jobs go on."""
    return f"Its jobs go on. Come back with: python -m dlperf.compare --attach {quote(folder)}"


def check(folder: Path, flag: str) -> None:
    """UsageError if a folder is not that of a comparison which was submitted."""
    if not os.path.isfile(folder / PLACE / SUBMITTED):
        names = either([one.name for one in launchers.with_jobs()])
        says = f"no job was submitted for it. Name the folder of a comparison of --launcher {names}."
        raise UsageError([Problem(flag, folder, says=says)])
    check_programs(folder, flag)


def check_programs(folder: Path, flag: str) -> None:
    """UsageError if programs of the engine that has its jobs are not here."""
    missing = engine(folder).missing()
    if missing:
        raise UsageError([Problem(flag, folder, says=f"{missing}.")])


def code(ended: Mapping[str, State]) -> int:
    """The exit code that they come to: the largest, and 1 for a job that ended without one."""
    return max((1 if state.code is None else state.code for state in ended.values()), default=1)
