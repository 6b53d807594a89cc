"""Parameter servers do the work of one process: in float64, for every framework that has them, by the proofs that their
rows need."""

import functools

import oracle_async
import pytest
from trajectories import ADAPTERS, as_reference

from dlperf import models
from dlperf.adapters.api import PS_MODES
from dlperf.adapters.numpy.optimizers import RowsSGD
from dlperf.proof import band, judge

pytestmark = pytest.mark.framework

FAMILIES = ("word2vec", "simnet_bow", "ctr_dnn", "vgg_cifar")
#: which the two others show in part: SGD, and tensors that are pulled whole
LONGER = ("simnet_bow", "vgg_cifar")
SYSTEMS = [
    (name, family, mode)
    for name, adapter in ADAPTERS.items()
    for family in FAMILIES
    for mode in PS_MODES
    if adapter.default and adapter.servers_of(family, "cpu", mode).status == "yes"
]


def marked(cases):
    return [pytest.param(*case, marks=pytest.mark.long if case[1] in LONGER else []) for case in cases]


@pytest.mark.parametrize(("framework", "family", "mode"), marked(SYSTEMS))
def test_a_worker_and_a_server_compute_what_one_process_does(framework, family, mode, evidence):
    """Drained after each step."""
    model = f"{family}_tiny"
    apart, alone = evidence(framework, model, 1, servers=1, mode=mode), evidence("jax", model, 1)
    assert apart.trajectory.failure is None, apart.trajectory.failure
    (certificate,) = judge.judge([apart], as_reference(alone))
    assert certificate.verdict == "same", certificate.why
    assert apart.trajectory.effective["communication"].startswith(f"parameter servers ({mode})")


@pytest.mark.parametrize("framework", sorted({name for name, family, _ in SYSTEMS if family == "vgg_cifar"}))
def test_tensors_that_are_pushed_whole_are_right_in_float32_too(framework, evidence):
    """MXNet's are pushed as they are then, not as copies of another type."""
    apart, alone = (
        evidence(framework, "vgg_cifar_tiny", 1, precision="fp32", **where)
        for where in ({"servers": 1, "mode": "async"}, {})
    )
    (certificate,) = judge.judge([apart], as_reference(alone))
    assert certificate.verdict == "same", certificate.why


@pytest.mark.parametrize(("framework", "family"), marked(case[:2] for case in SYSTEMS if case[2] == "sync"))
def test_workers_in_step_do_the_work_of_one(framework, family, evidence):
    model = f"{family}_tiny"
    together = evidence(framework, model, 2, servers=2, mode="sync")
    assert together.trajectory.failure is None, together.trajectory.failure
    ranks = 2 if models.family(model).normalised(models.config(model)) else 1  # BatchNorm's statistics are a rank's own
    (certificate,) = judge.judge([together], as_reference(evidence("jax", model, ranks)))
    assert certificate.verdict == "same", certificate.why


@functools.cache
def orders(model):
    """The band of a model of which none is published."""
    made = oracle_async.band(model)
    return band.Band(tuple(made["low"]), tuple(made["high"]), made["orders"])


@pytest.mark.parametrize(("framework", "family"), marked(case[:2] for case in SYSTEMS if case[2] == "async"))
def test_losses_of_workers_out_of_step_are_those_of_some_order(framework, family, evidence):
    together = evidence(framework, f"{family}_tiny", 2, servers=2, mode="async")
    certificate = band.judge(together, orders(f"{family}_tiny"))
    assert certificate.verdict == "same", certificate.why


def test_servers_that_apply_a_push_twice_are_out_of_all_orders(monkeypatch):
    """In NumPy, in step and each worker two steps at a time."""

    def twice(self, weights, gradients, step):
        for _ in range(2):
            RowsSGD.__call__(self, weights, gradients, step)

    whole = orders("word2vec_tiny")
    oracle_async.started.cache_clear()
    monkeypatch.setattr("dlperf.adapters.numpy.word2vec.RowsSGD", type("Twice", (RowsSGD,), {"__call__": twice}))
    for order in ([0, 1] * 20, [0, 0, 0, 0, 1, 1, 1, 1] * 5):
        share, _ = whole.share(tuple(oracle_async.losses("word2vec_tiny", order).mean(1)), 0.0)
        assert share > 2
    oracle_async.started.cache_clear()
