"""Adapters that do other work only where they are measured are found by what the measured run wrote down; those that
do what they say are not. Real frameworks, tiny models."""

import shutil
import tomllib
from pathlib import Path

import pytest
from trajectories import ADAPTERS, SPEC, asked

from dlperf import launchers
from dlperf.models import FAMILY_OF
from dlperf.proof import audit
from dlperf.proof.references import ADAPTER, References
from dlperf.runs import bundle, events, failures
from dlperf.runs.execute import execute
from dlperf.systems.native import Native, request

pytestmark = pytest.mark.framework

CHEATS = {
    (one["name"], framework): one
    for one in tomllib.loads(Path(__file__).with_name("cheats.toml").read_text())["cheat"]
    for framework in one["frameworks"]
}
WRAPPED = """

{wrap}

honest_build = build


def build(job, ranks):
    trainer = honest_build(job, ranks)
    if not job.trace_steps:
        cheat(job, trainer)
    return trainer
"""


@pytest.fixture(scope="module")
def verdict(environment, tmp_path_factory):
    """A model, a framework, a precision and changes of its code -> what is said of a measured run, see Record.work."""
    root = tmp_path_factory.mktemp("measured")
    bundle.copy_code(root / "code", [ADAPTERS[ADAPTER]])
    whole, short = (References(root, SPEC, ADAPTERS[ADAPTER], most, print, lambda what: None) for most in (600.0, 0.05))
    count = iter(range(1000))

    def verdict(model, framework, precision="fp32", change=lambda adapter: None, late=False):
        folder, job = root / str(next(count)), asked(framework, model, 1, precision=precision).job
        bundle.copy_code(folder / "code", [ADAPTERS[framework]])
        change(folder / "code" / "dlperf" / "adapters" / framework)
        run, system, made = folder / "runs" / job.id / "0", Native(), environment(framework)
        adapter, launcher = ADAPTERS[framework], launchers.find("local")
        script = system.script(adapter, job, SPEC, 0, made)
        asks = request(adapter, job, SPEC)
        outcome = execute(
            run, asks, script, lambda: events.read_job(run, 1), failures.failure, 300, lambda: None, launcher
        )
        assert outcome.failure is None, outcome.failure
        references = short if late else whole
        work = references.verdict(job, run)
        return work if work["verdict"] == "different" else {**work, **audit.verdict(references, job, run, 0.0)}

    yield verdict
    shutil.rmtree(root)


def changes(case, framework):
    def change(adapter):
        for one in case.get(framework, ()):
            path = adapter / one["file"]
            source = path.read_text()
            assert one["old"] in source, f"{path.name} has no {one['old']!r}: bring cheats.toml up to date"
            path.write_text(source.replace(one["old"], one["new"]))
        if "wrap" in case:
            with open(adapter / f"{FAMILY_OF[case['model']]}.py", "a") as file:
                file.write(WRAPPED.format(wrap=case["wrap"].strip()))

    return change


@pytest.mark.parametrize(("name", "framework"), CASES := sorted(CHEATS), ids=[", ".join(one) for one in CASES])
def test_a_run_that_did_otherwise_is_told(name, framework, verdict):
    case = CHEATS[name, framework]
    found = verdict(case["model"], framework, change=changes(case, framework), late=case.get("late", False))
    assert found["verdict"] == "different", found
    assert case["says"] in found["why"]


@pytest.mark.parametrize("framework", [name for name, adapter in ADAPTERS.items() if adapter.default])
@pytest.mark.parametrize("model", ["resnet_tiny", "bert_tiny"])
def test_a_run_that_did_what_it_says_is_right(model, framework, verdict):
    assert verdict(model, framework) == {"verdict": "same", "steps": 8, "audited": 9}


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_low_precision_is_right(framework, verdict):
    assert verdict("resnet_tiny", framework, "bf16") == {"verdict": "same", "steps": 8, "audited": 9}


def test_each_is_tried_in_two_frameworks():
    assert all(len(one["frameworks"]) > 1 for one in CHEATS.values())
