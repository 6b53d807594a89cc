"""Certificates: what agrees, what parts, what is corrected, bounds of low precision; the cache; the commands."""

import dataclasses
import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import numpy
import pytest
from commands import call
from places import ROOT

from dlperf import models
from dlperf.adapters import trace
from dlperf.adapters.api import WIDTH
from dlperf.adapters.gpu import Gpu
from dlperf.catalog import reader
from dlperf.envs import kinds
from dlperf.planning.spec import PROTOCOLS, Spec
from dlperf.proof import certificates, certify, consistent, decay, judge, published
from dlperf.proof import low as low_precision
from dlperf.proof.asked import trajectories
from dlperf.proof.certify import Certifier
from dlperf.proof.judge import Evidence
from dlperf.proof.published import REFERENCES, moved
from dlperf.runs import bundle, execute
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job, Trajectory

# --- sketches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64,), (127,), (128,), (768, 3072), (64, 3, 7, 7)])
def test_the_distance_of_sketches_is_the_distance_of_tensors(shape):
    """Exact up to WIDTH values; else within 4 standard deviations of sqrt(2 / WIDTH) of the squared norm."""
    random = numpy.random.RandomState(0)
    a, b = random.standard_normal(shape), random.standard_normal(shape)
    found = numpy.linalg.norm(trace.sketch("x", a) - trace.sketch("x", b))
    true = numpy.linalg.norm(a - b)
    within = 1e-12 if a.size <= WIDTH else 4 * (2 / WIDTH) ** 0.5
    assert abs(found**2 / true**2 - 1) <= within


@pytest.mark.parametrize("where", [0, 1, 767, 768, 768 * 3072 - 1])
def test_one_wrong_value_among_millions_is_seen_in_full(where):
    difference = numpy.zeros(768 * 3072)
    difference[where] = 1e-3
    assert numpy.linalg.norm(trace.sketch("x", difference)) == pytest.approx(1e-3)


def test_a_wrong_row_or_column_is_seen():
    """Rows and columns of the usual widths do not cancel."""
    for index in (numpy.s_[5, :], numpy.s_[:, 5]):
        difference = numpy.zeros((768, 3072))
        difference[index] = 1.0
        true = numpy.linalg.norm(difference)
        assert numpy.linalg.norm(trace.sketch("x", difference)) == pytest.approx(true, rel=0.3)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def evidence(system, loss=0.0, gradient=0.0, change=0.0, statistic=0.0, **fields):
    """A trajectory of resnet_tiny; the numbers are relative errors against the one without any."""
    config = models.config("resnet_tiny_check")
    parameters = models.family("resnet_tiny").parameters(config)
    random = numpy.random.RandomState(0)
    sketches = {"logits/logits": random.standard_normal(64)}
    for parameter in parameters:
        width = min(parameter.size, WIDTH)
        if parameter.trained:
            sketches["gradient/" + parameter.name] = random.standard_normal(width)
            # too small to be taken for weight decay
            sketches["change/" + parameter.name] = 1e-7 * random.standard_normal(width)
        else:
            sketches["statistic/" + parameter.name] = random.standard_normal(width)
    sketches["gradient/fc.weight"] *= 1 + gradient
    sketches["change/fc.weight"] *= 1 + change
    sketches["statistic/bn1.running_mean"] *= 1 + statistic
    known = {
        "adapter": system,
        "title": system,
        "of": "resnet_tiny",
        "model": "resnet_tiny_check",
        "family": "resnet",
        "device": "cpu",
        "precision": "fp64",
        "batch_size": 4,
        "steps": 10,
        "seed": 1,
        "options": {},
        "definition": "",
        "losses": tuple(2.7 * (1 + (loss if step >= 4 else 0.0)) for step in range(10)),
        "gradient_norms": (3.0,) * 10,
        "step_seconds": (1.0,) * 10,
        "read_seconds": (0.001,) * 10,
        "effective": {"compute_dtype": "float64"},
    }
    return Evidence(Trajectory(system, **{**known, **fields}), sketches)


def verdicts(*pool, reference=None):
    return [one.verdict for one in judge.judge(pool, reference)]


