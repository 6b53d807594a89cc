"""What was stored, read back: the inverse of `schema.to_json`, of older comparisons too. Types are those of `schema`;
what has others is a ValueError that names the place."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec

from dlperf import models
from dlperf.adapters.api import WIDTH
from dlperf.kind import KINDS
from dlperf.schema import (
    Amount,
    Certificate,
    Comparison,
    Count,
    Failure,
    Job,
    Record,
    Skip,
    Trajectory,
    Window,
    run_folder,
)

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Read = TypeVar("Read")

#: what reading raises where the data is something else
DAMAGED = (ValueError, TypeError, KeyError, RecursionError)
#: what no file of the caches, and no header of an array, is larger than
BYTES, HEADER = 2**26, 1000
#: of a tensor's values; squares of it can be added
LARGEST = 1e100
#: what a record holds of a probe together, or not at all
TOGETHER: Mapping[str, tuple[frozenset[str], ...]] = {
    "input": (frozenset({"samples", "seconds"}),),
    "product": (
        frozenset({"size", "seconds", "fp32_seconds"}),
        frozenset({"large_size", "large_seconds"}),
        frozenset({"copy_bytes", "copy_seconds"}),
    ),
    "kernels": (frozenset({"kernels", "why"}),),
}


class Card(TypedDict, total=False):
    name: str
    memory_bytes: Count | None
    compute_capability: str | None
    shared_bytes: Count | None


class Node(TypedDict, total=False):
    """See dlperf.machine.describe."""

    cpu: str
    architecture: str
    sockets: Count
    cores: Count
    threads: Count
    usable_threads: Count
    cpu_quota: Amount
    instruction_sets: list[str]
    governor: str
    memory_bytes: Count
    memory_limit_bytes: Count
    kernel: str
    os: str
    virtual: str
    container: str
    load_average: list[Amount]
    gpus: list[Card]
    driver: str
    cuda: str
    topo: str


class Kind(Node):
    """Nodes that are alike, and how many; see dlperf.machine.alike."""

    count: Count


class Machine(Node, total=False):
    """Where the comparison was made. nodes: that runs of several nodes were on, where they were asked."""

    nodes: list[Kind]


class Audit(TypedDict, total=False):
    """Of one run of a row, see dlperf.proof.audit: after how many steps it was, or why it was not. revealed: for how
    many steps the row's program did the same from revealing weights, without dropout; unrevealed: why not. placed: that
    its dropout stands where it belongs, see dlperf.proof.places; unplaced: why that is not known."""

    audited: Count
    unaudited: str
    revealed: Count
    unrevealed: str
    placed: bool
    unplaced: str


class Held(Audit):
    """Of a measured run, see dlperf.proof.references: held against the reference for so many steps."""

    verdict: Literal["same"]
    steps: Count


class Unheld(Audit):
    verdict: Literal["different", "unproven"]
    why: str


class Kept(TypedDict):
    """A file of the cache: `certificate` is a Certificate, `checksum` is over it."""

    checksum: str
    certificate: dict[str, Any]


class Manifest(TypedDict):
    """comparison.json: what is known of a comparison before its first run. code: digest of the list of the files in
    code/; older comparisons have none, nor digests in their records. revision: see schema.Comparison. names: see
    dlperf.machine.names; older ones have none."""

    schema: int
    created: str
    version: str
    spec: dict[str, Any]
    machine: Machine
    commands: dict[str, str]
    jobs: list[dict[str, Any]]
    skips: list[dict[str, Any]]
    code: NotRequired[str]
    revision: NotRequired[str]
    names: NotRequired[dict[str, str]]


#: objects and lists in each other, at most
DEPTH = 50


def decoded(text: str | bytes) -> Any:
    """Of JSON as its standard has it, which knows neither NaN nor infinity. One of DAMAGED where it is not, or is
    nested deeper than anything of ours: what follows it all the way down would run out of Python's stack."""
    found = msgspec.json.decode(text)
    objects, lists = ("{", "[") if isinstance(text, str) else (b"{", b"[")
    if text.count(objects) + text.count(lists) <= DEPTH:  # type: ignore[arg-type]  # as a line of events
        return found
    level = [found]
    for _ in range(DEPTH):
        inside = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list))]
        level = [part for parts in inside for part in parts]
        if not level:
            return found
    raise ValueError(f"it is nested more than {DEPTH} deep")


