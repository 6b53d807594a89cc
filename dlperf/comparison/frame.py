"""The runs of a comparison as a table for further work."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.comparison import store
from dlperf.figures.rows import rows

if TYPE_CHECKING:
    import pandas


def load(folder: str | os.PathLike[str]) -> pandas.DataFrame:
    """The runs of a comparison as a DataFrame: one row per run, columns as in results.csv. folder: a comparison's, a
    published report's, or its results.json.

    UsageError, which names file and field, where it is not what dlperf wrote. What was changed by hand is a warning.
    """
    import pandas

    comparison, changed = store.read(Path(folder))
    for warning in changed:
        warnings.warn(warning, stacklevel=2)
    return pandas.DataFrame(rows(comparison))
