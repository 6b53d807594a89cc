"""The runs of a comparison as a table for further work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.comparison import store
from dlperf.figures.rows import rows

if TYPE_CHECKING:
    import pandas


def load(folder: str | os.PathLike[str]) -> pandas.DataFrame:
    """The runs in a comparison's folder as a DataFrame: one row per run, columns as in results.csv."""
    import pandas

    return pandas.DataFrame(rows(store.open_folder(Path(folder)).comparison))
