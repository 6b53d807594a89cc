"""Whatever dlperf reads, as functions of a file's bytes, which pass over dlperf's own errors: what else they raise is a
fault. With whole documents, for tests to change."""

import functools
import json
import random
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy
from odd import ODD, changed, fields
from places import GOLDEN, ROOT
from trajectories import SPEC, asked

from dlperf import cache, models, stored
from dlperf.audit import reading, rules
from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.envs.environment import Environment
from dlperf.errors import UsageError
from dlperf.models import photos, pretraining
from dlperf.planning import hosts
from dlperf.planning.spec import PROTOCOLS
from dlperf.proof import certificates
from dlperf.proof.certificates import CERTIFICATE, SKETCHES
from dlperf.proof.certify import Certifier
from dlperf.runs import conditions, events, messages
from dlperf.schema import Certificate, Job
from dlperf.upstream import commands, logs

#: no test's; what is read from a file is read from there
FOLDER = tempfile.TemporaryDirectory(prefix="dlperf-readers-")
PLACE = Path(FOLDER.name)


class Reader(NamedTuple):
    """read: of a file's bytes. documents: whole ones, as data of JSON; empty where the file is none."""

    read: Callable[[bytes], Any]
    documents: tuple[Any, ...] = ()


def written(name: str, data: bytes) -> Path:
    path = PLACE / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)
    return path


@functools.cache
def golden() -> dict[str, Any]:
    """A report's results.json, of two records of each of the first rows."""
    whole = json.loads((GOLDEN / "report" / "results.json").read_text())
    records = [one for one in whole["records"] if one["repeat"] < 2]
    return {**whole, "records": records}


EVENTS = (
    {"event": "start", "time": 1.0, "rank": 0, "world_size": 1, "pid": 7, "machine": {"host": "a"}, "dropped": ["A"],
     "kernels": {"kernels": "native", "why": "x"}, "variables": {"A": "b"}},
    {"event": "imported", "time": 2.0, "versions": {"numpy": "2.0"}},
    {"event": "built", "time": 3.0, "seconds": 0.5, "parameter_count": 100},
    {"event": "product", "time": 3.5, "size": 64, "seconds": 0.1, "fp32_seconds": 0.2, "large_size": 128,
     "large_seconds": 0.3, "large_fp32_seconds": 0.4},
    {"event": "first_step", "time": 4.0, "seconds": 0.5, "loss": 7.0},
    {"event": "second_step", "time": 4.1, "seconds": 0.1, "loss": 6.9},
    {"event": "warm", "time": 5.0, "seconds": 1.0, "first_step_seconds": 0.5, "steps": 2, "loss": 6.5,
     "effective": {"threads": "2"}, "shapes": {"a": [1, 2]}},
    {"event": "states", "time": 5.1, "file": "states.npz", "steps": [2, 4]},
    {"event": "communication", "time": 5.2, "gradient_bytes": 4, "all_reduce_bytes": 4, "all_reduce_seconds": 0.1},
    {"event": "window", "time": 6.0, "index": 0, "steps": 2, "samples": 8, "seconds": 0.5, "cpu_seconds": 1.0,
     "loss": 6.0, "read_seconds": 0.1, "input_seconds": None, "host": {"steal": 0.1}},
    {"event": "window", "time": 7.0, "index": 1, "steps": 2, "samples": 8, "seconds": 0.5, "cpu_seconds": 1.0},
    {"event": "input", "time": 7.5, "samples": 8, "seconds": 0.1},
    {"event": "trajectory", "time": 8.0, "file": "a.npz", "losses": [1.0, 0.5], "gradient_norms": [1.0, None],
     "step_seconds": [0.1, 0.1], "read_seconds": [0.1, 0.1], "effective": {"a": "b"}, "shapes": {"a": [1]}},
    {"event": "end", "time": 9.0, "peak_memory_bytes": 5, "peak_device_memory_bytes": None, "seconds": 8.0},
    {"event": "failed", "time": 9.5, "kind": "crash", "message": "m", "traceback": "a\nb"},
)  # fmt: skip


def event(data: bytes) -> None:
    """BadEvent is ours; a stream of events raises nothing."""
    whole = [json.dumps(one).encode() for one in EVENTS[:-1]]
    at = next((number for number, one in enumerate(EVENTS) if one["event"].encode() in data[:40]), 0)
    written("events.rank0.jsonl", b"\n".join([*whole[:at], data, *whole[at + 1 :], b""]))
    events.read_job(PLACE, 1, 2)
    for line in data.split(b"\n"):
        with suppress(messages.BadEvent):
            messages.event(line)


def record(data: bytes) -> None:
    with suppress(*stored.DAMAGED):
        stored.record_from(stored.decoded(data))


def results(data: bytes) -> Any:
    try:
        return stored.comparison_from(stored.decoded(data))
    except stored.DAMAGED:
        return None


def proofs(data: bytes) -> None:
    with suppress(*stored.DAMAGED):
        stored.proofs_from(stored.decoded(data), older=True)


