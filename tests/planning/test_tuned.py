"""--tuned: which rows are made on which CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlperf.catalog import reader
from dlperf.errors import UsageError
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import from_spec

ADAPTERS = reader.adapters()
AVX2 = ("avx", "avx2", "fma")
AVX512 = (*AVX2, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")
#: of Zen 5, and of Intel since Sapphire Rapids
WIDE = (*AVX512, "avx_vnni")


def systems(vendor: str, sets: tuple[str, ...] | None, tuned: str = "both", **more: object) -> dict[str, str]:
    """The systems of PaddlePaddle's rows on a CPU, and with what they are tuned."""
    words = {"model": "bert_tiny", "precision": "fp32", "frameworks": "paddle", "device": "cpu", "env": "venv", **more}
    rest = dict.fromkeys(["protocol", "compile", "timeout", "seed", "threads"])
    spec = from_arguments({**rest, "data": "synthetic", "dry_run": False, "tuned": tuned, **words}, ADAPTERS)
    spec = replace(spec, instructions=None if sets is None else (vendor, *sets))
    return {job.system: job.about.get("tuned", "") for job in from_spec(spec, ADAPTERS, "x86_64").jobs}


@pytest.mark.parametrize(
    ("vendor", "sets", "tuned", "rows"),
    [
        ("AuthenticAMD", AVX512, "both", ["paddle", "paddle+mkl-avx512"]),
        ("AuthenticAMD", AVX2, "both", ["paddle", "paddle+mkl-avx2"]),
        ("AuthenticAMD", AVX512, "on", ["paddle+mkl-avx512"]),
        ("AuthenticAMD", AVX512, "off", ["paddle"]),
        ("GenuineIntel", AVX512, "both", ["paddle"]),
        ("GenuineIntel", AVX512, "on", ["paddle"]),
        ("NobodyKnows", AVX512, "both", ["paddle"]),
        ("", None, "both", ["paddle"]),
    ],
)
def test_rows_that_are_tuned_for_a_cpu(vendor: str, sets: tuple[str, ...] | None, tuned: str, rows: list[str]) -> None:
    found = systems(vendor, sets, tuned)
    assert list(found) == rows
    assert all(("MKL_DEBUG_CPU_TYPE" in about) == ("+" in system) for system, about in found.items())


@pytest.mark.parametrize(
    ("framework", "model", "system", "on_intel"),
    [
        ("pytorch", "bert_tiny", "pytorch+onednn-linear", False),
        ("pytorch", "ctr_dnn", "pytorch+onednn-linear", False),
        ("oneflow", "bert_tiny", "oneflow+openblas-0.3.21", True),
    ],
)
def test_what_gains_by_wide_avx512_alone_is_tuned_where_that_is(
    framework: str, model: str, system: str, on_intel: bool
) -> None:
    rows = {
        (vendor, sets): list(systems(vendor, sets, frameworks=framework, model=model))
        for vendor in ("AuthenticAMD", "GenuineIntel", "NobodyKnows")
        for sets in (WIDE, AVX512)
    }
    assert [key for key, found in rows.items() if found == [framework, system]] == [
        ("AuthenticAMD", WIDE),
        *([("GenuineIntel", WIDE)] if on_intel else []),
    ]
    assert all(found[0] == framework for found in rows.values())
    assert list(systems("AuthenticAMD", WIDE, frameworks=framework, precision="amp")) == (
        [framework] if framework == "pytorch" else []
    )


def test_an_option_that_is_set_is_not_tuned_besides() -> None:
    assert list(systems("AuthenticAMD", AVX512, set=["paddle.mkl=avx2"])) == ["paddle+mkl-avx2"]


def test_a_value_that_an_option_does_not_have_is_named(tmp_path: Path) -> None:
    source = (ADAPTERS["paddle"].folder / "adapter.toml").read_text(encoding="utf-8")
    (tmp_path / "adapter.toml").write_text(source.replace('value = "avx2"', 'value = "avx3"'), encoding="utf-8")
    with pytest.raises(UsageError, match=r"options\.mkl\.tuned\.value: 'avx3' "):
        reader.read(tmp_path)
