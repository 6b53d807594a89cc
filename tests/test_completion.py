"""`dlperf completion`: what shells complete, by running what they run."""

import shutil
import subprocess

import pytest
from commands import call

from dlperf import compare, models
from dlperf.catalog import reader
from dlperf.cli import COMMANDS
from dlperf.completion import SHELLS, commands
from dlperf.flags import FLAGS
from dlperf.precision import ASKED

#: how a shell is asked what a line of words, the last to be completed, may go on with
ASKS = {
    "bash": 'COMP_WORDS=({words}); COMP_CWORD={last}; _dlperf; printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": 'setopt ksharrays; COMP_WORDS=({words}); COMP_CWORD={last}; _dlperf; print -l "${{COMPREPLY[@]}}"',
    "fish": "complete -C '{line}' | string split -f1 \\t",
}
OTHERS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not on this machine"))
    for name in ("zsh", "fish")
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    found = {name: tmp_path_factory.mktemp("completion") / name for name in SHELLS}
    for name, path in found.items():
        path.write_text(call("completion", name).stdout)
    return found


@pytest.fixture
def completed(scripts, tmp_path):
    def ask(shell, line):
        """What the last word may become; a word may be empty."""
        words = line.split(" ")
        asked = ASKS[shell].format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1, line=line)
        command = [shell, *(["-f"] if shell == "zsh" else []), "-c", f"source {scripts[shell]}; {asked}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
        assert ended.stderr == ""
        return ended.stdout.split()

    return ask


def test_bash_completes_commands_options_and_values(completed, tmp_path):
    (tmp_path / "plan.toml").touch()
    assert completed("bash", "dlperf ") == [*COMMANDS, "--help", "--version"]
    assert completed("bash", "dlperf comp") == ["compare", "completion"]
    assert completed("bash", "dlperf compare --mod") == ["--model"]
    assert completed("bash", "dlperf compare --model bert_b") == ["bert_base", "bert_base_512"]
    assert completed("bash", "dlperf compare -p fp32,a") == ["fp32,amp", "fp32,auto"]
    assert completed("bash", "dlperf compare --precision = am") == ["amp"], "bash splits at ="
    assert completed("bash", "dlperf compare --precision =") == [*ASKED, "auto"]
    assert completed("bash", "dlperf compare --precision=fp32,am") == ["--precision=fp32,amp"], "unless told not to"
    assert completed("bash", "dlperf compare --frameworks py") == ["pytorch", "pytorch-examples"]
    assert completed("bash", "dlperf compare --device cpu,") == [], "takes one"
    assert completed("bash", "dlperf compare --spec pl") == ["plan.toml"]
    assert completed("bash", "dlperf compare --seed ") == []
    assert completed("bash", "dlperf list ") == ["frameworks", "models", "options", "support"]
    assert completed("bash", "dlperf data photos --cl") == ["--classes"]
    assert completed("bash", "dlperf envs install mx") == ["mxnet"]
    assert "cpu-horovod" in completed("bash", "dlperf envs install --device ")
    assert completed("bash", "dlperf verify -p fp64,fp3") == ["fp64,fp32"]
    assert completed("bash", "dlperf nothing ") == []


@pytest.mark.parametrize("shell", OTHERS)
def test_other_shells_complete_the_same(completed, shell):
    assert "verify" in completed(shell, "dlperf ver")
    assert "fp32,amp" in completed(shell, "dlperf compare --precision fp32,a")
    assert "cuda" in completed(shell, "dlperf compare --device cu")
    assert "frameworks" in completed(shell, "dlperf list f")


def test_scripts_have_all_that_the_parsers_have():
    """And the values of each option that names a closed set are known."""
    found = commands()
    assert list(found) == list(COMMANDS)
    flags = {name for option in found["compare"].options for name in option.names}
    assert flags == {name for action in compare.parser()._actions for name in action.option_strings}
    values = {option.names[-1]: option.values for option in found["compare"].options}
    assert set(values["--frameworks"]) == set(reader.adapters())
    assert {*models.NAMES, *models.ALIASES, *models.GROUPS} == set(values["--model"])
    for flag in FLAGS:
        if flag.takes == "nothing" and flag.compare:
            assert not any(option.takes for option in found["compare"].options if flag.flag in option.names)
    for shell in SHELLS:
        script = call("completion", shell).stdout
        assert all(name in script for name in (*COMMANDS, *models.NAMES, "sequence-length", "ngc-pytorch"))


def test_each_value_that_is_completed_is_one_that_the_command_takes():
    values = {option.names[-1]: option.values for option in commands()["compare"].options if option.values}
    for name, allowed in values.items():
        for value in allowed:
            ended = call("compare", "--dry-run", "-f", "fake", "-m", "bert_tiny", "--device", "cpu", name, value)
            assert f"{name}: {value!r} is not usable" not in ended.stderr


def test_a_shell_that_is_not_known_is_one_line():
    ended = call("completion", "tcsh")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