def test_systems_that_agree_do_the_same_work_and_the_largest_error_is_told():
    one, two, three = judge.judge([evidence("a"), evidence("b", loss=3e-13), evidence("c", gradient=1e-9)])
    assert (one.verdict, two.verdict, three.verdict) == ("same",) * 3
    assert one.size == pytest.approx(3e-13, rel=0.01)
    assert [found.other for found in one.differences] == ["b", "c"]
    assert one.differences[1].gradient_tensor == "fc.weight"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ({"loss": 2e-9}, "its losses part at step 5, by 2e-9 at most"),
        ({"gradient": 2e-7}, "its first gradients by up to 2e-7 (fc.weight)"),
        ({"change": 2e-7}, "its parameters change otherwise by up to 2e-7 (fc.weight)"),
        ({"statistic": 2e-7}, "its running statistics are off by up to 2e-7 (bn1.running_mean)"),
    ],
)
def test_the_one_that_parts_is_named_with_the_step_and_the_tensor(error, says):
    a, odd, c = judge.judge([evidence("a"), evidence("odd", **error), evidence("c")])
    assert (a.verdict, odd.verdict, c.verdict) == ("same", "different", "same")
    assert says in odd.why


def test_float32_is_held_to_losses_and_to_what_shows_a_wrong_constant():
    def single(system, **errors):
        return evidence(system, precision="fp32", effective={"compute_dtype": "float32"}, **errors)

    within = [single("a"), single("b", loss=9e-5, gradient=0.02, change=0.1, statistic=9e-4)]
    assert verdicts(*within) == ["same", "same"]
    assert verdicts(single("a"), single("b"), single("c", loss=2e-4)) == ["same", "same", "different"]
    assert verdicts(single("a"), single("b"), single("c", statistic=2e-3)) == ["same", "same", "different"]


@pytest.mark.parametrize(
    ("smooth", "errors", "says"),
    [
        (False, {"gradient": 0.1}, ""),
        (False, {"gradient": 1.0}, "its first gradients, as one vector, by "),
        (False, {"change": 0.3}, ""),
        (False, {"change": 3.0}, "its parameters, as one vector, change otherwise by "),
        (True, {"gradient": 2e-5, "change": 2e-3}, ""),
        (True, {"gradient": 4e-5}, "its first gradients by up to 4e-5 (fc.weight)"),
        (True, {"change": 4e-3}, "its parameters change otherwise by up to 4e-3 (fc.weight)"),
    ],
)
def test_float32s_gradients_are_judged_as_one_where_they_jump_and_else_by_tensor(monkeypatch, smooth, errors, says):
    monkeypatch.setattr(models.FAMILIES["resnet"], "SMOOTH", smooth)
    told = {"precision": "fp32", "effective": {"compute_dtype": "float32"}}
    made = judge.judge([evidence("a", **told), evidence("b", **told), evidence("odd", **told, **errors)])[-1]
    assert (made.verdict == "different") == bool(says)
    assert says in made.why


def test_without_a_majority_nobody_is_proven():
    made = judge.judge([evidence("a"), evidence("b", loss=1e-3)])
    assert [one.verdict for one in made] == ["different", "different"]
    assert "no two systems that agree outnumber the others" in made[0].why
    two_camps = [evidence("a"), evidence("b"), evidence("c", loss=1e-3), evidence("d", loss=1e-3)]
    assert verdicts(*two_camps) == ["different"] * 4


def test_the_reference_decides():
    altered = evidence("b", loss=1e-3)
    assert verdicts(evidence("a"), altered, reference=evidence("reference")) == ["same", "different"]
    assert verdicts(evidence("a"), reference=evidence("reference")) == ["same"]
    assert verdicts(evidence("a")) == ["unproven"]


def test_a_failed_run_is_no_proof_and_the_others_are_still_compared():
    failed = evidence("b", failure=Failure("wrong_tensor", "gradients: conv1.weigth: not a tensor of this model"))
    made = judge.judge([evidence("a"), failed, evidence("c")])
    assert [one.verdict for one in made] == ["same", "unproven", "same"]
    assert "conv1.weigth" in made[1].why


def test_what_computed_in_another_type_or_did_not_wait_is_not_the_same():
    narrow = evidence("b", effective={"compute_dtype": "float32"})
    hasty = evidence("c", step_seconds=(0.1,) * 10, read_seconds=(0.9,) * 10)
    made = judge.judge([evidence("a"), narrow, hasty, evidence("d")])
    assert [one.verdict for one in made] == ["same", "different", "different", "same"]
    assert "float32, not in float64" in made[1].why
    assert "does not wait" in made[2].why


