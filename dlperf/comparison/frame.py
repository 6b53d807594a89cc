"""The runs of a comparison as a table for further work."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.comparison import store
from dlperf.errors import Problem, UsageError
from dlperf.figures.rows import rows

if TYPE_CHECKING:
    import pandas


def load(*folders: str | os.PathLike[str]) -> pandas.DataFrame:
    """The runs of comparisons as a DataFrame: one row per run, columns as in results.csv. folder: a comparison's, a
    published report's, its results.json or its archive. Of several, a first column `comparison` has the place of each,
    as given.

    UsageError, which names file and field, where it is not what dlperf wrote. What was changed by hand is a warning.
    """
    import pandas

    if not folders:
        raise UsageError([Problem("RUN", "", says="names no comparison: dlperf.load(folder), or several.")])
    made = []
    for folder in folders:
        comparison, changed = store.read(Path(folder))
        for warning in changed:
            warnings.warn(warning, stacklevel=2)
        place = {"comparison": os.fspath(folder)} if len(folders) > 1 else {}
        made += [place | row for row in rows(comparison)]
    return pandas.DataFrame(made)
