"""Compilers and APEX as declared options: rows of their own, with the time of the first step, or with why not."""

import pytest
from commands import records, run

from dlperf.catalog import reader
from dlperf.flags import DEFAULTS
from dlperf.planning import checks, plan

ADAPTERS = reader.adapters()


def systems(**given):
    arguments = {**DEFAULTS, "model": "resnet50", "device": "cpu", "dry_run": True, "tuned": "off", **given}
    return {job.system for job in plan.from_spec(checks.from_arguments(arguments, ADAPTERS), ADAPTERS).jobs}


def test_compilers_are_rows_of_their_own():
    found = systems(compile="on,off", frameworks="pytorch,tensorflow,paddle,jax")
    assert found == {"pytorch", "pytorch+inductor", "tensorflow", "tensorflow+xla", "paddle", "paddle+cinn", "jax"}


def test_a_default_may_be_of_a_device():
    """What differs from it is in the name."""
    assert systems(frameworks="pytorch") == {"pytorch"}
    assert systems(frameworks="pytorch", device="cuda") == {"pytorch+inductor"}
    assert systems(frameworks="pytorch", device="cuda", compile="off") == {"pytorch compile=off"}
    assert systems(frameworks="tensorflow", device="cuda") == {"tensorflow+xla"}


def test_apex_is_a_row_of_its_own():
    assert systems(frameworks="pytorch", set=["optimizer=apex"]) == {"pytorch+apex"}


@pytest.mark.framework
@pytest.mark.parametrize(
    ("framework", "options", "says"),
    [
        ("pytorch", ["--set", "optimizer=apex"], "apex's fused optimizers run on CUDA only"),
        ("paddle", ["--compile", "on"], "this build of PaddlePaddle has no CINN"),
    ],
)
@pytest.mark.parametrize("model", ["resnet_tiny", "bert_tiny"])
def test_what_a_build_lacks_is_a_row_that_says_so(tmp_path, framework, options, says, model):
    words = ["-f", framework, "-m", model, "--device", "cpu", "-r", 1, "--no-verify", "--tuned", "off"]
    words += ["-o", tmp_path / "out"]
    run("compare", *words, *options)
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "unsupported"
    assert says in record.failure.message


@pytest.mark.framework
@pytest.mark.parametrize(("framework", "compile"), [("tensorflow", "xla"), ("jax", "xla")])
def test_the_time_of_the_first_step_is_in_record_and_report(tmp_path, framework, compile):
    words = ["-f", framework, "-m", "resnet_tiny", "--device", "cpu", "-r", 1, "--no-verify", "--compile", "on"]
    ended = run("compare", *words, "-o", tmp_path / "out")
    (record,) = records(tmp_path / "out")
    assert record.failure is None, ended.stderr
    assert compile in record.effective["compile"].lower()
    assert record.first_step_seconds > min(window.seconds / window.steps for window in record.windows), "it compiles"
    report = (tmp_path / "out" / "report.md").read_text()
    assert "first step (s)" in report
    assert f" {record.first_step_seconds:,.2f} |" in report
