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
    """The runs in a comparison's folder as a DataFrame: one row per run, columns as in results.csv. A published report
    has its results.json alone, which is taken then.

    UsageError, which names file and field, where neither is what dlperf wrote. What was changed by hand is a warning.
    """
    import pandas

    place, results = Path(folder), Path(folder) / store.RESULTS
    if results.exists() and not (place / store.MANIFEST).exists():
        return pandas.DataFrame(rows(store.open_results(results)))
    opened = store.open_folder(place)
    for warning in opened.warnings:
        warnings.warn(warning, stacklevel=2)
    return pandas.DataFrame(rows(opened.comparison))
