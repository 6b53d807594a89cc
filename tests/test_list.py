"""`dlperf list`: frameworks, models, options and support, from the catalog and the models."""

import json
import re

import pytest
from commands import call

from dlperf import models
from dlperf.catalog import reader
from dlperf.catalog.adapter import combinations
from dlperf.list import LISTS

ADAPTERS = reader.adapters()


def listed(what):
    ended = call("list", what, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_frameworks_have_titles_devices_and_the_versions_of_their_locks():
    found = {row["framework"]: row for row in listed("frameworks")}
    assert list(found) == list(ADAPTERS)
    jax = found["jax"]
    assert (jax["title"], jax["kind"], jax["default"], jax["devices"]) == ("JAX", "native", True, ["cpu", "cuda"])
    lock = (ADAPTERS["jax"].folder / "requirements.cpu.txt").read_text()
    assert f"\njax=={jax['versions']['cpu']} " in lock
    for name, adapter in ADAPTERS.items():
        locked = {key for key in adapter.environments if adapter.has_lock(key)}
        assert set(found[name]["versions"]) == locked, "each lock pins the package that is the framework"


def test_models_are_those_that_have_a_title():
    found = {row["model"]: row for row in listed("models")}
    assert list(found) == [name for name in models.NAMES if name in models.family(name).TITLES]
    assert found["bert_base"]["aliases"] == ["bert"]
    assert (found["resnet50"]["parameters"], found["resnet50"]["gigaflops"]) == (25_557_032, 24.5)


def test_models_without_a_title_are_named_and_listed_on_request():
    small = [name for name in models.NAMES if name not in models.family(name).TITLES]
    assert (
        call("list", "models")
        .stdout.splitlines()[-1]
        .endswith(f"{len(small)} more, which train in a moment: " + ", ".join(small))
    )
    every = json.loads(call("list", "models", "--all", "--json").stdout)
    assert [row["model"] for row in every] == list(models.NAMES)
    assert small[-1] in call("list", "--all").stdout


def test_options_have_their_values_the_default_first():
    found = {(row["framework"], row["option"]): row for row in listed("options")}
    clock = {"values": ["real", "virtual"], "any": False, "default": {}, "families": ["all"]}
    assert clock.items() <= found["fake", "clock"].items()
    assert len(found) == sum(len(adapter.options) for adapter in ADAPTERS.values())


def test_support_covers_each_combination_once_and_agrees_with_the_catalog():
    rows = listed("support")

    def has(values, value):
        return value in values or list(values) == ["all"]

    for name, adapter in ADAPTERS.items():
        for family, device, precision, input in combinations():
            (row,) = (
                one
                for one in rows
                if one["framework"] == name
                and device in one["device"]
                and family in one["families"]
                and has(one["precisions"], precision)
                and has(one["input"], input)
            )
            known = adapter.support_of(family, device, precision, input)
            assert (row["status"], row["why"]) == (known.status, known.why)


@pytest.mark.parametrize("what", LISTS)
def test_each_list_is_an_aligned_table(what):
    ended = call("list", what)
    head, *lines = (line for line in ended.stdout.splitlines() if not line.startswith("--all lists"))
    assert (ended.returncode, ended.stderr, len(lines)) == (0, "", len(listed(what)))
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", head)]
    assert len(starts) == len(listed(what)[0])
    assert all(line[at] != " " and line[at - 2 : at] in ("", "  ") for line in lines for at in starts)


def test_without_a_word_all_are_listed():
    assert call("list").stdout == "\n".join(call("list", what).stdout for what in LISTS)
    assert list(json.loads(call("list", "--json").stdout)) == list(LISTS)


def test_a_list_that_does_not_exist_is_one_line():
    ended = call("list", "modles")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "'models'" in ended.stderr
