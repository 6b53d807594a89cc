"""Support is data: complete, without overlap, and readable in errors."""

import os
import re
import shutil
from collections import Counter
from itertools import product

import pytest
from packaging.requirements import Requirement

from dlperf.catalog import adapter, reader
from dlperf.catalog.adapter import DEVICES, RUNNABLE
from dlperf.errors import UsageError
from dlperf.models import FAMILY_OF

ADAPTERS = reader.adapters()
#: those whose training scripts are ours
NATIVE = [name for name, adapter in ADAPTERS.items() if not adapter.scripts]
UPSTREAM = [name for name in ADAPTERS if name not in NATIVE]


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_combination_is_in_exactly_one_support_entry(name):
    """Families that it does not have may be left out."""
    for combination in adapter.combinations():
        entries = [entry for entry in ADAPTERS[name].support if entry.covers(*combination)]
        assert len(entries) == 1 or (not entries and combination[0] not in ADAPTERS[name].families), combination


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_device_is_in_at_most_one_distributed_entry(name):
    for device in DEVICES:
        entries = [entry for entry in ADAPTERS[name].distributed if device in entry.device]
        assert len(entries) <= 1, (device, entries)


@pytest.mark.parametrize("name", NATIVE)
def test_an_adapter_has_a_module_and_a_lock_for_what_it_supports(name):
    adapter = ADAPTERS[name]
    for entry in adapter.support:
        if entry.status in RUNNABLE:
            for family in entry.family:
                assert (adapter.folder / f"{family}.py").exists()
            for device in entry.device:
                assert adapter.environments[device].lock.exists()


def test_a_family_without_a_module_is_not_implemented_yet(tmp_path):
    """Whatever adapter.toml says of all families; none of its lines names this one."""
    folder = shutil.copytree(ADAPTERS["fake"].folder, tmp_path / "fake")
    (folder / "bert.py").unlink()
    left = reader.read(folder)
    assert left.support_of("resnet", "cpu", "fp32", "synthetic").status == "yes"
    without = left.support_of("bert", "cpu", "fp32", "synthetic")
    assert (without.status, without.why) == ("not_yet", "not implemented in this adapter yet")


@pytest.mark.parametrize("name", [name for name, adapter in ADAPTERS.items() if adapter.default])
def test_cpu_and_cuda_are_locked_with_hashes(name):
    environments = ADAPTERS[name].environments
    for lock in [lock for environment in environments.values() for lock in environment.locks]:
        pins = [line for line in lock.read_text().splitlines() if "==" in line and not line.startswith("#")]
        assert pins
        assert lock.read_text().count("--hash=sha256:") >= len(pins)
    assert {key for key in environments if "-" not in key} == {"cpu", "cuda"}


@pytest.mark.parametrize("name", [name for name, adapter in ADAPTERS.items() if adapter.default])
def test_a_lock_has_what_each_python_and_machine_needs(name):
    """Of packages with several versions the markers choose one, and of the framework's packages too. Whether there are
    wheels is for an index to say."""
    spec = ADAPTERS[name].environments["cpu"]
    text = spec.lock.read_text()
    listed = [line.removesuffix("\\") for line in text.splitlines() if re.match(r"[\w.-]+==", line)]
    pins = [Requirement(line) for line in listed]
    forked = {name for name, count in Counter(pin.name for pin in pins).items() if count > 1}
    if "--universal" in text:
        oldest = min(spec.python, key=lambda version: int(version.partition(".")[2]))
        assert f"--python-version {oldest} " in text
    for python, machine in product(spec.python, spec.machines):
        place = {"python_full_version": python + ".0", "platform_machine": machine, "sys_platform": "linux"}
        chosen = Counter(pin.name for pin in pins if not pin.marker or pin.marker.evaluate(place))
        assert {chosen[one] for one in forked} <= {1}, (python, machine)
        assert sum(chosen[one] for one in ADAPTERS[name].distribution) == 1, (python, machine)


