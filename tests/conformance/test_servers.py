"""Parameter servers do the work of one process: in float64, for every framework that has them, by the proofs that their
rows need."""

import pytest
from trajectories import ADAPTERS, as_reference

from dlperf import models
from dlperf.adapters.api import PS_MODES
from dlperf.proof import judge

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


@pytest.mark.parametrize(("framework", "family"), marked(case[:2] for case in SYSTEMS if case[2] == "sync"))
def test_workers_in_step_do_the_work_of_one(framework, family, evidence):
    model = f"{family}_tiny"
    together = evidence(framework, model, 2, servers=2, mode="sync")
    assert together.trajectory.failure is None, together.trajectory.failure
    ranks = 2 if models.family(model).normalised(models.config(model)) else 1  # BatchNorm's statistics are a rank's own
    (certificate,) = judge.judge([together], as_reference(evidence("jax", model, ranks)))
    assert certificate.verdict == "same", certificate.why
