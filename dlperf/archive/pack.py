"""Writes the archive of a comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlperf.archive import tar
from dlperf.archive.check import check
from dlperf.archive.content import contents
from dlperf.archive.tar import SUFFIX
from dlperf.comparison import store
from dlperf.errors import Problem, RunError, UsageError
from dlperf.planning.plan import file_name
from dlperf.report import gate
from dlperf.schema import Comparison

__all__ = ["SUFFIX", "fits", "opened", "write"]


def opened(folder: Path) -> tuple[Comparison, Sequence[str]]:
    """As `store.read`, of a folder with its runs: what is published already has no events."""
    if not (folder / store.MANIFEST).is_file():
        says = f"this is no folder with {store.MANIFEST}. Name a comparison's folder, with its runs."
        raise UsageError([Problem("RUN", folder, says=says)])
    return store.read(folder)


def fits(name: str) -> bool:
    """Whether an archive may have this name."""
    return bool(name) and not name.startswith((".", "-")) and name == file_name(name)


def write(comparison: Comparison, folder: Path, file: Path) -> None:
    """Write the archive of a comparison, which verifies but for its report, to NAME.dlperf.tar.gz. folder: its own. The
    report in it says which conditions of publishing it does not meet.

    UsageError for another name, or a file of the comparison that cannot be packed; RunError where the archive would not
    verify. Then the file is as it was.
    """
    name = file.name.removesuffix(SUFFIX)
    if not file.name.endswith(SUFFIX) or not fits(name):
        allowed = f"a name of letters, digits and -._=+ that ends in {SUFFIX}"
        raise UsageError([Problem("--output", file, allowed)])
    comparison = replace(comparison, unmet=gate.of_published(comparison) or comparison.unmet)
    try:
        data = tar.packed(name, contents(comparison, folder))
    except ValueError as error:
        raise UsageError([Problem("RUN", folder, says=f"it cannot be packed: {error}.")]) from None
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=file.parent) as aside:
        new = Path(aside, file.name)
        new.write_bytes(data)
        found = check(new, render=False)
        problems = (*found.problems, *found.uncompared)
        if problems:
            raise RunError("archive", f"{folder} makes no archive that verifies.", problems)
        new.replace(file)