@pytest.mark.parametrize("name", ["pytorch", "tensorflow", "mxnet"])
def test_horovod_is_an_environment_of_its_own_on_the_cpu(name):
    option = ADAPTERS[name].options["communication"]
    assert option.default("cpu") != "horovod"
    for device, key in [("cpu", "cpu-horovod"), ("cuda", "cuda-horovod")]:
        assert (
            ADAPTERS[name].environment_key(device, {"communication": option.default(device), "compile": "on"}) == device
        )
        assert ADAPTERS[name].environment_key(device, {"communication": "horovod", "compile": "on"}) == key
    assert ADAPTERS[name].environments["cpu-horovod"].build
    assert "cuda-horovod" not in ADAPTERS[name].environments


def test_rows_with_servers_have_an_environment_of_their_own_where_there_is_one():
    assert ADAPTERS["paddle"].environment_key("cpu", {}, on_servers=True) == "cpu-servers"
    assert ADAPTERS["paddle"].environment_key("cpu", {}) == "cpu"
    assert ADAPTERS["mxnet"].environment_key("cpu", {}, on_servers=True) == "cpu"


@pytest.mark.parametrize("name", NATIVE)
def test_twins_have_the_same_names_in_the_same_order(name):
    """versions, build, loss and Network, so that any two scripts can be read side by side."""
    if name == "fake":
        return
    order = [definition for definition in ("def build(", "def loss(", "class Network")]
    for family in ADAPTERS[name].families:
        text = (ADAPTERS[name].folder / f"{family}.py").read_text()
        places = [text.find("\n" + definition) for definition in order]
        assert -1 not in places, (family, order, places)
        assert places == sorted(places)


@pytest.mark.parametrize("name", UPSTREAM)
def test_an_upstream_system_is_data_alone_and_declares_what_matters(name):
    adapter = ADAPTERS[name]
    assert not adapter.default
    assert not list(adapter.folder.glob("*.py"))
    families = {family for entry in adapter.support if entry.status in RUNNABLE for family in entry.family}
    assert {FAMILY_OF[model] for model in adapter.scripts} == families
    for script in adapter.scripts.values():
        declared = {key for part in script.effective for key in part.values}
        family = {"resnet": {"label_smoothing", "layout"}, "bert": {"clip_norm", "dropout", "masked_positions"}}
        family["vgg"] = {"dropout", "layout"}
        family["gpt"] = {"clip_norm", "vocabulary", "attention"}
        family["transformer"] = {"label_smoothing", "dropout", "vocabulary", "attention"}
        needed = {"compute_dtype", "loss_scale", "optimizer", "compile", "data"} | family[FAMILY_OF[script.model]]
        assert needed <= declared
        assert script.differs


def problems(folder):
    """What is wrong with an adapter's folder."""
    with pytest.raises(UsageError) as caught:
        reader.read(folder)
    return caught.value.problems


def fields(folder):
    return {problem.field.rpartition(": ")[2] for problem in problems(folder)}


