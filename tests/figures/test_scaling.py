"""The scaling model: what it gives back of rows that it made, what cannot be known, and the published tables."""

from __future__ import annotations

import dataclasses
import itertools

import places
import pytest

from dlperf import scaling
from dlperf.figures import prediction, summaries
from dlperf.figures.dlperf2020 import Published, read_published
from dlperf.figures.prediction import Link, Model, Step, fit
from dlperf.figures.statistics import Estimate
from dlperf.schema import Job
from dlperf.sources import dlperf_v1

GOLDEN = places.GOLDEN / "scaling.txt"
GRADIENTS = 4 * 25_557_032
WITHIN, BETWEEN = Link(3e-6, 100e9), Link(10e-6, 10e9)
SIZES = ((1, 1), (1, 2), (1, 8), (2, 8), (4, 8))
TRUE = Model(0.1, GRADIENTS, WITHIN, BETWEEN, overlap=0.6, overhead=0.004)


def steps(model: Model, *sizes: tuple[int, int]) -> list[Step]:
    return [Step(*size, model.seconds(*size)) for size in sizes]


# The model


def test_all_reduces_by_hand() -> None:
    """2 nodes of 4: a ring has 14 hops, 2 of them between nodes; hierarchical is 6 hops within and 2 between."""
    model = Model(1.0, 80e6, Link(1e-3, 8e9), Link(1e-2, 1e9))
    assert model.communication(1, 4) == pytest.approx(6e-3 + 1.5 * 80e6 / 8e9)
    assert model.communication(2, 4) == pytest.approx(12e-3 + 2e-2 + 1.75 * 80e6 / 1e9)
    hierarchical = dataclasses.replace(model, algorithm="hierarchical")
    assert hierarchical.communication(2, 4) == pytest.approx(6e-3 + 1.5 * 80e6 / 8e9 + 2e-2 + 1.0 * 80e6 / 1e9)
    assert hierarchical.communication(1, 4) == model.communication(1, 4)
    assert hierarchical.communication(3, 1) == model.communication(3, 1)


def test_one_device_does_not_communicate() -> None:
    assert TRUE.seconds(1, 1) == TRUE.compute


def test_no_more_hides_than_the_backward_pass_can() -> None:
    slow = Model(0.3, 1e9, WITHIN, Link(0.0, 1e9), overlap=1.0)
    assert slow.seconds(2, 1) == pytest.approx(0.3 + 1.0 - 0.2)
    fast = dataclasses.replace(slow, between=Link(0.0, 10e9))
    assert fast.seconds(2, 1) == pytest.approx(0.3)


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_a_step_is_never_faster_on_more_devices_or_worse_links(algorithm: str, overlap: float) -> None:
    model = dataclasses.replace(TRUE, algorithm=algorithm, overlap=overlap)
    for nproc in (1, 2, 8):
        seconds = [model.seconds(nnodes, nproc) for nnodes in (1, 2, 3, 4, 8, 64)]
        assert all(a <= b for a, b in itertools.pairwise(seconds))
    worse = (
        {"between": Link(10e-6, 5e9)},
        {"within": Link(1e-3, 100e9)},
        {"gradient_bytes": 2 * GRADIENTS},
        {"overhead": 0.01},
    )
    for change in worse:
        assert dataclasses.replace(model, **change).seconds(4, 8) >= model.seconds(4, 8)  # type: ignore[arg-type]


def test_a_network_that_nobody_knows_is_not_made_up() -> None:
    with pytest.raises(ValueError, match="network between nodes"):
        dataclasses.replace(TRUE, between=None).seconds(2, 8)


# Fitting


def close(found: Model, true: Model) -> None:
    """An overlap of 0 is a bound, which the solver comes near only: 1e-5 of it is 2e-7 of a step here."""
    assert found.compute == pytest.approx(true.compute, rel=1e-4)
    assert found.overhead == pytest.approx(true.overhead, rel=1e-4)
    assert found.overlap == pytest.approx(true.overlap, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.95])
@pytest.mark.parametrize("compute", [0.01, 0.1, 1.0])
def test_parameters_are_found_again(algorithm: str, overlap: float, compute: float) -> None:
    true = dataclasses.replace(TRUE, algorithm=algorithm, overlap=overlap, compute=compute, overhead=compute / 20)
    found = fit(steps(true, *SIZES), GRADIENTS, WITHIN, BETWEEN, algorithm)
    assert found.free == ("compute", "overhead", "overlap")
    assert found.error < 1e-6
    close(found.model, true)


def test_links_that_nobody_measured_are_found() -> None:
    true = Model(0.1, GRADIENTS, Link(0.0, 20e9), Link(0.0, 2e9), overhead=0.003)
    found = fit(steps(true, (1, 1), (1, 2), (1, 4), (2, 4), (4, 4)), GRADIENTS)
    assert found.free == ("compute", "within", "between", "overhead")
    close(found.model, true)
    assert found.model.within.bandwidth == pytest.approx(20e9, rel=1e-4)
    assert found.model.between is not None
    assert found.model.between.bandwidth == pytest.approx(2e9, rel=1e-4)


