"""What of the certificates in results.json the runs of proofs give again, as far as these are in the archive: those of
an earlier comparison came from the cache. Samples of tensors are not packed, so how far they were off is not held to
them; a verdict is held to the figures that it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dlperf.archive.derived import Files, differs, folders, is_of, read
from dlperf.errors import clean, shortened
from dlperf.proof import consistent
from dlperf.proof.asked import Asked, needed, trajectories
from dlperf.proof.certify import mean_losses
from dlperf.report.public import cleaned
from dlperf.schema import Comparison, Job, Record, Trajectory

#: of a trajectory, what its events tell in `trajectory`
TRACED = ("gradient_norms", "step_seconds", "read_seconds", "effective")
#: runs of a row's program that look at it more closely, see dlperf.comparison.work
REVEALED, PLACED = "from-revealing-weights", "that-drops-nearly-all"
Runs = Mapping[str, Files]


def proofs(files: Files, comparison: Comparison) -> Iterator[str]:
    """A sentence for each thing in results.json that is not as the runs of proofs have it."""
    made = {folder.removeprefix("proofs/"): mine for folder, mine in folders(files, "proofs/").items()}
    known = _names(comparison)
    for folder, mine in sorted(made.items()):
        name, _, last = folder.partition("/")
        if last != "run" or not (name in known or name.endswith("-reference")):
            yield f"proofs/{folder} is of no row of results.json."
        yield from (f"proofs/{folder}: {one} is no file of a run." for one in sorted(mine) if not is_of(one))
    for job in comparison.jobs:
        yield from (f"{job.id}: {why}" for why in _certificates(made, job, comparison))
    for record in comparison.records:
        yield from (f"{record.folder}: {why}" for why in _looked_at(made, record))


def _names(comparison: Comparison) -> set[str]:
    """Those that runs of proofs may have."""
    asked = {one.name for job in comparison.jobs for full in (False, True) for one in needed(job, full_size=full)}
    asked |= {_name(job, one.trajectory) for job in comparison.jobs for one in comparison.proofs.get(job.id, ())}
    return asked | {f"{job.id}-{how}" for job in comparison.jobs for how in (REVEALED, PLACED)}


def _name(job: Job, trajectory: Trajectory) -> str:
    """Of a row that is made once more the certificates are the first one's."""
    of = replace(job, system=trajectory.system)
    return Asked(of, trajectory.model, trajectory.precision, trajectory.ranks).name


def _certificates(made: Runs, job: Job, comparison: Comparison) -> Iterator[str]:
    certificates = comparison.proofs.get(job.id, ())
    have = {_name(job, one.trajectory) for one in certificates}
    if job.traits.worker and any(record.done for record in comparison.runs.get(job.id, ())):
        for one in trajectories(job):
            if one.name not in have and _stream(made, one.name, one.ranks).trajectory:
                yield f"results.json has no certificate of proofs/{one.name}."
    for certificate in certificates:
        held = certificate.trajectory
        told = [*_trajectory(made, _name(job, held), held), *_machine(held, comparison)]
        told += [f"{why}." for why in consistent.contradictions(certificate)]
        yield from (f"its certificate in {held.precision}: {why}" for why in told)


def _stream(made: Runs, name: str, ranks: int = 1) -> Any:
    return cleaned(read(made.get(f"{name}/run", {}), ranks))


def _trajectory(made: Runs, name: str, held: Trajectory) -> Iterator[str]:
    """Where a trajectory is not what its run tells."""
    if held.failure or f"{name}/run" not in made:
        return
    stream = _stream(made, name, held.ranks)
    told = stream.trajectory
    if told is None or stream.failure:
        yield f"it has figures, but by its events proofs/{name} failed."
        return
    again = {name: told[name] for name in TRACED} | {"losses": mean_losses(stream)}
    again |= {"versions": stream.start.get("versions", {})}
    again |= {"peak_memory_bytes": (stream.end or {}).get("peak_memory_bytes")}
    for what, value in again.items():
        yield from differs(what, getattr(held, what), tuple(value) if isinstance(value, list) else value)
    if clean(made[f"{name}/run"].get("launch.sh", b"").decode("utf-8", "replace")) != held.command:
        yield f"its command is not launch.sh of proofs/{name}."


def _machine(held: Trajectory, comparison: Comparison) -> Iterator[str]:
    """Where it was made on another CPU or GPU than results.json names."""
    machine, emulated = comparison.machine, comparison.spec.get("emulate_cpu")
    cpu, cards = held.cpu.rpartition(": ")[0], [str(card.get("name")) for card in machine.get("gpus") or ()]
    named = str(machine.get("cpu"))
    if cpu and not emulated and cpu != named:
        yield f"it was made on {shortened(cpu)}, and the machine of results.json is {shortened(named)}."
    if held.gpu and cards and not any(name in held.gpu for name in cards):
        yield f"it was made on {shortened(held.gpu)}, and the machine of results.json has {shortened(cards[0])}."


def _looked_at(made: Runs, record: Record) -> Iterator[str]:
    """Where a record says more of what looked at its run than was run."""
    if "revealed" in record.work:
        revealed = _stream(made, f"{record.job.id}-{REVEALED}")
        if revealed.failure or revealed.warm.get("steps") != record.work["revealed"]:
            yield f"results.json has it looked at {REVEALED.replace('-', ' ')}, and no run in proofs/ did."
    if record.work.get("placed") and _stream(made, f"{record.job.id}-{PLACED}").failure:
        yield "results.json has the places of its dropout looked at, and no run in proofs/ did."
