"""Whether what a finished run lived in is still here, as it was."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from dlperf import cache
from dlperf.docker import engine
from dlperf.envs import current, venv
from dlperf.shell import quote


def gone(stored: Mapping[str, str], script: str) -> str:
    """What became of it, and what to do; empty where it is as it was. stored: Record.environment. script: the run's
    launch.sh, which names its interpreter. RunError where an engine of containers does not answer."""
    digest, image = stored.get("digest", ""), stored.get("image", "")
    if image:
        found = engine.find(stored["kind"], image)
        return "" if found and found.digest == digest else f"its image {image} is not here any more, or is another"
    if stored.get("kind") == "current":
        if quote(sys.executable) not in script:
            return "it ran in another Python (--env current). Call dlperf with that one"
        same = current.digest() == digest
        return "" if same else "packages of this Python have changed since (--env current). Install those that it had"
    folders = [one for one in (cache.folder() / "envs").glob("*") if quote(one / "bin" / "python") in script]
    if not folders:
        step = "python -m dlperf.envs install makes it again if its lock has not changed"
        return f"its environment is not in {cache.folder()}; {step}"
    same = venv.digest_in(folders[0]) == digest
    return "" if same else f"its environment {folders[0]} has changed since; python -m dlperf.envs check tells in what"
