"""No text of a user's becomes shell: each launcher's script is run with stand-ins for all programs, in a folder and
with arguments of hostile names, and what arrives is those names."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dlperf import launchers
from dlperf.launchers import Launch, objects
from dlperf.launchers.containers import Container
from dlperf.launchers.jobs import Batch

#: each makes the file `owned` where a shell reads it
HOSTILE = (
    "$(touch owned)", "`touch owned`", "'; touch owned; '", '"; touch owned; "', "a\ntouch owned\n", "a\r\ntouch owned",
    "&& touch owned", "| touch owned", "\\'; touch owned #", "-n $(touch owned)", "--output=x;touch owned",
    "MANIFEST\ntouch owned", "${IFS}$(touch owned)", "a: b\ntouch owned", "*", "~", "{a,b}", "ü $(touch owned)",
)  # fmt: skip
PROGRAMS = ("sbatch", "scontrol", "squeue", "scancel", "srun", "mpirun", "ssh", "horovodrun", "kubectl")
ENGINES = ("docker", "podman", "apptainer")
#: notes what it was called with, and runs what ssh would hand to the other side's shell
STAND_IN = """\
#!{python}
import json, os, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
    if "HOSTILE" in os.environ:
        file.write(json.dumps(["HOSTILE", os.environ["HOSTILE"]]) + "\\n")
if os.path.basename(sys.argv[0]) == "ssh":
    os.execvp("sh", ["sh", "-c", sys.argv[-1]])
print("Complete" if "get" in sys.argv else "COMPLETED")
"""
NAMES = [name for name in launchers.names() if name != "toy"]


def launch(**changes):
    fields = {"title": "t", "name": "n", "code": Path("../code"), "device": "cpu", "threads": 1, "variables": {}}
    return Launch(**{**fields, "python": Path("python3"), "nnodes": 1, "nproc_per_node": 2, **changes})


def run(folder: Path, script: str, monkeypatch, seconds=1):
    """Its parts, too. The calls of the stand-ins."""
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    calls = folder.parent / "calls"
    calls.write_text("")
    for name in (*PROGRAMS, *ENGINES, "python3"):
        (programs / name).write_text(STAND_IN.format(python=sys.executable, calls=str(calls)))
        (programs / name).chmod(0o755)
    (folder / "launch.sh").write_text(script)
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_NODELIST": "a"}
    for part in ([], ["rank"], ["node", "0"], ["batch"], ["inside"]):
        words = ["timeout", "-s", "KILL", str(seconds), "sh", str(folder / "launch.sh"), *part]
        subprocess.run(words, env=variables, cwd=folder, capture_output=True)
    return [json.loads(line) for line in calls.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_text_runs(name, tmp_path, monkeypatch):
    source, launcher = random.Random(7), launchers.find(name)
    for number, text in enumerate(source.sample(HOSTILE, 8)):
        folder = (
            tmp_path / str(number) / source.choice(["x$(touch owned)", "it's; touch owned; '", 'a"; touch owned; "'])
        )
        folder.mkdir(parents=True)
        given = {key: text for key in launcher.arguments if key not in ("extra", "rsh", "setup")}
        made = launch(title=text, name=text, variables={"A": text}, arguments=given)
        if launcher.many_nodes:
            made = replace(made, nnodes=2, hosts=("one", "two"))
        called = run(folder, launcher.script(made), monkeypatch)
        assert not list(tmp_path.rglob("owned")), (text, called)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
@pytest.mark.parametrize("name", NAMES)
def test_a_worker_gets_its_variables_as_they_are_also_through_a_container(name, engine, tmp_path, monkeypatch):
    """In the environment of the process that each rank becomes, whatever starts it."""
    (tmp_path / "run").mkdir()
    launcher, text = launchers.find(name), " ".join(HOSTILE)
    container = None if launcher.no_containers else Container(engine, text)
    made = launch(title=text, variables={"HOSTILE": text}, container=container)
    made = replace(made, arguments=dict.fromkeys(launcher.required, "x"))
    if launcher.many_nodes:
        made = replace(made, nnodes=2, hosts=("one", "two"))
    called = run(tmp_path / "run", launcher.script(made), monkeypatch, 10)
    assert not list(tmp_path.rglob("owned")), called
    assert {words[1] for words in called if words[0] == "HOSTILE"} == {text}
    if container:
        assert any(text in words for words in called if words[0].endswith(engine))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_container_gets_names_as_they_are(text, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    container = Container("docker", "image:1", "cpu", "", {"network": text, "shm-size": text})
    called = run(tmp_path / "run", launchers.find("local").script(launch(container=container)), monkeypatch)
    assert not list(tmp_path.rglob("owned"))
    words = next(words for words in called if "--network" in words)
    assert words[words.index("--network") + 1] == text


@pytest.mark.parametrize("text", [*HOSTILE, "true", "null", "1e3", "a:", "- a", "#", "@x", "plain/image:1"])
def test_an_object_of_kubernetes_has_names_as_they_are(text, tmp_path):
    """Those that are not refused before: the folder, commands that a site begins with, words of the command."""
    given = {"image": text, "claim": text, "mount": f"{tmp_path}/" + text, "memory": text, "namespace": text}
    folder = Path(given["mount"], "out-ab12cd")
    words = ["--set", text]
    asked = Batch("dlperf-out", 2, 1, "cpu", 30, folder, words, words, text, (), given)
    made = objects.job(asked)
    assert yaml.safe_load(objects.yaml(made)) == made
    (container,) = made["spec"]["template"]["spec"]["containers"]
    variables = {**os.environ, "HOME": str(tmp_path / "home"), "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "x-1"}
    subprocess.run([*container["command"], *container["args"]], env=variables, cwd=tmp_path, capture_output=True)
    assert (folder / "allocation").is_dir()
    assert not list(tmp_path.rglob("owned"))