def content(path: Path) -> bytes:
    """Of a file of at most BYTES. OSError where there is none; ValueError where it is something else."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is no file")
    if found.st_size > BYTES:
        raise ValueError(f"{path.name} has {found.st_size} bytes")
    return path.read_bytes()


def checksum(data: Mapping[str, Any]) -> str:
    """SHA-256 of what JSON has. It tells damage and careless edits; who edits on purpose can make it again."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def arrays(path: Path, width: int = WIDTH) -> dict[str, NDArray[numpy.float64]]:
    """The vectors in an .npz as dlperf.adapters.trace writes them: float64, at most `width` values in each. OSError
    where there is no such file; ValueError where it holds anything else. No more than BYTES are unpacked."""
    data = content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names) or (8 * width + HEADER) * len(names) > BYTES:
                raise ValueError(f"it has {len(names)} arrays, {len(set(names))} names")
            return {name.removesuffix(".npy"): _vector(name, archive, width) for name in names}
    except Exception as error:  # of a damaged archive zipfile and numpy raise whatever their parsers met
        raise ValueError(f"{path.name} is damaged: {error or type(error).__name__}") from None


def _vector(name: str, archive: zipfile.ZipFile, width: int) -> NDArray[numpy.float64]:
    import numpy
    from numpy.lib import format

    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with archive.open(name) as packed:
        file = io.BytesIO(packed.read(8 * width + HEADER + 1))
    if format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is of another version")
    shape, _, kind = format.read_array_header_1_0(file)
    if kind != numpy.dtype("<f8") or len(shape) != 1 or not 0 <= shape[0] <= width:
        raise ValueError(f"{name} is {kind} of shape {shape}")
    values = file.read()
    if len(values) != 8 * shape[0]:
        raise ValueError(f"{name} has {len(values)} bytes of {8 * shape[0]}")
    return numpy.frombuffer(values, "<f8")


def vectors(found: Mapping[str, NDArray[numpy.float64]], lengths: Mapping[str, int], finite: bool = True) -> None:
    """ValueError unless the arrays are those expected. lengths: how many values each has, by name."""
    import numpy

    odd = sorted(lengths.keys() ^ found.keys())
    if odd:
        raise ValueError(f"{odd[0]} is {'missing' if odd[0] in lengths else 'not expected'}")
    for name, values in found.items():
        if len(values) != lengths[name]:
            raise ValueError(f"{name} has {len(values)} values, not {lengths[name]}")
        if finite and not (numpy.abs(values) <= LARGEST).all():
            raise ValueError(f"{name} has values that are not finite, or beyond {LARGEST:g}")


def job_from(data: Mapping[str, Any]) -> Job:
    """The inverse of to_json for a Job. One of DAMAGED when the data is something else."""
    return _checked(msgspec.convert(_job(data), Job))


def _job(data: Mapping[str, Any]) -> dict[str, Any]:
    """As jobs are stored today."""
    fields = {"environment": data["device"], **_kind_of(data, "about")}  # older comparisons do not name it
    if "image" not in data and fields["environment"] == fields["about"].get("image"):
        fields |= {"image": fields["environment"], "environment": data["device"]}  # they had one field for both
    return fields


def _checked(job: Job) -> Job:
    if job.kind not in KINDS:
        raise ValueError(f"kind is {job.kind!r}, not one of {', '.join(KINDS)}")
    if "/" in job.id or job.id in ("", ".", ".."):
        raise ValueError(f"id is {job.id!r}, not the name of a folder")
    return job


def _kind_of(data: Mapping[str, Any], *kept: str) -> dict[str, Any]:
    """The fields of a job or a skip with its kind, which older comparisons tell by what they say of a script."""
    fields = dict(data)
    told = fields.pop("upstream", {})
    return {"kind": "upstream" if told else "native", **dict.fromkeys(kept, told), **fields}


def skip_from(data: Mapping[str, Any]) -> Skip:
    """The inverse of to_json for a Skip; errors as in job_from."""
    status = "unavailable" if data["status"] == "upstream" else data["status"]  # as older comparisons call it
    found = msgspec.convert({**_kind_of(data), "status": status}, Skip)
    if found.kind not in KINDS:
        raise ValueError(f"kind is {found.kind!r}, not one of {', '.join(KINDS)}")
    return found