def test_every_key_of_a_wrong_type_and_every_unknown_one_is_named(tmp_path):
    (tmp_path / "adapter.toml").write_text(
        'title = ""\ncolour = "red"\ndefault = 1\nkernels = {}\nsupport = [1, {}]\n'
        '[source]\nrepository = "r"\ncommit = ""\nbranch = "x"\n'
        '[environment.cpu-x.build]\nflags = "-O3"\nreplace = [{ file = "a", old = "b", to = "c" }]\n'
        '[environment.cpu]\npython = []\nmemory = nan\nunavailable = { aarch64 = "" }\n'
        '[environment.cpu-m]\npython = [3.11]\nunavailable = "no wheel"\ngigabytes = -1\nmachines = "x86_64"\n'
        '[options.speed]\nlabels = "x"\n'
        '[script.x]\nfolder = "f"\nsteps = 3\nextra_steps = -1\nwarmup_steps = true\n'
        "[script.x.log]\nline = 1979-05-27\nfirst = 9007199254740993\n"
        '[[script.x.differs]]\nwords = "x"\n'
        '[[script.x.command]]\nwords = "x"\nwhen = { device = { a = 1 } }\n'
    )
    assert fields(tmp_path) == {
        *("title", "colour", "default", "kernels", "support[0]", "support[1].status"),
        *("source.commit", "source.branch", "environment.cpu-x.python", "environment.cpu-x.build.flags"),
        *("environment.cpu-x.build.replace[0].to", "environment.cpu-x.build.replace[0].new"),
        *("environment.cpu.python", "environment.cpu.memory", "environment.cpu.unavailable.aarch64"),
        *("environment.cpu-m.python[0]", "environment.cpu-m.unavailable", "environment.cpu-m.gigabytes"),
        *("environment.cpu-m.machines", "options.speed.labels", "options.speed.values", "script.x.batch"),
        *("script.x.steps", "script.x.extra_steps", "script.x.warmup_steps", "script.x.log.line"),
        *("script.x.log.first", "script.x.differs[0].words", "script.x.differs[0].text"),
        "script.x.command[0].when.device",
    }  # fmt: skip
    said = {problem.field.rpartition(": ")[2]: str(problem) for problem in problems(tmp_path)}
    assert said["title"].endswith(": title: '' is not usable; allowed: a string that is not empty.")
    assert said["environment.cpu.memory"].endswith("allowed: a number.")
    assert said["environment.cpu.python"].endswith("allowed: a list that is not empty.")
    assert said["script.x.extra_steps"].endswith(" '-1' is not usable; allowed: a whole number >= 0.")


def test_every_wrong_value_of_a_script_is_named(tmp_path):
    (tmp_path / "adapter.toml").write_text(
        'title = "x"\n[source]\nrepository = "r"\ncommit = "a b"\n'
        '[image.tpu.named]\nnew = "x"\n[options.image]\nvalues = ["old"]\n'
        '[script.resnet5]\nfolder = "f"\nbatch = "gpu"\nstart = "twice"\nbatch_size = { fp7 = 1 }\n'
        '[[script.resnet5.command]]\nwords = "a \'b"\nwhen = { precision = "fp7", colour = "red" }\n'
        '[[script.resnet5.effective]]\nwhen = "always"\noptimizer = { name = "sgd" }\n'
        "[script.resnet5.log]\nline = '(?P<step>[)'\nranks = \"some\"\n"
        '[script.bert_base]\nfolder = "f"\nbatch = "node"\n'
        "[script.bert_base.log]\nline = '(?P<step>.)(?P<timestamp>.)(?P<rate>.)'\n"
        '[script.gpt2]\nfolder = "f"\nbatch = "node"\n'
        "[script.gpt2.log]\nline = '(?P<step>.)(?P<samples>.)(?P<rate>.)'\n"
    )
    assert fields(tmp_path) == {
        *("source.commit", "image", "image.tpu.named", "script", "script.resnet5.batch", "script.resnet5.batch_size"),
        *("script.resnet5.start", "script.resnet5.command[0].words", "script.resnet5.effective[0].when"),
        *("script.resnet5.effective[0].optimizer", "script.resnet5.log.line", "script.resnet5.log.ranks"),
        *("script.resnet5.when", "script.resnet5.when.precision", "script.bert_base.log.line"),
        *("script.bert_base.log.timestamp", "script.gpt2.log.line"),
    }  # fmt: skip