def manifest() -> dict[str, Any]:
    whole = golden()
    spec = {"models": ["resnet50"], "precisions": ["fp32"], "frameworks": ["pytorch"], "device": "cpu", "env": "venv"}
    spec.update(data="synthetic", protocol=asdict(PROTOCOLS["quick"]))
    kept = {key: whole[key] for key in ("schema", "created", "version", "machine", "commands", "jobs", "skips")}
    return {**kept, "spec": spec}


def opened(name: str) -> Callable[[bytes], None]:
    """A comparison's folder with another file of that name."""

    def read(data: bytes) -> None:
        folder = PLACE / "comparison"
        folder.mkdir(exist_ok=True)
        files = {
            store.MANIFEST: json.dumps(manifest()).encode(),
            store.RECORDS: b"".join(json.dumps(one).encode() + b"\n" for one in golden()["records"]),
            name: data,
        }
        for file in folder.iterdir():
            file.unlink()
        for each, content in files.items():
            (folder / each).write_bytes(content)
        try:
            found = store.open_folder(folder)
        except UsageError:
            return
        if name not in (store.RECORDS, store.MANIFEST):
            rates = [one.windows for one in found.records.values()]
            assert rates == [stored.record_from(one).windows for one in golden()["records"]]

    return read


@functools.cache
def certified() -> tuple[Certifier, Any, dict[str, Any]]:
    """A certifier with a certificate in its cache; its folder, and what is in it."""
    one = asked("fake", "bert_tiny", 1)
    blank = certificates.blank(
        one, Environment("fake", "cpu", "venv", Path("python"), "3.11", "digest", None, {}), "code"
    )
    with mock.patch.object(cache, "folder", return_value=PLACE / "cache"):
        folder = certificates.place(blank)
        folder.mkdir(parents=True, exist_ok=True)
        numpy.savez(
            folder / SKETCHES, **{name: numpy.ones(size) for name, size in certificates._lengths(blank).items()}
        )
        told = {"losses": (1.0,) * blank.steps, "gradient_norms": (1.0,) * blank.steps}
        made = replace(blank, **told, sketches=certificates.digest(folder / SKETCHES))
        certificates.update(Certificate(made, "unproven", "not compared"))
        certifier = Certifier(PLACE, SPEC, lambda line: None)
        assert certifier._cached(blank), "whole, it is taken"
    return certifier, blank, json.loads((folder / CERTIFICATE).read_text())


def certificate(data: bytes) -> None:
    """One that was changed is not taken."""
    certifier, blank, whole = certified()
    with mock.patch.object(cache, "folder", return_value=PLACE / "cache"):
        (certificates.place(blank) / CERTIFICATE).write_bytes(data)
        found = certifier._cached(blank)
    assert found is None or list(found.trajectory.losses) == whole["certificate"]["trajectory"]["losses"]


@functools.cache
def tables() -> tuple[str, ...]:
    """The beginnings of tables, as pages, spreadsheets and figures.csv have them."""
    cells = [path.read_text("utf-8")[:3000] for path in sorted((ROOT / "report" / "published").glob("*/figures.csv"))]
    page = (ROOT / "README.md").read_text("utf-8").partition("<!-- dlperf table")[2][:1500]
    return (*cells, page, "GPUs | batch | AMP img/s | speedup\n--|--|--|--\n1|64|400|1\n8|64|3100|7.75\n")


def table(data: bytes) -> None:
    """As each kind of file."""
    for name in ("tables/t.csv", "tables/t.md"):
        with suppress(UsageError):
            rules.audit(reading.file(written(name, data)))


@functools.cache
def tomls() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / "adapters").glob("*/adapter.toml")))


def toml(data: bytes) -> None:
    with suppress(UsageError):
        reader.read(written("adapter/adapter.toml", data).parent)


def hostfile(data: bytes) -> None:
    hosts.from_file(str(written("hosts", data)), [])
    hosts.from_flag(data.decode(errors="replace"), [])


ROWS = {"format": pretraining.FOLDER.format, "version": 1, "rows": 8, "sequence": 16, "masked": 4, "vocabulary": 64}
PHOTOS = {"format": photos.FORMAT, "version": 1, "images": 8, "classes": ["a", "b"],
          "formats": {"folder": {"index.tsv": 20}, "recordio": {"train.rec": 5, "train.idx": 3}}}  # fmt: skip


def described(reads: Any, model: str) -> Callable[[bytes], None]:
    """Sentences are all that comes of a prepared folder."""

    def read(data: bytes) -> None:
        folder = written(f"{model}/dataset.json", data).parent
        (folder / "folder").mkdir(exist_ok=True)
        (folder / "folder" / "index.tsv").write_bytes(data[:20])
        formats = reads.formats(str(folder))
        said = reads.check(str(folder), models.config(model), 4, formats)
        assert all(isinstance(one, str) for one in said)

    return read


def sampled(data: bytes) -> None:
    _, samples = conditions.read(written("gpu.rank0.jsonl", data))
    conditions.during(samples, 0.0, 1e9)


