"""What others may see of a comparison: its texts without what no page can show, and without names of people, machines
and folders. The comparison's own folder keeps what was there."""

from __future__ import annotations

import dataclasses
import functools
import os
import pwd
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlperf import cache, machine
from dlperf.comparison import store
from dlperf.errors import UsageError, clean
from dlperf.schema import Comparison
from dlperf.stored import DAMAGED

#: what stands for the folders of the machine that measured, see dlperf.machine.names
MARKS = {
    "comparison": "<comparison>",
    "cache": "<cache>",
    "venv": "<venv>",
    "home": "~",
    "cwd": "<cwd>",
    "tmp": "<tmp>",
}
#: package indexes that are everybody's
KNOWN = frozenset(("pypi.org", "files.pythonhosted.org", "download.pytorch.org", "pypi.nvidia.com"))
#: fields that hold what programs said, in which the name of a host can be any word
SAID = frozenset(
    (
        "host",
        "hosts",
        "launcher_arguments",
        "command",
        "commands",
        "failure",
        "why",
        "not_sampled",
        "topo",
        "exceptions",
    )
)
#: in JSON, perhaps a character that `clean` changes
ODD = re.compile(rb"\\[urbf]|[\x7f-\xff]")
Change = Callable[[str], str]
Value = TypeVar("Value")


def cleaned(value: Value) -> Value:
    """Every text in it is one that a page can show, see dlperf.errors.clean."""
    with suppress(TypeError, ValueError, OverflowError):  # no JSON has it
        if not ODD.search(msgspec.json.encode(value)):
            return value
    change = functools.lru_cache(2**14)(clean)  # thousands of records have the same few
    return changed(value, change, change)


def unnamed(comparison: Comparison, folder: Path) -> Comparison:
    """Without the names of hosts, of the user, and of folders that are this user's. folder: the comparison's."""
    return changed(comparison, *redaction(comparison, folder))


def redaction(comparison: Comparison, folder: Path) -> tuple[Change, Change]:
    """What takes names out of one text: the first those of the user and of folders, the second, for what programs said,
    those of hosts, too."""
    then = _then(folder)
    places, hosts = dict(_places(comparison, folder, then)), _hosts(comparison, then.get("host", ""))
    users = sorted({_user(), then.get("user", "")} - {"", "root"}, key=len, reverse=True)
    indexes = dict.fromkeys({*machine.indexes(), *then.get("indexes", "").split()} - KNOWN, "<index>")
    folders = functools.lru_cache(2**14)(lambda text: _without_folders(text, places, users))
    said = functools.lru_cache(2**14)(
        lambda text: _without_hosts(_without_hosts(_without_accounts(folders(text)), indexes), hosts)
    )
    return folders, said


def changed(value: Value, change: Change, said: Change) -> Value:
    """With each text in it changed; `said` is for fields that are SAID."""
    made: Any = value
    if value is None or isinstance(value, (bool, int, float)):  # most are
        return value
    if isinstance(value, str):
        return change(value)  # type: ignore[return-value]
    if isinstance(value, (tuple, list)):
        parts = [changed(part, change, said) for part in value]
        made = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, Mapping):
        made = {change(key): changed(part, said if key in SAID else change, said) for key, part in value.items()}
    elif dataclasses.is_dataclass(value):
        kind: type = type(value)
        fields = {name: getattr(value, name) for name in _fields(kind)}
        new = {name: changed(old, said if name in SAID else change, said) for name, old in fields.items()}
        made = dataclasses.replace(value, **new)  # type: ignore[type-var]
    return made  # type: ignore[no-any-return]


@functools.cache
def _fields(of: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(of))


def _then(folder: Path) -> Mapping[str, str]:
    """What the machine that measured was called, and where its folders were; nothing of an older comparison."""
    try:
        return msgspec.convert(store.manifest(folder).get("names", {}), dict[str, str])
    except (OSError, UsageError, *DAMAGED):
        return {}