def test_every_wrong_value_of_an_adapter_toml_is_named(tmp_path):
    (tmp_path / "adapter.toml").write_text(
        'title = "x"\ndistribution = "x"\n'
        '[environment.tpu]\npython = ["3.11"]\n[[support]]\nstatus = "perhaps"\nprecision = ["fp7"]\n'
        '[[distributed]]\nstatus = "never"\n'
        '[options.kind]\nvalues = ["a"]\nenvironment = { b = "x", a = "y" }\n'
        '[environment.cpu]\npython = ["3.11"]\nmachines = ["arm"]\nunavailable = { ppc64 = "none" }\n'
        '[environment.cpu-x]\npython = ["3.11"]\ncuda = 12\n'
        '[environment.cpu-n]\npython = ["3.11"]\nmachines = ["aarch64"]\nunavailable.aarch64 = "both"\n'
        '[options.start]\nvalues = ["a"]\nlauncher = { a = "mpi", b = "horovod" }\n'
        'defaults = { cuda = "b", tpu = "a" }\n'
    )
    found = problems(tmp_path)
    assert fields(tmp_path) == {
        *("environment", "support[0].status", "support[0].precision", "distributed[0].why", "environment.cpu.machines"),
        *("environment.cpu.unavailable.ppc64", "environment.cpu-x.cuda", "environment.cpu-n.unavailable.aarch64"),
        *("options.kind.environment", "options.start.launcher", "options.start.defaults.cuda"),
        *("options.start.defaults.tpu", "support[0].why"),
    }  # fmt: skip
    assert [str(p).rpartition("environment: ")[2] for p in found if "kind.environment" in p.field] == [
        "'b' is not usable; allowed: a.",
        "there is no [environment.cpu-y].",
    ]
    assert [p.value for p in found if p.field.endswith("options.start.launcher")] == ["mpi", "b"]


@pytest.mark.parametrize("value", ['["mpi"]', '["torchrunn"]'])
def test_wrong_launchers_of_an_adapter_toml(tmp_path, value):
    (tmp_path / "adapter.toml").write_text(f'title = "x"\ndistribution = "x"\nlaunchers = {value}\n')
    with pytest.raises(UsageError, match=r"launchers: .*allowed: .*torchrun, horovod"):
        reader.read(tmp_path)


@pytest.mark.parametrize("data", [b"\xff", b"x = " + b"9" * 5000, b"x = " + b"[" * 10_000])
def test_an_adapter_toml_that_is_none_is_one_clear_error(tmp_path, data):
    (tmp_path / "adapter.toml").write_bytes(data)
    with pytest.raises(UsageError, match=r"cannot be read as TOML: "):
        reader.read(tmp_path)


def test_an_adapter_toml_that_is_no_file_is_one_clear_error(tmp_path):
    os.mkfifo(tmp_path / "adapter.toml")
    with pytest.raises(UsageError, match=r"adapter.toml: it is not a file\.$"):
        reader.read(tmp_path)


def test_an_adapter_toml_without_end_is_one_clear_error(tmp_path):
    (tmp_path / "adapter.toml").write_text("#" * (reader.LONGEST + 1))
    with pytest.raises(UsageError, match=r"adapter.toml: it is longer than 1048576 bytes\.$"):
        reader.read(tmp_path)


def test_a_folder_that_no_command_could_name_is_one_clear_error(tmp_path):
    shutil.copytree(ADAPTERS["fake"].folder, tmp_path / "a,\nb")
    with pytest.raises(UsageError, match=r"an adapter's folder is named with letters"):
        reader.read(tmp_path / "a,\nb")


def test_one_bad_adapter_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    """It is left out, unless it is asked for."""
    for name, toml in (("bad", "title = 5\nspeed = 1\n"), ("good", 'title = "x"\ndistribution = "x"\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter.toml").write_text(toml)
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path))
    assert set(reader.adapters(["good", "other"])) == {*ADAPTERS, "good"}
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"'bad' is left out. {tmp_path}/bad/adapter.toml: title: '5' is not usable; allowed: a stri")
    assert said.endswith(" (and 2 more)")
    with pytest.raises(UsageError) as caught:
        reader.adapters(["bad"])
    assert len(caught.value.problems) == 3


def test_a_broken_adapter_toml_is_one_clear_error(tmp_path):
    (tmp_path / "adapter.toml").write_text("title = \n")
    with pytest.raises(UsageError, match=r"cannot be read as TOML: Invalid value \(at line 1, column 9\)\.$"):
        reader.read(tmp_path)