SAMPLES = ({"gpus": ["H200"], "python": "python3"},
           {"time": 1.0, "gpus": [{"sm_mhz": 1980, "watts": 700.5, "joules": 12.5, "throttle": 4}]})  # fmt: skip


@functools.cache
def scripts() -> tuple[tuple[Any, Any], ...]:
    """Script and job of each third-party model."""
    job = Job("a", "a", "a", "A", "resnet50", "resnet", "cuda", "fp32", "fp32", 2, "synthetic", None, {}, "cuda", 1, 2)
    adapters = reader.adapters().values()
    return tuple((script, replace(job, model=model)) for one in adapters for model, script in one.scripts.items())


def log(data: bytes) -> None:
    """A log never raises."""
    for script, job in scripts():
        path = written("stdout.log", data)
        found = logs.stream(path, script.log, commands.steps(script, PROTOCOLS["quick"]), job, {}, {})
        assert found.failed or found.windows


READERS = {
    "events": Reader(event, EVENTS),
    "records": Reader(record, tuple(golden()["records"][:4])),
    "records.jsonl": Reader(opened(store.RECORDS), tuple(golden()["records"][:2])),
    "comparison.json": Reader(opened(store.MANIFEST), (manifest(),)),
    "batch_sizes.json": Reader(opened(store.SIZES), ({"pytorch-resnet50-amp-16": {"batch_size": 4, "found": "x"}},)),
    "seconds.json": Reader(opened(store.SECONDS), ({"environments": 1.5, "proofs": 2.0},)),
    "proofs.json": Reader(opened(store.PROOFS), (golden()["proofs"],)),
    "proofs": Reader(proofs, tuple({key: value} for key, value in golden()["proofs"].items())),
    "results.json": Reader(results, (golden(),)),
    "certificates": Reader(certificate, (certified()[2],)),
    "adapter.toml": Reader(toml),
    "hostfiles": Reader(hostfile),
    "rows of text": Reader(described(pretraining, "bert_tiny"), (ROWS,)),
    "photos": Reader(described(photos, "resnet_tiny"), (PHOTOS,)),
    "samples of GPUs": Reader(sampled, SAMPLES),
    "logs": Reader(log),
    "tables": Reader(table),
}


@functools.cache
def places(name: str) -> tuple[tuple[Any, tuple[Any, ...]], ...]:
    """Each field of each document."""
    return tuple((one, place) for one in READERS[name].documents for place in fields(one))


def damaged(data: bytes, source: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, or swapped."""
    made = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 8))):
        at = source.randrange(len(made) + 1)
        length = source.choice((1, 2, 8, 40))
        how = source.choice(("flip", "cut", "double", "noise", "end"))
        if how == "flip" and at < len(made):
            made[at] ^= 1 << source.randrange(8)
        elif how == "cut":
            del made[at : at + length]
        elif how == "double":
            made[at:at] = made[at : at + length]
        elif how == "noise":
            made[at : at + length] = source.randbytes(length)
        elif how == "end" and source.random() < 0.2:
            del made[at:]
    return bytes(made)


#: what may stand as a value of TOML
TOML = ("1", "-1", "1.5", "nan", "inf", "true", '"x"', '""', "[]", '["x"]', "[1]", "[[1]]", "{}", '{a = "b"}',
        "1979-05-27", '"\\u202e"', '"' + "y" * 5000 + '"', "9" * 40, "0x7f", "[" * 60 + "]" * 60, "'''\nx'''",
        '"$(touch canary)"', '"../../x"', '{a = {b = {c = 1}}}', "9" * 5000)  # fmt: skip
LINE = re.compile(r"^([\w.\"-]+ *= *)(.*)$", re.MULTILINE)


def swapped(text: str, source: random.Random) -> str:
    """TOML with other values, keys, tables, or lines in another place."""
    lines = text.splitlines()
    for _ in range(source.choice((1, 1, 2, 4))):
        at = source.randrange(len(lines))
        how = source.choice(("value", "value", "value", "key", "move", "table", "deeper", "twice"))
        if how == "value":
            lines[at] = LINE.sub(lambda found: found[1] + source.choice(TOML), lines[at])
        elif how == "key":
            lines[at] = source.choice(("x", "title", '"a b"', "a.b.c")) + " = " + source.choice(TOML)
        elif how == "move":
            lines.insert(source.randrange(len(lines)), lines.pop(at))
        elif how == "table":
            lines.insert(
                at, source.choice(("[x]", "[[x]]", "[options.x]", "[[support]]", "[environment.tpu]", "[script.x]"))
            )
        elif how == "deeper":
            lines[at] = lines[at].replace("[", "[x.", 1) if lines[at].startswith("[") else lines[at]
        else:
            lines.insert(at, lines[at])
    return "\n".join(lines)


def odd(name: str, source: random.Random) -> bytes:
    """A document of that kind with an odd value in a field, or with none."""
    whole, place = source.choice(places(name))
    return changed(whole, place, source.choice((None, *ODD))).encode(errors="surrogatepass")
