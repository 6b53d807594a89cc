"""The tables that DLPerf published in October 2020, from report/published/dlperf-v1.0: a row for each column. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlperf import __version__, models
from dlperf.figures.published import Figure
from dlperf.models.parameters import count
from dlperf.planning.plan import file_name
from dlperf.schema import Comparison, Job, Record, Window

#: when, and where they are from
MONTH, SOURCE = "2020-10", "DLPerf's report of October 2020"
#: what they were measured on
GPU, DEVICES_OF_NODE = "V100-SXM2-16GB", 8
#: of each table
DEVICES = (1, 8, 16, 32)
#: whose AMP averages gradients in 16 bits: verified in the script of NGC TensorFlow's BERT, inferred for the others
#: from how the framework's AMP works; all others are taken to average them in 32 bits, as the weights are
HALF = frozenset(
    {
        ("resnet50", "mxnet"),
        *(("bert_base", framework) for framework in ("mxnet", "paddle", "pytorch", "tensorflow")),
    }
)
SEARCHED = "cuDNN's algorithms are searched by heuristic on several nodes only"
KERNEL = "the persistent kernel of batch normalisation is on for one node, off for several"
OVER_TCP = "several nodes ran with NCCL_IB_DISABLE=1: over TCP, not InfiniBand"
#: what is known to be wrong or uneven in a whole column, by model, precision, batch and system, None being any; what is
#: known of single cells is in figures.csv
CAUTIONS: Sequence[tuple[tuple[str | None, str | None, int | None, str], str]] = (
    (("resnet50", None, None, "OneFlow"), SEARCHED),
    (("resnet50", "fp32", None, "NGC MXNet"), "32 devices: DLPerf's README.md has 11233.92"),
    (("resnet50", None, None, "TensorFlow 2.x"), KERNEL),
    (
        ("resnet50", "fp32", None, "PyTorch"),
        "the window is about 12 iterations, not 100; 48 loader workers here, 8 in the script",
    ),
    (("resnet50", "amp", None, "NGC TensorFlow 1.x"), "32 devices have more than twice the rate of 16"),
    (("resnet50", "amp", None, "MXNet"), "bound by the loader on the CPU"),
    (
        ("resnet50", "amp", None, "PaddlePaddle"),
        "the script for several nodes leaves DALI off, so 16 and 32 devices most likely have another loader",
    ),
    (("bert_base", None, None, "PaddlePaddle"), OVER_TCP),
    (
        ("bert_base", "fp32", 48, "NGC TensorFlow 1.x"),
        "32 devices: the sample output beside the table has 2478.59",
    ),
)
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


def read_published(figures: Iterable[Figure]) -> list[Published]:
    """The columns of its six tables, from the figures of dlperf-v1.0; one that a table repeats of another is there
    once. ValueError where these are not its figures."""
    columns: dict[tuple[str, str, int, str], dict[int, Figure]] = {}
    for one in figures:
        if one.quantity == "throughput" and one.origin == "table":
            key = (one.model, one.precision, int(one.batch), _system(one))
            columns.setdefault(key, {}).setdefault(one.devices or 0, one)
    if not columns:
        raise ValueError("it has no rates")
    return [_published(*key, column) for key, column in columns.items()]


def _system(one: Figure) -> str:
    """With what sets its columns apart, but for the batch."""
    compiled = " XLA" if one.precision == "amp" and one.options.get("xla") == "on" else ""
    return one.system + compiled + (" w/o clip" if "w/o clip" in one.column.lower() else "")


def _published(model: str, precision: str, batch_size: int, system: str, column: Mapping[int, Figure]) -> Published:
    if set(column) != set(DEVICES):
        raise ValueError(f"{system}, batch {batch_size}: it has rates of {sorted(column)} devices, not of {DEVICES}")
    framework = _framework(system)
    values = count(models.family(model).parameters(models.config(model)))
    narrow = precision == "amp" and (model, framework) in HALF
    return Published(
        model=model,
        precision=precision,
        batch_size=batch_size,
        system=system,
        framework=framework,
        rates={devices: _rate(column[devices]) for devices in DEVICES},
        gradient_bytes=values * (2 if narrow else 4),
        caution=_caution(model, precision, batch_size, system),
    )


def _framework(system: str) -> str:
    for name, title in TITLES.items():
        if title in system:
            return name
    raise ValueError(f"system is {system!r}, which names no framework of {', '.join(TITLES.values())}")


def _caution(model: str, precision: str, batch_size: int, system: str) -> str:
    of = (model, precision, batch_size, system)
    return next((said for row, said in CAUTIONS if all(a in (None, b) for a, b in zip(row, of, strict=True))), "")


def _rate(one: Figure) -> float:
    rate = one.value
    if rate is None or not 0 < rate < 1e12:
        raise ValueError(f"a rate is {one.printed}")
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
