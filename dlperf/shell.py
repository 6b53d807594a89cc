"""Texts for a POSIX shell that hold on other machines too."""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path


def quote(text: object) -> str:
    """One word for the shell, with $HOME for the user's home folder: scripts and reports name no one's."""
    home = _home()
    parts = str(text).split(f"{home}/") if home else [str(text)]
    if len(parts) == 1:
        return shlex.quote(parts[0])
    return '"$HOME"/'.join(shlex.quote(part) if part else "" for part in parts)


def _home() -> Path | None:
    """None where HOME is another than the system's: sshd on other machines would give that one. Nor is there one where
    HOME is not set: a script would find none, either."""
    told = os.environ.get("HOME", "")
    if not os.path.isabs(told):
        return None
    ours = _of_system()
    return Path(told) if ours in ("", told.rstrip("/")) else None


def home() -> str:
    """The user's home folder: $HOME, or the system's where that is no path; empty if there is none."""
    told = os.environ.get("HOME", "")
    return told if os.path.isabs(told) else _of_system()


def _of_system() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")
    except KeyError:  # a user of a container
        return ""
