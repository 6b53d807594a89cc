"""Adapters that do other work only where they are measured are found by what the measured run wrote down; those that
do what they say are not. Real frameworks, tiny models."""

import itertools
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from deviations import DEVIATIONS, REVEALED, model_of
from trajectories import ADAPTERS, SPEC, asked

from dlperf import launchers
from dlperf.adapters.api import NEXT_TO_NONE
from dlperf.models import FAMILY_OF
from dlperf.proof import audit, places
from dlperf.proof.references import ADAPTER, References, drops, places_dropout, steps_alone
from dlperf.runs import bundle, events, failures
from dlperf.runs.execute import execute
from dlperf.systems.native import Native, request

pytestmark = pytest.mark.framework

CHEATS = {
    (one["name"], framework): one
    for one in tomllib.loads(Path(__file__).with_name("cheats.toml").read_text())["cheat"]
    for framework in one["frameworks"]
}
#: of a case's second framework: `make test-deviations` has it, too
MORE = [pytest.mark.deviations]
TOLD = [
    pytest.param(*key, id=", ".join(key), marks=[] if key[1] == CHEATS[key]["frameworks"][0] else MORE)
    for key in sorted(CHEATS)
]
#: what rounding hides in a certificate, the precisions in which it does, and in which framework
SEEN = [
    pytest.param(one, *rest, id=", ".join([one["name"], *rest]), marks=[] if rest[1] == "pytorch" else MORE)
    for one in DEVIATIONS
    for rest in itertools.product(one.get("hidden", ()), ("pytorch", "jax"))
    if model_of(one) in REVEALED and rest[0] not in one.get("unseen", ())
]
#: models that `make test` has in some frameworks alone, in float32 and bfloat16; `make test-deviations` has all
SOME = {
    "gpt_tiny": {"fp32": ("pytorch", "jax"), "bf16": ("pytorch",)},
    "transformer_tiny": {"fp32": ("pytorch", "jax"), "bf16": ("pytorch",)},
}
#: models that are close to others
CLOSE = ("se_resnext_tiny", "transformer_post_tiny", "vgg_tiny", "vgg_cifar_tiny")
SOME.update({model: {"fp32": ("pytorch",), "bf16": ()} for model in CLOSE})
SOME["se_resnext_tiny"]["bf16"] = ("mxnet",)  # whose pooling has no bfloat16, which nothing else would show
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
        adapter, references, runs = ADAPTERS[framework], short if late else whole, folder / "runs" / job.id

        def trained(run, protocol, **checked):
            spec = replace(SPEC, protocol=protocol)
            asks, script = request(adapter, job, spec), Native().script(adapter, job, spec, 0, environment(framework))
            asks = {**asks, "job": {**asks["job"], **checked}}
            rest = failures.failure, 300, lambda: None, launchers.find("local")
            outcome = execute(run, asks, script, lambda: events.read_job(run, 1), *rest)
            assert outcome.failure is None, outcome.failure

        trained(runs / "0", SPEC.protocol)
        work = references.verdict(job, runs / "0")
        if work["verdict"] == "same":
            work = {**work, **audit.verdict(references, job, runs / "0", 0.0)}
        if work["verdict"] == "same":
            held = references.of(job, revealing=True)
            trained(runs / "1", steps_alone(SPEC.protocol, held.steps), revealing=True, dropout=NEXT_TO_NONE)
            found = references.verdict(job, runs / "1", revealing=True)
            work = {**work, "revealed": found["steps"]} if found["verdict"] == "same" else found
        if work["verdict"] == "same" and places_dropout(job):
            held = references.placed(job)
            if isinstance(held, str):
                return {**work, "unplaced": held}
            trained(runs / "2", steps_alone(SPEC.protocol, 1), dropout=places.share(job))
            why = references.place(job, runs / "2")
            work = {"verdict": "different", "why": why} if why else {**work, "placed": True}
        return work

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


@pytest.mark.parametrize(("name", "framework"), TOLD)
def test_a_run_that_did_otherwise_is_told(name, framework, verdict):
    case = CHEATS[name, framework]
    precision, late = case.get("precision", "fp32"), case.get("late", False)
    found = verdict(case["model"], framework, precision, changes(case, framework), late)
    assert found["verdict"] == "different", found
    assert case["says"] in found["why"]


@pytest.mark.parametrize(("case", "precision", "framework"), SEEN)
def test_what_rounding_hides_in_a_certificate_is_seen_in_a_row(case, precision, framework, verdict):
    """In the run from revealing weights, or by the optimizer's constants."""
    assert framework in case
    precision = {"fp32": "fp32", "amp_bf16": "bf16"}[precision]
    found = verdict(model_of(case), framework, precision, changes(case, framework))
    assert found["verdict"] == "different", found
    assert case.get("says", "") in found["why"]


def honest(precision, frameworks):
    """Of each model and framework."""
    for model in REVEALED:
        for framework in frameworks:
            marks = MORE if model in SOME and framework not in SOME[model][precision] else []
            yield pytest.param(model, framework, id=f"{model}, {framework}", marks=marks)


def right(model):
    """What is said of a run that did what it says."""
    same = {"verdict": "same", "steps": 8, "audited": 9, "revealed": REVEALED[model]}
    return {**same, "placed": True} if drops(model) and "post" not in model and model != "bert_tiny" else same


@pytest.mark.parametrize(
    ("model", "framework"), list(honest("fp32", [one.name for one in ADAPTERS.values() if one.default]))
)
def test_a_run_that_did_what_it_says_is_right(model, framework, verdict):
    assert verdict(model, framework) == right(model)


@pytest.mark.parametrize(("model", "framework"), list(honest("bf16", ["pytorch", "jax", "mxnet", "tensorflow"])))
def test_low_precision_is_right(model, framework, verdict):
    assert verdict(model, framework, "bf16") == right(model)


def test_each_is_tried_in_two_frameworks():
    assert all(len(one["frameworks"]) > 1 for one in CHEATS.values())