def test_a_short_read_of_a_short_step_is_a_call_not_a_wait():
    tiny = evidence("b", step_seconds=(0.006,) * 10, read_seconds=(0.002,) * 10)
    assert verdicts(evidence("a"), tiny) == ["same", "same"]


def test_a_step_that_was_done_before_it_was_waited_for_shows_nothing():
    """Processor time of MXNet's resnet50 without a wait beside a load of 9 on two cores, with three reads made short;
    and of OneFlow's resnet_tiny there as it is, whose read passes several threads."""
    steps = (0.165, 0.119, 0.163, 0.109, 0.123, 0.148, 0.172, 0.255, 0.175, 0.129)
    reads = (0.171, 0.0001, 0.194, 0.22, 0.0001, 0.096, 0.103, 0.0001, 0.119, 0.099)
    hasty = evidence("b", step_seconds=steps, read_seconds=reads)
    assert verdicts(evidence("a"), hasty) == ["unproven", "different"]
    steps = (0.0, 0.0321, 0.0311, 0.0317, 0.0326, 0.0284, 0.028, 0.0321, 0.032, 0.0337)
    reads = (0.0, 0.0025, 0.0044, 0.0041, 0.0029, 0.0034, 0.0039, 0.0036, 0.0036, 0.002)
    waited = evidence("b", step_seconds=steps, read_seconds=reads)
    assert verdicts(evidence("a"), waited) == ["same", "same"]


def test_tensors_that_are_zero_but_for_rounding_are_not_compared_with_themselves():
    """The gradient of a key's bias is zero; its rounding must not count as an error of 100 %."""
    ours, theirs = evidence("a"), evidence("b")
    ours.sketches["gradient/bn1.bias"][:] = 1e-17
    theirs.sketches["gradient/bn1.bias"][:] = -3e-17
    assert verdicts(ours, theirs) == ["same", "same"]


def test_a_biased_running_variance_that_is_declared_is_taken_out_exactly():
    """d^T + B beside d^T + B n / (n - 1), as the formula in proof.py says; undeclared it is a difference."""
    config = models.config("resnet_tiny_check")
    sizes = {p.name: p.size for p in models.family("resnet_tiny").parameters(config)}
    unbiased, biased = evidence("a"), evidence("b")
    for norm, values in models.family("resnet_tiny").normalised(config).items():
        name, n = f"{norm}.running_var", 4 * values
        left = config.bn_decay**10 * trace.sketch(name, numpy.ones(sizes[name]))
        biased.sketches["statistic/" + name] = (unbiased.sketches["statistic/" + name] - left) * (n - 1) / n + left
    declared = {"compute_dtype": "float64", "bn_running_variance": "biased (no other)"}
    said = Evidence(dataclasses.replace(biased.trajectory, effective=declared), biased.sketches)
    made = judge.judge([unbiased, said])
    assert [one.verdict for one in made] == ["same", "same"]
    assert "running variances of BatchNorm: biased (no other); up to" in made[1].exceptions[0]
    assert made[0].differences[0].statistic < 1e-13
    assert verdicts(unbiased, biased, evidence("c")) == ["same", "different", "same"]


def test_a_decay_in_float32_that_is_declared_widens_the_bar_of_running_statistics_alone():
    """(10 / 0.9 + 1 / 0.1) * 2.4e-8 = 5e-7 is what float32(0.9) explains."""
    declared = {"compute_dtype": "float64", "bn_decay": "0.9, as float32"}
    assert verdicts(evidence("a"), evidence("b", statistic=4e-7, effective=declared)) == ["same", "same"]
    assert verdicts(evidence("a"), evidence("b", statistic=6e-7, effective=declared)) == ["different"] * 2
    assert verdicts(evidence("a"), evidence("b", change=4e-7, effective=declared)) == ["different"] * 2
    trio = [evidence("a"), evidence("b", effective=declared), evidence("c", statistic=4e-7)]
    assert verdicts(*trio, reference=evidence("reference")) == ["same", "same", "different"]
    (one,) = judge.judge([evidence("b", effective=declared)], evidence("reference"))
    assert "float32, in float64 too: bn_decay = 0.9; so the bar of running statistics is 5e-7" in one.exceptions[0]


