"""The tables that DLPerf published in October 2020: report/published/dlperf-2020.csv. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlperf import __version__, models
from dlperf.models.parameters import count
from dlperf.planning.plan import file_name
from dlperf.schema import Comparison, Job, Record, Window

#: when, and where they are from
MONTH, SOURCE = "2020-10", "DLPerf's report of October 2020"
#: what they were measured on
GPU, DEVICES_OF_NODE = "V100-SXM2-16GB", 8
#: how the names of systems say which framework each is, by the names of adapters
TITLES = {
    "mxnet": "MXNet",
    "oneflow": "OneFlow",
    "paddle": "PaddlePaddle",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
}


@dataclass(frozen=True)
class Published:
    """One system's column of a table. framework: the adapter's name. rates: samples/s by devices."""

    model: str
    precision: str
    batch_size: int
    system: str
    framework: str
    rates: Mapping[int, float]
    gradient_bytes: float
    caution: str

    @property
    def title(self) -> str:
        return f"{self.model} {self.precision}, batch {self.batch_size}: {self.system}"


def read_published(lines: Iterable[str]) -> list[Published]:
    """The columns of report/published/dlperf-2020.csv. ValueError, TypeError or KeyError where it is not these."""
    return [_published(row) for row in csv.DictReader(line for line in lines if not line.startswith("#"))]


def _published(row: Mapping[str, str]) -> Published:
    values = count(models.family(row["model"]).parameters(models.config(row["model"])))
    return Published(
        **{key: row[key] for key in ("model", "precision", "system", "caution")},
        framework=_framework(row["system"]),
        batch_size=int(row["batch_size"]),
        rates={n: _rate(row[f"devices_{n}"]) for n in (1, 8, 16, 32)},
        gradient_bytes=values * int(row["bytes_per_gradient"]),
    )


def _framework(system: str) -> str:
    for name, title in TITLES.items():
        if title in system:
            return name
    raise ValueError(f"system is {system!r}, which names no framework of {', '.join(TITLES.values())}")


def _rate(written: str) -> float:
    rate = float(written)
    if not 0 < rate < 1e12:
        raise ValueError(f"a rate is {written}")
    return rate


def job(published: Published, devices: int) -> Job:
    """The row of so many devices, as one of imported figures."""
    return Job(
        id=file_name(f"{published.title}, {devices}"),
        system=published.system,
        adapter=published.framework,
        title=TITLES[published.framework],
        model=published.model,
        family=models.FAMILY_OF[published.model],
        device="cuda",
        precision_asked=published.precision,
        precision={"amp": "amp_fp16"}.get(published.precision, published.precision),
        batch_size=published.batch_size,
        input="synthetic",
        data_dir=None,
        options={},
        environment="",
        nnodes=max(1, devices // DEVICES_OF_NODE),
        nproc_per_node=min(devices, DEVICES_OF_NODE),
        kind="imported",
        about={"source": SOURCE, **({"differs": published.caution} if published.caution else {})},
        repeats=1,
    )


def comparison(tables: Iterable[Published]) -> Comparison:
    """Of all of them, for a report. A published rate is that of one step: nobody tells how many there were."""
    rows = [(job(one, devices), rate) for one in tables for devices, rate in one.rates.items()]
    return Comparison(
        spec={},
        machine={},
        created=MONTH,
        version=__version__,
        planned=len(rows),
        jobs=tuple(row for row, _ in rows),
        records=tuple(_record(row, rate) for row, rate in rows),
        skips=(),
    )


def _record(row: Job, rate: float) -> Record:
    window = Window(0, 1, row.global_batch_size, row.global_batch_size / rate, None, None)
    return Record(row, 0, MONTH, 0.0, "", "", {"kind": "none"}, windows=(window,))
