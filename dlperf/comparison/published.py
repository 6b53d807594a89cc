"""What is read of a comparison that was published: its results.json, or the one in its archive."""

from __future__ import annotations

from pathlib import Path

from dlperf.archive import tar
from dlperf.errors import Problem, UsageError

RESULTS = "results.json"


def content(path: Path) -> bytes:
    """The results.json that a file is, or an archive holds, if its files are as its manifest has them; no more of it is
    checked. UsageError where a file is neither, or cannot be read."""
    if path.suffix == ".csv":
        says = (
            "a CSV file has not all of a comparison. Name its folder, its results.json or its archive "
            f"(NAME{tar.SUFFIX}); pandas.read_csv reads results.csv."
        )
        raise UsageError([Problem(str(path), "", says=says)])
    try:
        return _packed(path) if path.name.endswith(tar.SUFFIX) else path.read_bytes()
    except tar.Refused as error:
        raise UsageError([Problem(str(path), "", says=f"{error}. `dlperf archive verify` says more.")]) from None
    except OSError as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read: {error.strerror}.")]) from None


def _packed(path: Path) -> bytes:
    files = tar.unpacked(path)
    for wrong in tar.differing(files):
        raise tar.Refused(wrong)
    if RESULTS not in files:
        raise tar.Refused(f"it has no {RESULTS}")
    return files[RESULTS]