def test_every_batch_norm_has_its_number_of_values():
    config = models.config("resnet50")
    sizes = models.family("resnet50").normalised(config)
    names = {p.name.rpartition(".")[0] for p in models.family("resnet50").parameters(config) if p.kind == "running_var"}
    assert set(sizes) == names
    assert sizes["bn1"] == 112 * 112
    assert (sizes["layer2.0.bn1"], sizes["layer2.0.bn2"], sizes["layer2.0.downsample.1"]) == (56**2, 28**2, 28**2)
    assert sizes["layer4.2.bn3"] == 7 * 7


def decayed(one, what, share=1.0):
    """`one` with so much more of the model's own decay, in "weights" or "scales"."""
    sketches = dict(one.sketches)
    for name, start in decay._starts("resnet_tiny_check", 1)[what].items():
        sketches[f"change/{name}"] = sketches[f"change/{name}"] - share * decay._whole(one.trajectory) * start
    return dataclasses.replace(one, sketches=sketches)


@pytest.mark.parametrize("what", ["weights", "scales"])
def test_decay_is_told_where_rounding_is_larger(what):
    """What decay does to a weight is no more than rounding does, and a hundredth of a change."""
    told = {"precision": "fp32", "effective": {"compute_dtype": "float32"}}
    made, random = evidence("a", **told), numpy.random.RandomState(1)
    right = Evidence(made.trajectory, {name: 1e3 * value for name, value in made.sketches.items()})
    rounded = {name: value + 3e-7 * random.standard_normal(value.shape) for name, value in right.sketches.items()}
    near = Evidence(dataclasses.replace(right.trajectory, system="near"), rounded)
    odd = decayed(Evidence(dataclasses.replace(right.trajectory, system="odd"), rounded), what)
    *same, different = judge.judge([right, near, odd])
    assert [one.verdict for one in same] == ["same", "same"]
    assert f"the decay of its {what} by 0.99 times the model's" in different.why  # rounding may have the rest
    assert decay.off(near.sketches, odd.sketches, near.trajectory)[what] == pytest.approx(1.0, rel=0.1)
    assert judge.judge([right, near, decayed(near, what, 0.05)])[-1].verdict == "same"


def test_what_points_anywhere_is_no_decay_and_hides_none_that_is_larger():
    """As gradients do that jump: of noise whose part along the weights is as large as the model's decay."""
    made, random = evidence("a", precision="fp32"), numpy.random.RandomState(1)
    noise = {name: random.standard_normal(value.shape) for name, value in made.sketches.items()}
    starts = decay._starts("resnet_tiny_check", 1)["weights"]
    square, count = (sum(f(one) for one in starts.values()) for f in (lambda one: (one**2).sum(), numpy.size))
    size = decay._whole(made.trajectory) * (square / count) ** 0.5 * count**0.5
    noisy = {name: value + size * noise[name] for name, value in made.sketches.items()}
    other = dataclasses.replace(made, sketches=noisy)
    assert decay.off(made.sketches, noisy, made.trajectory)["weights"] == 0.0
    for share in (1, 20):
        found = decay.off(made.sketches, decayed(other, "weights", share).sketches, made.trajectory)["weights"]
        assert found == pytest.approx(max(0, share - decay.CHANCE), abs=1.5)


def test_what_a_recipes_decay_does_to_a_weight_is_what_its_optimizer_does():
    """Of a weight that has no gradient."""
    recipe, weight, velocity = models.family("resnet_tiny").optimizer(4), 1.0, 0.0
    for _ in range(10):
        velocity = recipe.momentum * velocity + recipe.weight_decay * weight
        weight -= recipe.learning_rate * velocity
    assert decay._whole(evidence("a").trajectory) == pytest.approx(1 - weight, rel=1e-4)


# --- low precision ----------------------------------------------------------------------------------------------------


