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
    """None where HOME is another than the system's: sshd on other machines would give that one."""
    try:
        ours = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user of a container
        return Path.home()
    return ours if ours == Path.home() else None