def record_from(data: Mapping[str, Any]) -> Record:
    """The inverse of to_json for a Record; errors as in job_from."""
    found = msgspec.convert({**data, "job": _job(data["job"])}, Record)
    _checked(found.job)
    if found.folder not in ("", str(run_folder(found.job, found.repeat))):
        raise ValueError(f"folder is {found.folder!r}, not that of its run")
    for name in TOGETHER:
        whole(name, getattr(found, name))
    if found.work:
        msgspec.convert(found.work, Held if found.work.get("verdict") == "same" else Unheld)
    return found if found.failure else replace(found, failure=no_rate(found.windows))


def trajectory_from(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of to_json for a Trajectory; errors as in job_from."""
    return msgspec.convert(data, Trajectory)


def certificate_from(data: Mapping[str, Any]) -> Certificate:
    """The inverse of to_json for a Certificate; errors as in job_from."""
    return _known(msgspec.convert(data, Certificate))


def kept_from(data: Mapping[str, Any]) -> Certificate:
    """Of a file of the cache; errors as in job_from."""
    found = msgspec.convert(data, dict[str, Any])
    found = msgspec.convert({"checksum": found.get("seal"), **found}, Kept)  # as older ones call it
    if found["checksum"] != checksum(found["certificate"]):
        raise ValueError("checksum mismatch: it was damaged or edited")
    return certificate_from(found["certificate"])


def _known(certificate: Certificate) -> Certificate:
    for model in (certificate.trajectory.model, certificate.trajectory.of):
        if model not in models.FAMILY_OF:
            raise ValueError(f"model is {model!r}, which this dlperf does not know")
    return certificate


def proofs_from(data: Mapping[str, Any], older: bool) -> dict[str, tuple[Certificate, ...]]:
    """Certificates by job id, as Comparison holds them, from proofs.json; errors as in job_from. older: whether it may
    be without a checksum, as older ones are."""
    if set(data) == {"checksum", "certificates"}:
        if data["checksum"] != checksum(data["certificates"]):
            raise ValueError("checksum mismatch: it was damaged or edited")
        data = data["certificates"]
    elif data and not older:
        raise ValueError("it has no checksum")
    return _all_known(msgspec.convert(data, dict[str, tuple[Certificate, ...]]))


def _all_known(proofs: Mapping[str, tuple[Certificate, ...]]) -> dict[str, tuple[Certificate, ...]]:
    return {job: tuple(map(_known, several)) for job, several in proofs.items()}


def each(name: str, data: Sequence[Any], read: Callable[[Any], Read]) -> tuple[Read, ...]:
    """Each of a list as `read` gives it. ValueError that says which of them is something else, and how."""
    found = []
    for number, one in enumerate(data):
        try:
            found.append(read(one))
        except KeyError as error:
            raise ValueError(f"{name}[{number}]: it lacks {error}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}[{number}]: {error}") from None
    return tuple(found)


def comparison_from(data: Mapping[str, Any]) -> Comparison:
    """The inverse of to_json for a Comparison; ignores "schema", which results.json adds. Errors as in job_from."""
    lists = {name: msgspec.convert(data[name], list[Any]) for name in ("jobs", "records", "skips")}
    msgspec.convert(data["machine"], Machine)
    rest = msgspec.convert({**data, "jobs": (), "records": (), "skips": ()}, Comparison)
    return replace(
        rest,
        jobs=each("jobs", lists["jobs"], job_from),
        records=each("records", lists["records"], record_from),
        skips=each("skips", lists["skips"], skip_from),
        proofs=_all_known(rest.proofs),
    )


def whole(probe: str, told: Mapping[str, Any]) -> None:
    """A field of a Record of which some figures need each other; ValueError where some of those are missing."""
    for keys in TOGETHER[probe]:
        lacking = keys - told.keys()
        if lacking and lacking != keys:
            raise ValueError(f"{probe} lacks {', '.join(sorted(lacking))}")


def no_rate(windows: Sequence[Window]) -> Failure | None:
    """Why windows have no rate, as those that others measured may have none: of no time, or of no samples."""
    if not windows:
        return Failure("no_figures", "no window was measured")
    for window in windows:
        if window.samples < 1 or not 1e-9 <= window.seconds <= 1e8:
            return Failure("no_figures", f"window {window.index} has {window.samples} samples in {window.seconds:g} s")
    return None