def low(error, dtype="bfloat16", moved=None, scales=0.0):
    """A bf16 run whose outputs, gradients and losses are off by `error`, beside a float32 run that is off by 1e-7.
    scales: share of the model's decay that its scales have."""
    exact = evidence("a")
    pair = []
    runs = (("fp32", 1e-7, "float32"), ("amp_bf16", error, dtype))
    for precision, off, computed in runs:
        made = evidence("a", precision=precision, effective={"compute_dtype": computed}, loss=off)
        pair.append(Evidence(made.trajectory, {name: values * (1 + off) for name, values in made.sketches.items()}))
    float32, half = pair
    return low_precision.judge(decayed(half, "scales", scales), exact, float32, moved)


def test_low_precision_is_bounded_by_its_own_float32_run():
    """3 * 1e-7 * 2^16 = 2e-2 is the bound; below 1e-7 * 2^8 = 2.6e-5 nothing was rounded to 8 bits."""
    assert low(3e-3).verdict == "same"
    assert "rounding explains 2e-2" in low(3e-2).why
    assert "low precision did not run" in low(1e-7).why
    assert low(3e-3, dtype="float32").verdict == "different"
    bound = low(3e-3).bounds[1]
    assert (bound.what, bound.most) == ("logits", pytest.approx(3e-7 * 2**16, rel=1e-3))


def test_low_precision_is_bounded_by_what_it_does_to_numpys_network():
    """Three times as much, of losses ten times."""
    moved = {"losses": 1e-4, "logits": 1e-3, "gradients": 1e-3, "changes": 2e-3, "statistics": 5e-3}
    assert low(9e-4, moved=moved).verdict == "same"
    assert "losses are off by 2e-3; rounding, as NumPy's network has it, explains 1e-3" in low(2e-3, moved=moved).why
    looser = {**moved, "losses": 1.0}
    assert low(2.9e-3, moved=looser).verdict == "same"
    assert low(3.1e-3, moved=looser).why.count("explains 3e-3") == 2  # logits and gradients
    assert "low precision did not run" in low(1e-7, moved=moved).why
    assert "decays of scales are off by 1e+00; rounding explains 5e-1" in low(1e-4, moved=moved, scales=1.0).why
    assert "changes are off by 7e-3" in low(7e-3, moved={**looser, "logits": 1.0, "gradients": 1.0}).why


@pytest.mark.parametrize(
    ("model", "precision"),
    [*((model, "amp_bf16") for model in ("resnet50", "resnet_tiny", "bert_base", "bert_tiny")),
     ("resnet50", "amp_fp16"), ("bert_base", "amp_fp16")],
)  # fmt: skip
def test_what_16_bits_do_is_published_for_the_models_as_they_are(model, precision):
    family = "bert" if "bert" in model else "resnet"
    about = {"family": family, "model": f"{model}_check", "definition": certificates.definition(f"{model}_check")}
    options = {"clip_norm": "1.0"} if family == "bert" else {}
    like = dataclasses.replace(evidence("a", precision=precision, options=options).trajectory, **about)
    found = moved(like)
    assert found
    assert set(found) == {"losses", *low_precision.VECTORS} - ({"statistics"} if family == "bert" else set())
    assert moved(dataclasses.replace(like, definition="another")) is None
    assert moved(dataclasses.replace(like, precision="tf32")) is None


# --- the worker's own check -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([("a", (2,), "float64")], "b: not given"),
        ([("a", (2,), "float64"), ("c", (1,), "float64")], "c: not a tensor of this model"),
        ([("a", (2,), "float64"), ("a", (2,), "float64")], "a: given twice"),
        ([("a", (2, 1), "float64")], "a: shape is (2, 1), must be (2,)"),
        ([("a", (2,), "float32")], "a: type is float32, must be float64"),
    ],
)
def test_a_wrong_tensor_is_named(pairs, says):
    given = [(name, numpy.zeros(shape, dtype)) for name, shape, dtype in pairs]
    with pytest.raises(trace.WrongTensor) as raised:
        list(trace._checked("gradients", given, {"a": (2,), "b": (3,)}, "fp64"))
    assert says in str(raised.value)


# --- the commands, on the framework that sleeps -----------------------------------------------------------------------


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """`toy(name, old, new)` makes an adapter like the fake one, with a change; the cache is a new folder."""
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path / "adapters"))

    def toy(name, old="", new=""):
        folder = tmp_path / "adapters" / name
        shutil.copytree(ROOT / "adapters" / "fake", folder)
        bert, code = folder / "bert.py", folder / "resnet.py"
        bert.write_text(bert.read_text().replace("adapters.fake", f"adapters.{name}"))
        assert old in code.read_text()
        code.write_text(code.read_text().replace(old, new))
        toml = folder / "adapter.toml"
        toml.write_text(toml.read_text().replace('"Fake"', f'"{name.capitalize()}"'))
        return folder

    return toy


