"""Windows before the end of the warm-up are found, and left out of all rows alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
import pytest
from scipy import stats

from dlperf.figures import steady
from dlperf.figures.rows import rows
from dlperf.figures.summaries import summarized
from dlperf.report.caveats import caveats
from dlperf.schema import Comparison, Job, Record, Window

WINDOWS, BATCH = 5, 8


def comparison(paces: Mapping[str, Sequence[Sequence[float]]], model: str = "bert_base") -> Comparison:
    """paces: of each system the runs, as seconds of their windows."""
    jobs = tuple(
        Job(name, name, name, name, model, "bert", "cpu", "fp32", "fp32", BATCH, "synthetic", None, {}, "cpu")
        for name in paces
    )
    records = tuple(
        Record(job, repeat, "", 1.0, "", "", {}, windows=tuple(_window(*one) for one in enumerate(run)), block=repeat)
        for job in jobs
        for repeat, run in enumerate(paces[job.system])
    )
    return Comparison({}, {}, "", "", len(records), jobs, records, ())


def _window(index: int, seconds: float) -> Window:
    return Window(index, 1, BATCH, seconds, seconds, 1.0)


def noisy(random: numpy.random.Generator, first: float = 1.0, runs: int = 7, noise: float = 0.005) -> list[list[float]]:
    """Runs of windows of a second, each off by `noise`; first: what the first one takes as long."""
    found = numpy.exp(random.normal(0, noise, (runs, WINDOWS)))
    found[:, 0] *= first
    return [list(map(float, run)) for run in found]


def test_slow_first_windows_of_one_system_leave_them_out_of_all() -> None:
    random = numpy.random.default_rng(1)
    made = comparison({"mxnet": noisy(random), "pytorch": noisy(random, first=1.03)})
    (found,) = steady.found(made)
    assert [job.system for job in found.jobs] == ["mxnet", "pytorch"]
    assert found.windows == 1
    ((job, share),) = found.slower
    assert job.system == "pytorch"
    assert share == pytest.approx(0.03, abs=0.01)
    assert {len(run.windows) for summary in summarized(made).values() for run in summary.done} == {WINDOWS - 1}
    flat = rows(made)
    assert {(row["windows"], row["windows_left_out"]) for row in flat} == {(WINDOWS - 1, 1)}
    expected = sum(len(run.windows[1:]) * BATCH for run in made.records[:1]) / sum(
        window.seconds for window in made.records[0].windows[1:]
    )
    assert flat[0]["throughput_samples_per_second"] == pytest.approx(expected)
    (told,) = (one for one in caveats(made) if "warm-up" in one)
    assert told.startswith(
        "BERT-base pretraining, fp32: the first window of every run is in no figure, because the first was"
    )
    assert "is not over: pytorch (by " in told


def test_tables_are_judged_apart() -> None:
    random = numpy.random.default_rng(2)
    late = comparison({"pytorch": noisy(random, first=1.1)})
    calm = comparison({"mxnet": noisy(random)}, "resnet50")
    both = Comparison({}, {}, "", "", 14, late.jobs + calm.jobs, late.records + calm.records, ())
    assert [[job.model for job in one.jobs] for one in steady.found(both)] == [["bert_base"]]


def test_a_row_that_never_settles_loses_half_of_its_windows_at_most() -> None:
    random = numpy.random.default_rng(3)
    warming = [[(2 - index / 4) * pace for index, pace in enumerate(run)] for run in noisy(random)]
    (found,) = steady.found(comparison({"jax": warming}))
    assert found.windows == WINDOWS // 2


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([[2.0, 1.0, 1.0]] * 2, id="two runs"),
        pytest.param([[1.005, 1.0, 1.0]] * 7, id="half a percent"),
        pytest.param([[0.9, 1.0, 1.0]] * 7, id="a fast one"),
        pytest.param([[2.0]] * 7, id="one window"),
        pytest.param([], id="no run"),
    ],
)
def test_what_says_nothing(runs: Sequence[Sequence[float]]) -> None:
    made = comparison({"jax": runs})
    assert steady.found(made) == []
    assert steady.without(made) is made


def test_runs_that_do_not_vary() -> None:
    (found,) = steady.found(comparison({"jax": [[1.02, 1.0, 1.0]] * 3}))
    assert found.windows == 1


@pytest.mark.parametrize("runs", [3, 7])
def test_windows_that_are_alike_are_seldom_left_out(runs: int) -> None:
    """Of tables of six systems that vary by 5 %, no more than one in twenty."""
    random, trials = numpy.random.default_rng(runs), 400
    tables = (comparison({str(row): noisy(random, runs=runs, noise=0.05) for row in range(6)}) for _ in range(trials))
    assert sum(bool(steady.found(one)) for one in tables) <= stats.binom.isf(1e-6, trials, steady.LEVEL)


def test_windows_that_are_not_are_found() -> None:
    """3 % in one of six systems, at noise of 0.5 %."""
    random, trials = numpy.random.default_rng(5), 100
    for _ in range(trials):
        table = {str(row): noisy(random, first=1.03 if row == 2 else 1.0) for row in range(6)}
        (found,) = steady.found(comparison(table))
        assert "2" in [job.system for job, _ in found.slower]
