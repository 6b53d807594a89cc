"""`python -m dlperf.why`: where the difference between two rows is. With the framework that sleeps, whose figures are
exact by its own clock; and with a real one, of which a part was made slower."""

import json
from dataclasses import replace

import pytest
from commands import call

from dlperf import why as why_
from dlperf.errors import UsageError
from dlperf.schema import Job

EXACT = ("--model", "bert_tiny", "--device", "cpu", "--env", "current", "--repeats", "2", "--quiet")
SLEEPS = "fake:clock=virtual,step_seconds=0.1"


def why(*words):
    return call("why", *words)


@pytest.mark.parametrize("part", ["product", "normalisation", "optimizer"])
def test_the_part_that_takes_a_fifth_longer_is_the_difference(tmp_path, part):
    ended = why(SLEEPS, f"{SLEEPS},slower={part}", *EXACT, "-o", tmp_path / "why")
    assert ended.returncode == 0, ended.stderr
    sides = json.loads((tmp_path / "why" / "why.json").read_text())
    a, b = sides["a"], sides["b"]
    more = {kind: b["kinds"][kind] - seconds for kind, seconds in a["kinds"].items()}
    assert more[part] == pytest.approx(0.2 * a["kinds"][part])
    assert all(abs(seconds) < 1e-9 for kind, seconds in more.items() if kind != part)
    for side in (a, b):
        assert sum(side["kinds"].values()) == pytest.approx(side["step"]["centre"])


def test_rows_of_a_comparison_are_explained_as_they_were_made(tmp_path):
    rows = ("-m", "bert_tiny", "-p", "fp32", "-r", "1", "--no-verify", "--set", "slower=none,product", "-q")
    fixed = ("--set", "clock=virtual", "--set", "step_seconds=0.1", "-b", "3", "--device", "cpu", "--env", "current")
    made = call("compare", "-f", "fake", *rows, *fixed, "-o", tmp_path / "made")
    assert made.returncode == 0, made.stderr
    folders = sorted((tmp_path / "made" / "runs").iterdir())
    ended = why(*folders, "--env", "current", "-r", "1", "-q", "-o", tmp_path / "why")
    assert ended.returncode == 0, ended.stderr
    assert "12 ms more in matrix products" in ended.stdout
    assert ", batch 3" in (tmp_path / "why" / "why.md").read_text().splitlines()[0]
    refused = why(*folders, "-b", "4", "--env", "current")
    assert refused.returncode == 2
    assert "Leave out --batch-size" in refused.stderr


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (("fake", "fake"), "both rows are the same"),
        (("fake", "fakir"), "Did you mean 'fake'?"),
        (("fake", "fake:slower=all"), "none, normalisation, optimizer, product"),
        (("fake", "fake:slower"), "FRAMEWORK:OPTION=VALUE"),
        (("fake", "fake:faster=product"), "faster"),
        (("fake", "runs/nothing/runs/x"), "runs/nothing"),
        (("fake", "numpy"), "no profiler is known for this framework"),
    ],
)
def test_a_wrong_row_is_one_clear_error(tmp_path, monkeypatch, rows, says):
    monkeypatch.chdir(tmp_path)
    ended = why(*rows, *EXACT)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not [*tmp_path.iterdir()]


def test_one_model_and_one_precision_are_named():
    ended = why("fake", "fake:slower=product", "--env", "current", "--device", "cpu")
    assert ended.returncode == 2
    assert "name one model and one precision" in ended.stderr


def test_rows_on_a_gpu_are_not_explained_yet():
    one = Job("a", "a", "a", "", "bert_tiny", "bert", "cuda", "fp32", "fp32", 4, "synthetic", None, {}, "cuda")
    with pytest.raises(UsageError, match="steps on a GPU are not explained yet"):
        why_._alike(["a", "b"], [one, replace(one, id="b")])
