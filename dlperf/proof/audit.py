"""Is a run that was measured still doing the same work after its last window?

The reference cannot be trained as far as most runs are: a step of it takes seconds. So each run makes two more steps
when its windows are over, and hands out all its tensors between them (`dlperf.adapters.trace.audit`); the reference
makes the second of them from there, twice, as `references.pair` has it. Of each row one run is looked at. It is drawn
when it is over, and all runs of a row are asked for the same.

What is held against the reference is the loss of that step and, of an optimizer with momentum, its update: the
reference starts without momentum, and a run's update less `momentum` times the one before is what it is without. Adam
divides by moments that the reference does not have: its update must be what Adam makes of the run's own moments, and
the gradient of which these tell must be the reference's, as far as dropout's masks let it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from dlperf.planning.spec import Protocol
from dlperf.precision import TABLE
from dlperf.proof import measured
from dlperf.proof.bars import BARS
from dlperf.proof.measured import FLOOR_LOSS, SLACK_OF_LOSSES, Marks, Reference
from dlperf.proof.references import References, adam_faults, is_adam, masks, pair, recipe, seconds, trained
from dlperf.proof.rounding import SLACK
from dlperf.proof.written import EVENTS
from dlperf.proof.written import states as states_of
from dlperf.runs import events
from dlperf.schema import Job
from dlperf.stored import DAMAGED
from dlperf.words import count

#: what a worker writes, see dlperf.adapters.trace
AUDIT, WEIGHTS = "audit.npz", "weights.npz"
#: of the reference: the audited step alone
STEP = Protocol("audit", warmup_steps=1, windows=0, steps_per_window=1, repeats=1)
#: seconds that the reference's two steps may take at least, and the share of a row's
SECONDS, SHARE = 20.0, 0.03
#: what masks of dropout do to a loss, as a share of it, where a model knows its batches by heart: in BERT-base after
#: 121 steps, at a loss of 0.018, with JAX
MASKED = 0.025


class Unaudited(Exception):
    """Why a run is not looked at."""


def verdict(references: References, job: Job, run: Path, row_seconds: float) -> dict[str, Any]:
    """Of one run, what Record.work has of its audit: "audited", after so many steps; or "unaudited", why not; or that
    it did otherwise. run: its folder. row_seconds: what all runs of its row take, roughly."""
    try:
        _in_time(references, job, row_seconds)
        stream = events.read(run / EVENTS)
        steps, ours = _told(stream, run, job)
        reference = _reference(references, job, run, steps)
    except Unaudited as why:
        return {"unaudited": str(why)}
    earlier = references.of(job)
    if reference.masks and isinstance(earlier, Reference):  # what masks do to a loss is known from all of them
        ours = replace(ours, losses={**stream.losses, **ours.losses})
        reference = _with_losses(reference, earlier)
    least = (BARS["fp32"].gradients or 0.0) / SLACK
    # the reference's two losses may be as good as equal by chance; what a loss is made of is rounded once in any case
    rounded = max(FLOOR_LOSS, TABLE[job.precision].roundoff / SLACK_OF_LOSSES)
    loss, momentum = MASKED if reference.masks else rounded, getattr(recipe(job), "momentum", None)
    found = measured.audited(ours, trained(job), reference, momentum, least, loss)
    # where moments are missing `adam_faults` says so, but of float16
    told = is_adam(job) and {1, 2} <= ours.moments.keys()
    gradient = measured.audited_gradient(ours, reference, recipe(job).beta1) if told else ()
    wrong = next(chain(adam_faults(job, ours, steps - 1), found, gradient), "")
    return {"verdict": "different", "why": f"after {count(steps, 'step')} {wrong}"} if wrong else {"audited": steps}


def takes(job: Job, threads: int) -> float:
    """Seconds of the reference's two steps."""
    return sum(seconds(asked, threads) for asked in pair(job, STEP))


def allowed(row_seconds: float) -> float:
    """Seconds that they may take."""
    return max(SECONDS, SHARE * row_seconds)


def _in_time(references: References, job: Job, row_seconds: float) -> None:
    took, most = takes(job, references.spec.threads), allowed(row_seconds)
    if took > most:
        raise Unaudited(f"a step of the reference takes {took:.0f} s on this CPU, and {most:.0f} s are left for it")


def _told(stream: events.Stream, run: Path, job: Job) -> tuple[int, Marks]:
    """After how many steps a run wrote its weights down, and what it did from there."""
    told = stream.audit
    if "steps" not in told:
        raise Unaudited(told.get("why") or "it wrote nothing down")
    try:
        states, moments = states_of(run / AUDIT, job)
    except (OSError, *DAMAGED) as error:
        raise Unaudited(f"what it wrote down of its tensors cannot be read: {error}") from None
    names = trained(job)
    still = any(all((states[n][name] == states[n + 1][name]).all() for name in names) for n in (0, 1))
    if still and job.precision == "amp_fp16":
        raise Unaudited("its loss scale had it skip a step")
    steps = int(told["steps"])
    return steps, Marks({steps + 1: float(told["loss"])}, states, (), moments)


def _reference(references: References, job: Job, run: Path, steps: int) -> Reference:
    """The reference's step from the weights that a run wrote down."""
    made = []
    for asked in pair(job, STEP):
        folder = references.folder / "proofs" / f"{job.id}-audit" / f"{asked.precision}-{asked.dropout_seed}"
        found = references.make(asked, folder, {"start": str((run / WEIGHTS).absolute()), "step": str(steps)})
        if isinstance(found, str):
            raise Unaudited(f"the reference did not run: {found}")
        made.append(replace(found, losses={steps + 1: found.losses[1]}))
    return Reference(made[0], made[1], masks(job))


def _with_losses(reference: Reference, earlier: Reference) -> Reference:
    pairs = ((reference.first, earlier.first), (reference.second, earlier.second))
    first, second = (replace(now, losses={**before.losses, **now.losses}) for now, before in pairs)
    return replace(reference, first=first, second=second)
