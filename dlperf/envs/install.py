"""Installs from package indexes, those of the user first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.catalog.locks import Requirement
from dlperf.envs import indexes
from dlperf.envs.explain import explained, gigabytes, missing_package
from dlperf.envs.making import Making

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter

#: downloads that are worth a line of progress, in MB
LARGE_MB = 50


def summary_of(adapter: Adapter, requirements: Sequence[Requirement]) -> str:
    """ "torch 2.13.0 and 9 more", for people. A lock may list several versions, for several Pythons."""
    names = {one.name for one in requirements}
    main = [one for one in requirements if one.name in adapter.distribution] or list(requirements[:1])
    first = str(main[0]) if len(main) == 1 else main[0].name
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


#: as pip does: all indexes count, not the first that knows a package
BEST_MATCH = ["--index-strategy", "unsafe-best-match"]


def from_indexes(making: Making, command: list[str], environ: Callable[[Sequence[str]], dict[str, str]]) -> None:
    """Run uv or pip with the user's indexes; only if they lack a package, with adapter.toml's too."""

    def large(line: str) -> None:
        found = re.match(r"\s*Downloading (\S+) \(([\d.]+) ?(MB|GB|MiB|GiB)\)", line)
        size = float(found[2]) * {"MB": 1, "GB": 1e3, "MiB": 1.048576, "GiB": 1073.741824}[found[3]] if found else 0
        if found and size >= LARGE_MB:
            making.say(f"downloading {found[1].rpartition('/')[2]}, {gigabytes(size * 1e6)}")

    extra, lock = making.target.spec.extra_index, making.target.spec.lock
    code, lines = making.run(command, environ(()), large)
    if code and extra and missing_package(lines, lock) and not indexes.unreachable(lines):
        making.say(f"{missing_package(lines, lock)} is not on the usual index; also looking at {', '.join(extra)}")
        code, lines = making.run(command, environ(extra), large)
    if code:
        raise explained(making.target, lines, f"{Path(command[0]).name} failed")