def verify(*words, command="verify"):
    return call(command, "--env", "current", "-m", "bert_tiny", "--device", "cpu", *words)


LOSS = ("return 1.0 / self._steps", "return 1.001 / self._steps")


@pytest.mark.slow
def test_verify_prints_the_table_and_says_who_parts(toys, tmp_path):
    toys("twin")
    toys("altered", *LOSS)
    ended = verify("-f", "fake,twin,altered", "-o", tmp_path / "out")
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Altered: different work: against fake, its losses part at step 1, by 1e-3 at most." in ended.stdout
    rows = {line.split()[0]: line for line in ended.stdout.splitlines() if " work  " in line}
    assert {name: " ".join(line.split()[1:3]) for name, line in rows.items()} == {
        "Fake": "same work",
        "Twin": "same work",
        "Altered": "different work",
    }
    page = (tmp_path / "out" / "proof.md").read_text()
    assert "| Altered | different work | 1e-3 |" in page
    assert "Fake – Altered" in (tmp_path / "out" / "proof.html").read_text()
    written = json.loads((tmp_path / "out" / "certificates.json").read_text())["certificates"]
    assert sorted(one[0]["verdict"] for one in written.values()) == ["different", "same", "same"]


def test_proofs_at_work_are_named_with_their_step_their_time_and_how_many_are_left(tmp_path, monkeypatch):
    """Two are asked for, one after the other; each is looked at while its worker is at its fourth step."""
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    job = Job("i", "fake", "fake", "Fake", "bert_tiny", "bert", "cpu", "fp32", "fp32", 4, "synthetic", None, {}, "cpu")
    environment, told, now = kinds.planned(reader.adapters()["fake"], "cpu", "current"), [], [1000.0]

    def run_script(folder, timeout, tick, *rest):
        tick()
        steps = "".join(f'{{"event": "traced", "time": 1, "steps": {step}}}\n' for step in (1, 2, 3))
        (folder / "events.rank0.jsonl").write_text('{"event": "built", "time": 1}\n' + steps)
        now[0] += 45
        tick()
        return Exit(1, False, timeout, False)

    monkeypatch.setattr(execute, "run_script", run_script)
    monkeypatch.setattr(certify.time, "time", lambda: now[0])
    bundle.copy_code(tmp_path / "code", [reader.adapters()["fake"]])
    spec = Spec((), (), (), "cpu", "current", PROTOCOLS["quick"])
    certifier = Certifier(tmp_path, spec, lambda line: None, lambda what: told.append(what()))
    certifier.certificates([job], {job.id: environment})
    assert told == [
        "proofs running: fake: bert_tiny_check, fp64: importing and building, 0 s; up to 1 more",
        "proofs running: fake: bert_tiny_check, fp64: step 4 of 10, 45 s; up to 1 more",
        "proofs running: fake: bert_tiny, fp32: importing and building, 0 s",
        "proofs running: fake: bert_tiny, fp32: step 4 of 10, 45 s",
    ]


