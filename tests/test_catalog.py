"""Support is data: complete, without overlap, and readable in errors."""

import pytest

from dlperf import catalog
from dlperf.errors import UsageError

ADAPTERS = catalog.adapters()


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_combination_is_in_exactly_one_support_entry(name):
    for combination in catalog.combinations():
        entries = [entry for entry in ADAPTERS[name].support if entry.covers(*combination)]
        assert len(entries) == 1, (combination, entries)


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_device_is_in_at_most_one_distributed_entry(name):
    for device in catalog.DEVICES:
        entries = [entry for entry in ADAPTERS[name].distributed if device in entry.device]
        assert len(entries) <= 1, (device, entries)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_has_a_module_and_a_lock_for_what_it_supports(name):
    adapter = ADAPTERS[name]
    for entry in adapter.support:
        if entry.status in catalog.RUNNABLE:
            for family in entry.family:
                assert (adapter.folder / f"{family}.py").exists()
            for device in entry.device:
                assert adapter.environments[device].lock.exists()


@pytest.mark.parametrize("name", [name for name, adapter in ADAPTERS.items() if adapter.default])
def test_cpu_and_cuda_are_locked_with_hashes(name):
    for environment in ADAPTERS[name].environments.values():
        pins = [line for line in environment.lock.read_text().splitlines() if "==" in line and not line.startswith("#")]
        assert pins
        assert environment.lock.read_text().count("--hash=sha256:") >= len(pins)
    assert set(ADAPTERS[name].environments) == {"cpu", "cuda"}


@pytest.mark.parametrize("name", ADAPTERS)
def test_twins_have_the_same_names_in_the_same_order(name):
    """versions, build, loss and Network, so that any two scripts can be read side by side."""
    if name == "fake":
        return
    order = [definition for definition in ("def build(", "def loss(", "class Network")]
    for family in ("resnet", "bert"):
        text = (ADAPTERS[name].folder / f"{family}.py").read_text()
        places = [text.find("\n" + definition) for definition in order]
        assert -1 not in places, (family, order, places)
        assert places == sorted(places)


def test_every_wrong_key_of_an_adapter_toml_is_named(tmp_path):
    (tmp_path / "adapter.toml").write_text(
        'title = ""\ndistribution = "x"\ncolour = "red"\n'
        '[environment.tpu]\npython = []\n[[support]]\nstatus = "perhaps"\nprecision = ["fp7"]\n[options.speed]\n'
        '[[distributed]]\nstatus = "never"\n'
    )
    with pytest.raises(UsageError) as caught:
        catalog.read(tmp_path)
    fields = [problem.field.rpartition(": ")[2] for problem in caught.value.problems]
    assert {
        "colour",
        "title",
        "environment",
        "support[0].status",
        "support[0].precision",
        "options.speed.values",
        "distributed[0].why",
    } <= set(fields)


def test_a_broken_adapter_toml_is_one_clear_error(tmp_path):
    (tmp_path / "adapter.toml").write_text("title = \n")
    with pytest.raises(UsageError, match="a readable TOML file"):
        catalog.read(tmp_path)
