"""DLPERF_MODEL and the like: options from the environment, below the file and the command line."""

import os

import pytest
from commands import FAKE, call

import dlperf
from dlperf import given, library
from dlperf.comparison import store
from dlperf.flags import FLAGS

PLAN = {
    **{"DLPERF_FRAMEWORKS": "fake", "DLPERF_ENV": "current", "DLPERF_MODEL": "bert_tiny", "DLPERF_DEVICE": "cpu"},
    **{"DLPERF_NO_VERIFY": "1", "DLPERF_BATCH_SIZE": "8", "DLPERF_REPEATS": "1", "DLPERF_STRICT": "false"},
}


def test_each_option_has_a_variable_but_for_those_that_scripts_tell_workers():
    keys = {flag.key for flag in given.VARIABLES.values()}
    assert {flag.key for flag in FLAGS if flag.compare} - keys == {"set", "hosts", "launcher"}
    assert not given.OURS & set(given.VARIABLES)


def test_the_command_line_wins_over_the_file_and_the_file_over_variables(tmp_path):
    (tmp_path / "dlperf.toml").write_text("batch_size = 4\nseed = 5\nset = { clock = 'virtual', step_seconds = 0.5 }\n")
    more = {
        **PLAN,
        "DLPERF_SPEC": str(tmp_path / "dlperf.toml"),
        "DLPERF_SEED": "7",
        "DLPERF_OUTPUT": str(tmp_path / "a"),
    }
    ended = call("compare", "--seed", 3, **more)
    assert (ended.returncode, ended.stderr) == (0, "")
    made = dlperf.load(tmp_path / "a")
    assert list(made["throughput_samples_per_second"]) == pytest.approx([4 / 0.5], rel=1e-9)
    assert store.read(tmp_path / "a")[0].spec["seed"] == 3


def test_a_comparison_that_goes_on_is_not_contradicted(tmp_path):
    out = tmp_path / "out"
    assert call("compare", "--set", "clock=virtual", "--output", out, **PLAN).returncode == 0
    again = call("compare", "--resume", out, **{**PLAN, "DLPERF_SPEC": "nowhere", "DLPERF_STRICT": "1"})
    assert (again.returncode, again.stderr) == (3, ""), "strict asks for nothing that was not run"
    assert call("compare", **{**PLAN, "DLPERF_RESUME": str(out)}).returncode == 0
    said = call("compare", "--model", "bert", **{**PLAN, "DLPERF_RESUME": str(out)}).stderr
    assert said.startswith(f"DLPERF_RESUME {out}: ")
    assert said.endswith("Leave out --model.\n")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DLPERF_MODEL", "brt", "DLPERF_MODEL: 'brt' is not usable; allowed: "),
        ("DLPERF_BATCH_SIZE", "many", "DLPERF_BATCH_SIZE: 'many' is not usable; allowed: a whole number from 1"),
        ("DLPERF_STRICT", "maybe", "DLPERF_STRICT: 'maybe' is not usable; allowed: 1, true, 0, false."),
        (
            "DLPERF_LAUNCHER_ARG",
            "a='b",
            "DLPERF_LAUNCHER_ARG a='b: a shell cannot split it into words: No closing quot",
        ),
        ("DLPERF_OUTPUT", "a\nb", "DLPERF_OUTPUT 'a\\nb': has a line break or another control character."),
        ("DLPERF_SPEC", "nowhere.toml", "DLPERF_SPEC nowhere.toml: cannot be read: No such file or directory."),
    ],
)
def test_what_is_wrong_names_the_variable(tmp_path, monkeypatch, name, value, says):
    monkeypatch.chdir(tmp_path)
    ended = call("compare", **{**PLAN, name: value})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith(says)
    assert list(tmp_path.iterdir()) == []


def test_values_of_an_option_that_is_given_again_and_again_are_words():
    found, _ = given.from_environment({"DLPERF_CONTAINER_ARG": "gpus=all 'extra=--a b'", "DLPERF_QUIET": "TRUE"}, [])
    assert found["container_arg"] == ["gpus=all", "extra=--a b"]
    assert found["quiet"] is True
    assert given.from_environment({"DLPERF_MODEL": ""}, [])[0]["model"] is None


def test_what_is_started_does_not_see_them(tmp_path, monkeypatch):
    """And what scripts tell workers passes as before."""
    seen, run = [], library.run

    def look(*given_):
        seen.append({name: value for name, value in os.environ.items() if name.startswith("DLPERF_")})
        return run(*given_)

    monkeypatch.setattr(library, "run", look)
    before = {name: value for name, value in os.environ.items() if name.startswith("DLPERF_")}
    words = ("--set", "clock=virtual", "-o", tmp_path / "out")
    assert call("compare", *words, **PLAN, DLPERF_SET="A", DLPERF_OTHER="x").returncode == 0
    assert seen == [{**before, "DLPERF_SET": "A", "DLPERF_OTHER": "x"}]


def test_a_slip_is_one_warning():
    others = {"DLPERF_TEST_ARM": "x", "DLPERF_CACHE": "y", "DLPERF_HOSTS": "z", "DLPERF_OTHER": "x", "DLPERFMODEL": "x"}
    assert list(given.slips({**others, **PLAN})) == []
    ended = call("compare", *FAKE, "--dry-run", DLPERF_MODELS="bert", DLPERF_BATCHSIZE="3", DLPERF_ZZZ="")
    assert ended.returncode == 0
    assert ended.stderr.splitlines() == [
        "DLPERF_BATCHSIZE is no variable of dlperf. Did you mean 'DLPERF_BATCH_SIZE'?",
        "DLPERF_MODELS is no variable of dlperf. Did you mean 'DLPERF_MODEL'?",
    ]


def test_python_asks_by_keywords_alone(monkeypatch):
    monkeypatch.setenv("DLPERF_MODEL", "no such")
    asked = {"frameworks": "fake", "env": "current", "model": "bert_tiny", "device": "cpu", "dry_run": True}
    assert "bert_tiny" in dlperf.compare(**asked)
