"""Where dlperf keeps what it makes for later: environments, wheels, certificates."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """$DLPERF_CACHE, else dlperf in the user's cache folder."""
    own = os.environ.get("DLPERF_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dlperf"
