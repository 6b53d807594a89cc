"""What an archive of a comparison holds, without the names of hosts, users and folders:

results.json, report.md, report.html, results.csv, charts/, MODEL.md   the report
runs/<job>/<n>/, proofs/<run>/run/   job.json, launch.sh, events, what samplers and programs wrote
code/           the code that ran, byte for byte: records hold its digest
comparison.json  the request, the machine, the rows and the commit, as they were stored when the comparison began
packed.json     which dlperf and which matplotlib rendered the report
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from dlperf import __version__, report
from dlperf.archive.tar import LARGEST
from dlperf.comparison import store
from dlperf.errors import Problem, UsageError
from dlperf.report import public
from dlperf.report.public import Change
from dlperf.revision import revision
from dlperf.runs import messages
from dlperf.schema import Comparison, Record

PACKED = "packed.json"
#: of a run's folder
RUN = ("job.json", "launch.sh", "*.log", "events.*.jsonl", "gpu.*.jsonl")
#: of events and job.json, what stands in a record as it is there
RECORDED = frozenset(("versions", "effective", "kernels", "options"))
#: what stands for names that no code that is packed may have
MARKS = ("~", "<user>", "<comparison>", "<cache>", "<data>", "<source>")


class Packed(TypedDict):
    dlperf: str
    revision: str
    matplotlib: str


def here() -> Packed:
    """What renders reports now."""
    return {"dlperf": __version__, "revision": revision(), "matplotlib": version("matplotlib")}


def contents(comparison: Comparison, folder: Path) -> dict[str, bytes]:
    """The files of an archive by their paths in it. comparison: that of the folder, with its names. UsageError for a
    file that is too large, and for code that names the user or a folder of this machine."""
    folders, said = public.redaction(comparison, folder)
    rendered = report.render(public.changed(comparison, folders, said))
    files = {name: content.encode() for name, content in rendered.items()}
    begun = {name: held for name, held in store.manifest(folder).items() if name != "names"}
    begun = public.cleaned(public.changed(begun, folders, said))
    files[store.MANIFEST] = json.dumps(begun, indent=1).encode() + b"\n"
    files[PACKED] = json.dumps(here(), indent=1).encode() + b"\n"
    for path in _run_files(comparison, folder):
        files[path.relative_to(folder).as_posix()] = _unnamed(path.name, _content(path), folders, said)
    for path in _inside(folder, (folder / "code").rglob("*")):
        if "__pycache__" not in path.parts:
            files[path.relative_to(folder).as_posix()] = _code(path, folders)
    return files


def _run_files(comparison: Comparison, folder: Path) -> Iterator[Path]:
    runs = {record.folder: record for record in comparison.records if record.folder}
    for name, record in runs.items():
        patterns = (*RUN, *logs(record))
        yield from _inside(folder, (path for pattern in patterns for path in (folder / name).glob(pattern)))
    yield from _inside(folder, (path for pattern in RUN for path in folder.glob(f"proofs/*/run/{pattern}")))


def logs(record: Record) -> set[str]:
    """Those of scripts that are not ours, which windows name."""
    return {Path(window.source.rpartition(":")[0]).name for window in record.windows if window.source}


def _inside(folder: Path, paths: Iterator[Path]) -> Iterator[Path]:
    """The files among them; a link, of which dlperf makes none, may lead anywhere."""
    whole = folder.resolve()
    yield from (path for path in paths if path.is_file() and path.resolve() == whole / path.relative_to(folder))


def _content(path: Path) -> bytes:
    size = path.stat().st_size
    if size > LARGEST:
        says = f"it has {size:,} bytes, and a file of an archive at most {LARGEST:,}. Shorten it."
        raise UsageError([Problem("RUN", path, says=says)])
    return path.read_bytes()


def _code(path: Path, folders: Change) -> bytes:
    content = _content(path)
    text = content.decode("utf-8", "surrogateescape")
    shown = folders(text)
    if any(shown.count(mark) > text.count(mark) for mark in MARKS):
        says = (
            "this code names the user or a folder of this machine, and is packed as it ran. Take the name out of the "
        )
        says += "adapter, and run the comparison again."
        raise UsageError([Problem("RUN", path, says=says)])
    return content


def _unnamed(name: str, content: bytes, folders: Change, said: Change) -> bytes:
    """A file that a run left, byte for byte but for names; of JSON in its texts, since there a path may be escaped."""
    text = content.decode("utf-8", "surrogateescape")
    if name.endswith(".jsonl"):
        shown = "".join(_line(line, folders, said) for line in text.splitlines(keepends=True))
    else:
        shown = _json(text, folders, said, indent=1) if name.endswith(".json") else said(text)
    return shown.encode("utf-8", "surrogateescape")


def _line(line: str, folders: Change, said: Change) -> str:
    return _json(line, folders, said) + line[len(line.rstrip("\r\n")) :] if line.strip() else line


def _json(text: str, folders: Change, said: Change, indent: int | None = None) -> str:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):  # the half of a line that a killed worker wrote
        return said(text)
    return json.dumps(_every(told, folders, said), indent=indent)


def _every(told: Any, folders: Change, said: Change) -> Any:
    """With the texts changed in what JSON held, but for those by which it is read: a host may be called "window". What
    a record has of it is changed as there."""
    if isinstance(told, dict):
        return {
            folders(key): part
            if key == "event" and part in messages.EVENTS
            else _every(part, folders, folders if key in RECORDED else said)
            for key, part in told.items()
        }
    if isinstance(told, list):
        return [_every(part, folders, said) for part in told]
    return said(told) if isinstance(told, str) else told
