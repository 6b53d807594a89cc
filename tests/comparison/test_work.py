"""The run from revealing weights: what is asked for, and what a row's record has of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trajectories import SPEC, asked

from dlperf.adapters.api import NEXT_TO_NONE
from dlperf.comparison.work import Work
from dlperf.proof import places
from dlperf.proof.measured import Marks, Reference
from dlperf.schema import Failure

JOB = asked("jax", "bert_tiny", 1, precision="fp32").job
HELD = Reference(Marks({}, {0: {}, 4: {}}), Marks({}, {0: {}, 4: {}}))


def revealed(tmp_path: Path, held: Reference | str, verdict: dict[str, Any], failure: Failure | None = None) -> Any:
    """What is said of a row, and what was executed for it."""
    ran = []

    def execute(folder: Path, job: Any, spec: Any, repeat: int, environment: Any, tick: Any, checked: Any) -> Any:
        ran.append((spec.protocol.warmup_steps, spec.protocol.windows, checked))
        return "", SimpleNamespace(failure=failure)

    references = SimpleNamespace(of=lambda job, revealing: held, verdict=lambda job, run, revealing: verdict)
    store, progress = SimpleNamespace(folder=tmp_path, spec=SPEC), SimpleNamespace(busy=print)
    work = Work(store, {}, progress, execute)  # type: ignore[arg-type]
    return work._revealed(references, JOB, None), ran  # type: ignore[arg-type]


def test_it_takes_the_references_steps_and_no_window(tmp_path: Path) -> None:
    said, ran = revealed(tmp_path, HELD, {"verdict": "same", "steps": 4})
    assert said == {"revealed": 4}
    assert ran == [(4, 0, {"revealing": True, "dropout": NEXT_TO_NONE})]


@pytest.mark.parametrize(
    ("held", "verdict", "failure", "says"),
    [
        ("no time", {}, None, {"unrevealed": "no time"}),
        (HELD, {}, Failure("crash", "it fell"), {"unrevealed": "that run failed (crash: it fell)"}),
        (HELD, {"verdict": "unproven", "why": "unreadable"}, None, {"unrevealed": "unreadable"}),
        (
            HELD,
            {"verdict": "different", "why": "its loss is off"},
            None,
            {"verdict": "different", "why": "from revealing weights its loss is off"},
        ),
    ],
)
def test_what_came_of_it_is_told(
    held: Reference | str, verdict: dict[str, Any], failure: Failure | None, says: dict[str, str], tmp_path: Path
) -> None:
    assert revealed(tmp_path, held, verdict, failure)[0] == says


VGG = asked("jax", "vgg_tiny", 1, precision="fp32").job
ZEROS = ({"fc7.bias": 0.5}, {"fc7.bias": 0.5})


@pytest.mark.parametrize(
    ("held", "why", "failure", "says"),
    [
        (ZEROS, "", None, {"placed": True}),
        (ZEROS, "it stands elsewhere", None, {"verdict": "different", "why": "it stands elsewhere"}),
        ("no time", "", None, {"unplaced": "no time"}),
        (ZEROS, "", Failure("crash", "it fell"), {"unplaced": "that run failed (crash: it fell)"}),
        (ZEROS, OSError("gone"), None, {"unplaced": "what it wrote down of its tensors cannot be read: gone"}),
    ],
)
def test_where_dropout_stands_takes_one_step_that_drops_nearly_all(
    held: Any, why: str | OSError, failure: Failure | None, says: dict[str, Any], tmp_path: Path
) -> None:
    ran = []

    def execute(folder: Path, job: Any, spec: Any, repeat: int, environment: Any, tick: Any, checked: Any) -> Any:
        ran.append((spec.protocol.warmup_steps, spec.protocol.windows, checked))
        return "", SimpleNamespace(failure=failure)

    def place(job: Any, run: Path) -> str:
        if isinstance(why, OSError):
            raise why
        return why

    references = SimpleNamespace(placed=lambda job: held, place=place)
    store, progress = SimpleNamespace(folder=tmp_path, spec=SPEC), SimpleNamespace(busy=print)
    work = Work(store, {}, progress, execute)  # type: ignore[arg-type]
    assert work._placed(references, VGG, None) == says  # type: ignore[arg-type]
    assert ran == ([] if isinstance(held, str) else [(1, 0, {"dropout": places.share(VGG)})])