def test_a_certificate_of_one_processor_is_not_anothers(tmp_path, monkeypatch):
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path))
    run = tmp_path / "run"
    run.mkdir()
    (run / certificates.FROM_WORKER).write_bytes(b"sketches")
    environment = dataclasses.replace(kinds.planned(reader.adapters()["fake"], "cpu", "current"), digest="d")

    def blank(device, *gpus, cpu=""):
        job = Job(
            "i", "fake", "fake", "F", "bert_tiny", "bert", device, "fp32", "fp32", 4, "synthetic", None, {}, device
        )
        return certificates.blank(trajectories(job)[0], environment, "code", gpus, cpu)

    def found(trajectory):
        return (certificates.place(trajectory) / certificates.CERTIFICATE).exists()

    h100, h200 = Gpu("H100", 2**36, "580.1", "9.0"), Gpu("H200", 2**37, "580.1", "9.0")
    for made in (blank("cuda", h200), blank("cuda"), blank("cpu"), blank("cpu", cpu="Xeon: avx2")):
        certificates.keep(Evidence(made, {}), run)
    assert found(blank("cuda", h200))
    assert found(blank("cuda", h200, h200))  # of the same kind
    for other in (h100, h200._replace(driver="590.1"), h200._replace(capability="9.1")):
        assert not found(blank("cuda", other))
    assert not found(blank("cuda")), "of a GPU that nobody knows nothing is kept"
    assert found(blank("cpu"))
    assert found(blank("cpu", cpu="Xeon: avx2"))
    for other in ("Xeon: avx2 avx512f", "EPYC: avx2"):
        assert not found(blank("cpu", cpu=other))
    assert found(blank("cuda", h200, cpu="EPYC: avx2")), "what trained is the GPU"
    known = ("a", "toy", "A", "resnet_tiny", "resnet_tiny_check", "resnet", "cpu", "fp64", 4, 10, 1, {}, "d", "c")
    name = certificates.place(Trajectory(*known, {"kind": "venv", "digest": "e"})).name
    assert name == "toy-resnet_tiny_check-cpu-fp64-d8c14ac49f1a8765"


@pytest.mark.slow
def test_a_valid_certificate_is_used_again_and_a_hand_edited_one_refused(toys, tmp_path):
    toys("twin")
    words = ("-f", "fake,twin")
    first = verify(*words).stdout
    begun = re.findall(r"^\[(\d)/2\] proof of the same work: (\w+):", first, re.MULTILINE)
    assert [sorted(one) for one in zip(*begun, strict=True)] == [["1", "2"], ["fake", "twin"]]
    assert len(re.findall(r"^\[\d/2\] (?:fake|twin): \w+, fp64: made in \d+ s", first, re.MULTILINE)) == 2
    assert "proofs made: 2; of the same work: 2" in first
    again = verify(*words)
    assert again.returncode == 0
    assert "proof of the same work:" not in again.stdout
    path = next(Path(os.environ["DLPERF_CACHE"], "certificates").glob("twin-*/certificate.json"))
    path.write_text(path.read_text().replace('"verdict": "same"', '"verdict": "better"'))
    edited = verify(*words)
    assert "recomputing: checksum mismatch" in edited.stdout
    assert edited.stdout.count("proof of the same work:") == 1
    path.with_name("trajectory.npz").write_bytes(b"PK damaged")
    damaged = verify(*words)
    assert "trajectory.npz was damaged or edited" in damaged.stdout
    assert damaged.returncode == 0
    path.write_text("{")
    assert verify(*words).returncode == 0
    assert "proof of the same work:" not in verify(*words).stdout


@pytest.mark.slow
def test_a_change_of_the_code_makes_a_certificate_stale(toys):
    folder = toys("twin")
    verify("-f", "fake,twin")
    code = folder / "resnet.py"
    code.write_text(code.read_text() + "# a comment\n")
    again = verify("-f", "fake,twin")
    assert again.stdout.count("proof of the same work:") == 1
    assert "proof of the same work: twin:" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("numpy.ones(p.shape, self._dtype)", 'numpy.ones(p.shape, "float32")'), "type is float32, must be float64"),
        (("((p.name, numpy.ones(p.shape", "((p.name + 'x', numpy.ones(p.shape"), "not a tensor of this model"),
        (("        self._steps += 1\n", "        raise OSError('no float64 here')\n"), "no float64 here"),
    ],
)
def test_what_fails_is_told_and_the_others_are_compared(change, says, toys):
    toys("twin")
    toys("broken", *change)
    ended = verify("-f", "fake,broken,twin")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("- Broken: no proof:")]
    assert says in line
    assert ended.stdout.count("same work") >= 2


@pytest.mark.slow
def test_a_comparison_marks_an_altered_adapter_as_not_comparable(toys, tmp_path):
    toys("twin")
    toys("altered", *LOSS)
    quick = ("-p", "fp32", "-r", 2, "-o", tmp_path / "out", "--set", "altered.step_seconds=0.0001")
    ended = verify("-f", "fake,twin,altered", *quick, command="compare")
    assert ended.returncode == 0, ended.stderr
    page = (tmp_path / "out" / "report.md").read_text()
    rows = {line.split()[1]: line for line in page.splitlines() if line.startswith("| ") and " 1 | 1 | 4 | 4 |" in line}
    assert rows["Altered"].endswith("not comparable: different work |")
    assert rows["Twin"].endswith("same work: 0 (fp64), 0 (fp32) |")
    summary = next(line for line in page.splitlines() if line.startswith("On this machine"))
    assert "On this machine Altered" not in summary
    assert "Not comparable: Altered step_seconds=0.0001" in summary
    assert "Proof of the same work" in (tmp_path / "out" / "report.html").read_text()


