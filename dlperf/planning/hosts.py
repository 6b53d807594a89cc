"""The machines that ranks may go to: --hosts, or a hostfile as Open MPI and Horovod have it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dlperf.errors import Problem, whole_number

ALLOWED = "NAME, NAME:SLOTS or, in a file, NAME slots=N; NAME is a host's name or address"


class Host(NamedTuple):
    """A machine, and how many ranks may go there; None: any number."""

    name: str
    slots: int | None


def from_flag(text: str, problems: list[Problem]) -> tuple[Host, ...]:
    """The hosts of `--hosts a:2,b:2`. Appends what is wrong to `problems`."""
    words = [word.strip() for word in text.split(",")]
    return _checked([("--hosts", word, word.split()) for word in words], problems)


def from_file(path: str, problems: list[Problem]) -> tuple[Host, ...]:
    """The hosts of a hostfile: one a line, `#` begins a comment. Appends what is wrong to `problems`."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        problems.append(Problem("--hostfile", path, says=f"cannot be read: {reason}."))
        return ()
    numbered = ((number, line.partition("#")[0].split()) for number, line in enumerate(lines, 1))
    entries = [(f"{path}, line {number}", " ".join(words), words) for number, words in numbered if words]
    if not entries:
        problems.append(Problem("--hostfile", path, says="it names no host. Write one on each line."))
    return _checked(entries, problems)


def _checked(entries: Iterable[tuple[str, str, list[str]]], problems: list[Problem]) -> tuple[Host, ...]:
    """entries: where it stands, the text, its words."""
    found: dict[str, str] = {}
    hosts = []
    for where, text, words in entries:
        host = _host(words)
        if host is None:
            problems.append(Problem(where, text, ALLOWED))
        elif host.name in found:
            first = f", first in {found[host.name]}" if found[host.name] != where else ""
            problems.append(Problem(where, text, says=f"this host is named twice{first}. Name it once."))
        else:
            found[host.name] = where
            hosts.append(host)
    return tuple(hosts)


def _host(words: list[str]) -> Host | None:
    """One entry; None if it is malformed."""
    if not words:
        return None
    name, colon, slots = words[0].partition(":")
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in ("slots", "max_slots", "max-slots"):
            return None
        colon, slots = "=", value if key == "slots" else slots or value
    if not name or not all(letter.isalnum() or letter in "-._" for letter in name):
        return None
    if not colon:
        return Host(name, None)
    number = whole_number(slots)
    return Host(name, number) if number else None


def unknown(hosts: Iterable[Host]) -> Iterator[str]:
    """Names that this machine cannot resolve."""
    for host in hosts:
        try:
            socket.getaddrinfo(host.name, None)
        except OSError:
            yield host.name


def too_small(hosts: Iterable[Host], nproc_per_node: int) -> Mapping[str, int]:
    """Hosts with fewer slots than ranks would go there."""
    return {host.name: host.slots for host in hosts if host.slots is not None and host.slots < nproc_per_node}