def _places(comparison: Comparison, folder: Path, then: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Folders with what stands for them, as scripts have them too. then: see `_then`."""
    spec, home = comparison.spec, pwd.getpwuid(os.getuid()).pw_dir if _user() else ""
    named: list[tuple[str | Path, str]] = [(folder, "<comparison>"), (cache.folder(), "<cache>")]
    named += [(then[what], mark) for what, mark in MARKS.items() if what in then]
    ours = Path(__file__).parents[1]
    named += [(ours, "<dlperf>")]
    named += (
        [(sys.prefix, "<venv>")] if sys.prefix != sys.base_prefix and not Path(sys.prefix).is_relative_to(ours) else []
    )
    named += [(path, "<source>") for path in (spec.get("sources") or {}).values()]
    named += [(path, "<adapters>") for path in os.environ.get("DLPERF_ADAPTERS", "").split(os.pathsep) if path]
    named += [(spec["data"], "<data>")] if os.path.isabs(spec.get("data", "")) else []
    named += [(os.path.expanduser("~"), "~"), (home, "~"), (os.environ.get("TMPDIR", ""), "<tmp>")]
    with suppress(OSError):  # a folder that is gone
        named += [(Path.cwd(), "<cwd>")]
    for path, name in named:
        for written in (os.path.abspath(path), os.path.realpath(path)) if os.path.isabs(path) or path == folder else ():
            if written not in ("/", "/tmp"):
                yield written, name
                yield written.replace("'", "'\"'\"'"), name


def _without_folders(text: str, places: Mapping[str, str], users: Sequence[str]) -> str:
    if "/" not in text and "@" not in text:
        return text
    found = "|".join(re.escape(place) for place in sorted(places, key=len, reverse=True))
    text = re.sub(rf"(?:(?<![\w.])|(?<=\s-\w))({found})(?![\w-]|\.\w)", lambda one: places[str(one[1])], text)
    text = re.sub(r"(?<![\w.])/(home|Users)/[^/\s'\"<>:;,]+", r"/\1/<user>", text)
    text = re.sub(r"(?<![\w./~>-])/root(?![\w.-])", "~", text)
    for user in map(re.escape, users):
        text = re.sub(rf"(?<![\w.:/-])((?:/[\w.+-]+)*/){user}(?![\w.-])", r"\1<user>", text)
        text = re.sub(rf"(?<![\w.-]){user}(?=@)", "<user>", text)
    return text


def _without_accounts(text: str) -> str:
    """Without accounts in addresses, and hosts of package indexes, whatever they are called: these are known by their
    path."""
    if "@" in text:
        text = re.sub(r"(?<=://)[^/\s@'\"]+@", "<user>@", text)
        text = re.sub(r"(?<![\w.@/:<>-])[A-Za-z_][\w.-]*@[A-Za-z][\w-]*(\.[\w-]+)*(?![\w/=@])", "<user>@<host>", text)
    if "/simple" in text:
        text = INDEX.sub(lambda one: one[0] if one[1] in KNOWN else "<index>", text)
    return text


#: the host in the address of a package index; ports go with it
INDEX = re.compile(r"(?:(?<=://)|(?<=@))((?!<)[\w.-]+)(?::\d+)?(?=/(?:[^\s'\"]*/)?simple\b)")


@functools.cache
def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user of a container
        return ""


def _hosts(comparison: Comparison, then: str = "") -> Mapping[str, str]:
    """Numbered in the order in which they were asked for; what a host calls itself is the same one. then: that which
    measured."""
    asked = tuple(comparison.spec.get("hosts") or ())
    found = {name: f"host{number}" for number, name in enumerate(asked, 1)}
    for record in comparison.records:
        for rank, name in enumerate(record.hosts):
            node = rank // record.job.nproc_per_node
            if name and name not in found:
                found[name] = found[asked[node]] if node < len(asked) else f"host{len(set(found.values())) + 1}"
    served = (str(one.get("host", "")) for record in comparison.records for one in record.servers)
    for name in filter(None, (*served, then, socket.gethostname())):
        found.setdefault(name, f"host{len(set(found.values())) + 1}")
    found.pop("localhost", None)
    short = {name.partition(".")[0]: number for name, number in found.items() if not name.replace(".", "").isdigit()}
    return {**short, **found}


def _without_hosts(text: str, hosts: Mapping[str, str]) -> str:
    if not hosts:
        return text
    found = "|".join(re.escape(host) for host in sorted(hosts, key=len, reverse=True))
    return re.sub(rf"(?<![\w.-])({found})(\.[a-z][\w-]*)*(?![\w-]|\.\w)", lambda one: hosts[one[1]], text)
