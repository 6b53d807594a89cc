"""Archives of comparisons: one file with all that a sceptical reader needs, and the check of what is in it."""

from __future__ import annotations

from pathlib import Path


def verify(path: Path, render: bool = True) -> list[str]:
    """What is wrong with an archive, or could not be compared, a sentence for each; empty when it verifies. Needs no
    network.

    render: also whether its report is what its results give, which takes seconds. OSError where there is no such file.
    """
    from dlperf.archive.check import check  # what it imports takes longer than `--help` may

    found = check(path, render)
    return [*found.problems, *found.uncompared]
