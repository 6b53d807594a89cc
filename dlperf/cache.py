"""Where dlperf keeps what it makes for later: environments, wheels, certificates."""

from __future__ import annotations

import os
from pathlib import Path

from dlperf.shell import home


def folder() -> Path:
    """$DLPERF_CACHE, else dlperf in the user's cache folder; in /tmp for a user who has no home."""
    own = os.environ.get("DLPERF_CACHE")
    if own:
        return Path(own).absolute()
    given = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "")
    if not os.path.isabs(given):  # then its standard has it passed over
        given = os.path.join(home() or f"/tmp/dlperf-{os.getuid()}", ".cache")
    return Path(given) / "dlperf"