def test_two_sizes_tell_overhead_or_overlap_never_both() -> None:
    """Communication of the two devices takes 5.1 ms on the links."""
    links = {"within": Link(0.0, 20e9), "between": None}
    more = fit([Step(1, 1, 0.1), Step(1, 2, 0.112)], GRADIENTS, **links)  # type: ignore[arg-type]
    assert more.free == ("compute", "overhead")
    assert more.model.overhead == pytest.approx(0.012 - GRADIENTS / 20e9, rel=1e-4)
    assert more.model.overlap == 0
    less = fit([Step(1, 1, 0.1), Step(1, 2, 0.102)], GRADIENTS, **links)  # type: ignore[arg-type]
    assert less.free == ("compute", "overlap")
    assert less.model.overlap == pytest.approx(1 - 0.002 / (GRADIENTS / 20e9), rel=1e-4)
    assert less.model.overhead == 0
    assert more.error < 1e-6
    assert less.error < 1e-6


def test_two_devices_that_cost_nothing_are_taken_as_free() -> None:
    found = fit([Step(1, 1, 0.1), Step(1, 2, 0.099)], GRADIENTS)
    assert found.error == pytest.approx(0.005, rel=0.1)  # the model can't be faster on two
    assert found.model.seconds(1, 2) == pytest.approx(found.model.seconds(1, 1), rel=1e-6)


def test_rows_are_never_fewer_than_parameters() -> None:
    for number in range(2, 6):
        for given in ((None, None), (WITHIN, None), (WITHIN, BETWEEN)):
            try:
                found = fit(steps(TRUE, *SIZES[:number]), GRADIENTS, *given)
            except ValueError:
                continue
            assert len(found.free) <= found.sizes == number


@pytest.mark.parametrize("sizes", [(), ((1, 1),), ((1, 8), (1, 8)), ((1, 1), (1, 8), (1, 8))])
def test_too_few_rows_are_no_fit(sizes: tuple[tuple[int, int], ...]) -> None:
    rows = steps(TRUE, *sizes)
    if len(set(sizes)) < 2:
        with pytest.raises(ValueError, match="too few"):
            fit(rows, GRADIENTS)
    else:
        assert fit(rows, GRADIENTS).sizes == 2


def test_a_fit_with_as_many_parameters_as_rows_says_so() -> None:
    doubt = "which with as many parameters says nothing of a prediction's error"
    assert doubt in prediction.describe(fit(steps(TRUE, (1, 1), (1, 8)), GRADIENTS))
    assert doubt not in prediction.describe(fit(steps(TRUE, *SIZES), GRADIENTS, WITHIN, BETWEEN))


# The published tables


def published() -> list[Published]:
    return read_published(dlperf_v1().figures)


def test_the_published_tables_are_whole() -> None:
    rows = published()
    assert len(rows) == 41
    assert all(row.rates[1] < row.rates[8] < row.rates[32] for row in rows)
    assert {row.model for row in rows} == {"resnet50", "bert_base"}
    # two values as the report has them
    assert rows[0].rates == {1: 397.64, 8: 3130.34, 16: 6260.30, 32: 12411.97}
    assert rows[-1].rates == {1: 544.31, 8: 3825.21, 16: 7327.50, 32: 14822.31}


def test_predictions_of_the_published_tables_are_as_their_golden_file(request: pytest.FixtureRequest) -> None:
    made = scaling.table(published())
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(made, encoding="utf-8")
    assert made == GOLDEN.read_text(encoding="utf-8"), "`pytest --update-golden` rewrites the golden files"


def test_a_check_sees_1_and_8_devices_alone() -> None:
    """Other figures for 16 and 32 devices change no prediction."""
    row = published()[0]
    altered = dataclasses.replace(row, rates={**row.rates, 16: 1.0, 32: 1.0})
    assert [one.predicted for one in scaling.check(row)] == [one.predicted for one in scaling.check(altered)]


def test_a_text_scales_in_tokens() -> None:
    job = Job("t", "t", "fake", "Fake", "gpt2_512", "gpt", "cpu", "fp32", "fp32", 4, "synthetic", None, {}, "cpu")
    found = []
    for nnodes, nproc in SIZES:
        of_size = dataclasses.replace(job, nnodes=nnodes, nproc_per_node=nproc)
        rate = of_size.global_batch_size * 512 / TRUE.seconds(nnodes, nproc)
        row = summaries.summarize(of_size, ())
        found.append(dataclasses.replace(row, throughput=Estimate(rate, None, None, 1), gradient_bytes=GRADIENTS))
    (predicted,) = prediction.outlook(found, [64]).predictions
    assert predicted.throughput == pytest.approx(64 * 4 * 512 / TRUE.seconds(8, 8), rel=0.05)
