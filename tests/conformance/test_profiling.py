"""What each framework's profiler says of a step, as `python -m dlperf.why` asks for it. Real frameworks."""

from dataclasses import replace

import pytest
from trajectories import ADAPTERS, SPEC, asked

from dlperf import launchers
from dlperf.adapters.profiling import KINDS
from dlperf.figures import difference
from dlperf.models import FAMILY_OF
from dlperf.runs import bundle, events, failures
from dlperf.runs.execute import execute
from dlperf.schema import Record
from dlperf.systems.native import Native, request

pytestmark = pytest.mark.framework

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "paddle", "oneflow", "jax")
#: that a step of a family has
HAS = {
    "bert": {"product", "attention", "normalisation", "dropout", "elementwise", "embedding", "loss", "optimizer"},
    "resnet": {"convolution", "product", "normalisation", "pooling", "loss", "optimizer"},
}


@pytest.fixture
def side(environment, tmp_path):
    """A framework, a model and a change of its code -> where a step's time goes."""

    def side(framework, model, change=None, batch_size=4):
        job = replace(asked(framework, model, 1, precision="fp32").job, batch_size=batch_size)
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}" / "runs" / job.id / "0"
        code = folder.parents[2] / "code"
        bundle.copy_code(code, [ADAPTERS[framework]])
        if change:
            change(code / "dlperf" / "adapters" / framework)
        spec = replace(SPEC, profile=3)
        asks = {**request(ADAPTERS[framework], job, spec), "audit": False}
        script = Native().script(ADAPTERS[framework], job, spec, 0, environment(framework))
        rest = failures.failure, 300, lambda: None, launchers.find("local")
        outcome = execute(folder, asks, script, lambda: events.read_job(folder, 1), *rest)
        assert outcome.failure is None, outcome.failure
        profile = outcome.stream.profile
        assert profile
        assert "why" not in profile, profile
        record = Record(job, 0, "", 0.0, "", "", {}, windows=outcome.stream.windows)
        found = difference.side(job, [record], [profile])
        assert sum(found.kinds.values()) == pytest.approx(found.step.centre)
        assert profile["waited_seconds"] >= -0.01 * profile["seconds"], profile["waited_seconds"]
        return found

    return side


@pytest.mark.parametrize("model", ["bert_tiny", "resnet_tiny"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_step_is_made_of_what_its_network_has(framework, model, side):
    found = side(framework, model)
    assert {one.kind for one in found.operations} <= set(KINDS)
    missing = {kind for kind in HAS[FAMILY_OF[model]] if not found.kinds[kind]}
    assert not missing, [(one.kind, one.name) for one in found.operations[:40]]


def test_a_part_that_was_made_much_slower_is_found(side):
    """By so much that no other program on this machine can hide it; by a fifth: tests/why."""

    def change(adapter):
        path = adapter / "bert.py"
        source = path.read_text()
        assert "narrow(output.LayerNorm(" in source
        slower = "def slower(norm, x):\n    for _ in range(100):\n        norm(x.detach())\n    return norm(x)\n"
        path.write_text(source.replace("output.LayerNorm(", "slower(output.LayerNorm, ") + "\n\n" + slower)

    a, b = side("pytorch", "bert_tiny", None, 64), side("pytorch", "bert_tiny", change, 64)
    kind, before, after = difference.differences(a, b)[0]
    assert kind == "normalisation", difference.differences(a, b)
    assert after > 10 * before
