"""The tables that DLPerf published in October 2020: report/published/dlperf-2020.csv. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlperf import models
from dlperf.models.parameters import count


@dataclass(frozen=True)
class Published:
    """One system's column of a table. rates: samples/s by devices."""

    model: str
    precision: str
    batch_size: int
    system: str
    rates: Mapping[int, float]
    gradient_bytes: float
    caution: str

    @property
    def title(self) -> str:
        return f"{self.model} {self.precision}, batch {self.batch_size}: {self.system}"


def read_published(lines: Iterable[str]) -> list[Published]:
    """The columns of report/published/dlperf-2020.csv."""
    return [_published(row) for row in csv.DictReader(line for line in lines if not line.startswith("#"))]


def _published(row: Mapping[str, str]) -> Published:
    values = count(models.family(row["model"]).parameters(models.config(row["model"])))
    return Published(
        **{key: row[key] for key in ("model", "precision", "system", "caution")},
        batch_size=int(row["batch_size"]),
        rates={n: float(row[f"devices_{n}"]) for n in (1, 8, 16, 32)},
        gradient_bytes=values * int(row["bytes_per_gradient"]),
    )
