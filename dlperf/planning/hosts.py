"""The machines that ranks may go to: --hosts, or a hostfile as Open MPI and Horovod have it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dlperf.errors import Problem, whole_number

ALLOWED = "NAME, NAME:SLOTS or, in a file, NAME slots=N; NAME is a host's name or address"

#: of a host; one that begins with a dash would be an option of ssh
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
#: ranks on one host, and bytes of a hostfile, at most
SLOTS, LARGEST = 2**20, 10**6


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
    wrong, text = _read(Path(path))
    if wrong:
        problems.append(Problem("--hostfile", path, says=wrong))
        return ()
    numbered = ((number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
    entries = [(f"{path}, line {number}", " ".join(words), words) for number, words in numbered if words]
    if not entries:
        problems.append(Problem("--hostfile", path, says="it names no host. Write one on each line."))
    return _checked(entries, problems)


def _read(path: Path) -> tuple[str, str]:
    """What is wrong with a hostfile, and its text. A pipe or a device is never opened: it may have no end."""
    try:
        if path.exists() and not path.is_file():
            return (
                f"it is {'a folder' if path.is_dir() else 'no regular file'}. Name a file with a host on each line.",
                "",
            )
        with open(path, "rb") as file:
            found = file.read(LARGEST + 1)
        text = found.decode("utf-8")
    except OSError as error:
        return f"cannot be read: {error.strerror}.", ""
    except UnicodeDecodeError:
        text = "\0"
    except ValueError:
        return "is no name of a file.", ""
    if "\0" in text:
        return "it is not a text file. Name a file with a host on each line.", ""
    if len(found) > LARGEST:
        return f"it has more than {LARGEST:,} bytes, as no hostfile has. Name a file with a host on each line.", ""
    return "", text


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
    if not NAME.fullmatch(name):
        return None
    if not colon:
        return Host(name, None)
    number = whole_number(slots, most=SLOTS)
    return Host(name, number) if number else None


def unknown(hosts: Iterable[Host]) -> Iterator[str]:
    """Names that this machine cannot resolve."""
    for host in hosts:
        try:
            socket.getaddrinfo(host.name, None)
        except (OSError, UnicodeError):  # the latter where a part of the name is empty or too long
            yield host.name


def too_small(hosts: Iterable[Host], nproc_per_node: int) -> Mapping[str, int]:
    """Hosts with fewer slots than ranks would go there."""
    return {host.name: host.slots for host in hosts if host.slots is not None and host.slots < nproc_per_node}