def test_without_verification_rows_have_no_proof(toys, tmp_path):
    words = ("-f", "fake", "-p", "fp32", "-r", 1, "--no-verify", "-o", tmp_path / "out")
    ended = verify(*words, command="compare")
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "out" / "proofs").exists()
    page = (tmp_path / "out" / "report.md").read_text()
    why = "no proof: fp64, fp32: no certificate was asked for (--no-verify), and none is there"
    line = f"- Fake: not comparable: {why}; one run: no interval."
    assert line in page.splitlines()
    assert line in ended.stdout.splitlines(), "the terminal's phrase"
    assert f"Proof: {why}." in call("show", tmp_path / "out", "fake").stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-m", "bert_huge"], ["--model", "bert_huge", "Did you mean"]),
        (["-p", "fp8"], ["--precision", "fp8", "fp64"]),
        (["-f", "fakee"], ["--frameworks", "fakee", "Did you mean 'fake'?"]),
        (["--presision", "fp64"], ["--presision", "Did you mean '--precision'?"]),
    ],
)
def test_wrong_requests_exit_with_2_and_no_traceback(words, says):
    ended = verify(*words)
    assert ended.returncode == 2
    assert all(part in ended.stderr for part in says), ended.stderr
    assert "Traceback" not in ended.stderr


# --- the published trajectories ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["resnet50_check", "bert_base_check", "resnet50", "bert_base"])
def test_the_published_trajectory_is_of_the_models_as_they_are(model):
    """`make reference` makes them again after a change of dlperf.models."""
    path = REFERENCES / f"{model}.json"
    assert json.loads(path.read_text())["definition"] == certificates.definition(model)


def test_every_deliberate_deviation_still_has_its_place_in_the_adapters():
    """The suite that trains with them takes minutes; this tells at once that one is out of date."""
    listed = tomllib.loads((ROOT / "tests" / "conformance" / "deviations.toml").read_text())["deviation"]
    adapters = reader.adapters()
    changes = [(name, one) for case in listed for name in adapters for one in case.get(name, ())]
    assert changes
    for name, change in changes:
        text = (adapters[name].folder / change["file"]).read_text()
        assert change["old"] in text, f"{name}/{change['file']} has no {change['old']!r}"


def test_a_proof_of_another_kernel_than_the_measured_one_says_so():
    fused, plain = ({"compute_dtype": "float64", "optimizer": name, "threads": "2"} for name in ("fused", "plain"))
    certificates = judge.judge([evidence("a", effective=plain), evidence("b", effective=plain)])[:1]
    size = judge.size(certificates[0])
    assert judge.verdict(certificates)[1] == f"same work: {size} (fp64)"
    assert judge.verdict(certificates, {**plain, "compute_dtype": "float32", "threads": "8"})[1].endswith("(fp64)")
    assert judge.verdict(certificates, fused) == ("same", f"same work: {size} (fp64 of another kernel)")
    assert judge.verdict(certificates, {"attention": "flash"})[1].endswith("(fp64)"), "one of the two does not tell"


def test_a_verdict_by_the_bars_of_servers_that_keep_float32_is_no_contradiction():
    reference = published.reference(published.published("word2vec_check"))
    told = reference.trajectory
    effective = {**told.effective, "server_dtype": "float32"}
    losses = tuple(loss * (1 + 2e-9) for loss in told.losses)
    one = dataclasses.replace(told, system="mxnet", effective=effective, losses=losses)
    (certificate,) = judge.judge([Evidence(one, reference.sketches)], reference)
    assert certificate.verdict == "same"
    assert list(consistent.contradictions(certificate)) == []
    whole = dataclasses.replace(certificate, trajectory=dataclasses.replace(one, effective=told.effective))
    assert list(consistent.contradictions(whole)) == ["its verdict is same, and it is within the bars of no other"]
