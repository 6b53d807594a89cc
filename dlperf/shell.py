"""Texts for a POSIX shell that hold on other machines too."""

from __future__ import annotations

import shlex
from pathlib import Path


def quote(text: object) -> str:
    """One word for the shell, with $HOME for the user's home folder: scripts and reports name no one's."""
    home = f"{Path.home()}/"
    parts = str(text).split(home)
    if len(parts) == 1:
        return shlex.quote(parts[0])
    return '"$HOME"/'.join(shlex.quote(part) if part else "" for part in parts)
