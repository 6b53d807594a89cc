"""Tests with every Python here from 3.11 on: `python tests/pythons.py PYTEST'S ARGUMENTS`.

The newest of each minor version, and the system's own. Each has a copy of the tree, set up by `make setup-dev`, in a
path with a space, with another locale, time zone, umask and width of the terminal; if root runs this, the system's own
Python runs as nobody. Standard library only. The exit code is 1 if one fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MINORS = range(11, 15)
#: a locale that is not installed here acts as C
SETTINGS = (
    ({"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kolkata", "COLUMNS": "40"}, 0o022),
    ({"LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Chatham", "COLUMNS": "250"}, 0o077),
    ({"LC_ALL": "C", "TZ": "America/St_Johns"}, 0o002),
)
NOBODY = 65534


def version(python: Path) -> tuple[int, ...]:
    """(3, 11, 2); () if it does not run."""
    try:
        ended = subprocess.run([python, "-IV"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.fullmatch(r"Python (3)\.(\d+)\.(\d+)\n", ended.stdout)
    return tuple(map(int, found.groups())) if found else ()


def found() -> dict[tuple[int, ...], Path]:
    """Pythons on PATH, and those of the system, pyenv and uv, by version: the newest of each minor and the system's."""
    home = Path.home()
    folders = [Path("/usr/bin"), *Path(os.environ.get("PYENV_ROOT") or home / ".pyenv").glob("versions/*/bin")]
    folders += (home / ".local/share/uv/python").glob("*/bin")
    folders += [Path(folder) for folder in os.environ["PATH"].split(os.pathsep) if folder]
    everywhere: dict[tuple[int, ...], Path] = {}
    for folder in folders:
        for minor in MINORS:
            python = folder / f"python3.{minor}"
            if python.exists() and (known := version(python))[:2] == (3, minor):
                everywhere.setdefault(known, python)
    newest = {known[:2]: known for known in sorted(everywhere)}
    return {k: p for k, p in sorted(everywhere.items()) if newest[k[:2]] == k or p.parent == Path("/usr/bin")}


def left_out(folder: str, names: list[str]) -> set[str]:
    """What is made, not written. `runs` and `build` are such at the top only: dlperf/runs is a package."""
    made = (".*", "*.egg-info", "build", "runs") if Path(folder) == ROOT else ()
    return shutil.ignore_patterns("__pycache__", *made)(folder, names)


def run(python: Path, number: int, folder: Path, words: list[str]) -> bool:
    """Whether the tests pass with a Python, in a copy of the tree below a folder."""
    environ, umask = SETTINGS[number % len(SETTINGS)]
    tree = folder / "a copy"
    shutil.copytree(ROOT, tree, ignore=left_out)
    nobody = os.getuid() == 0 and python.parent == Path("/usr/bin")
    print(f"{python}: {environ}, umask {umask:03o}{', as nobody' if nobody else ''}", flush=True)
    if nobody:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        environ = {**environ, "HOME": str(folder)}
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if nobody else {}
    for command in (
        ["make", "--silent", "setup-dev", f"PYTHON={python}"],
        [".venv/bin/python", "-m", "pytest", *words],
    ):
        if subprocess.run(command, cwd=tree, env={**os.environ, **environ}, umask=umask, **who).returncode:
            return False
    return True


def main(words: list[str]) -> int:
    pythons, passed = found(), {}
    for number, (known, python) in enumerate(pythons.items()):
        with tempfile.TemporaryDirectory(prefix="dlperf-pythons-", ignore_cleanup_errors=True) as folder:
            passed[known] = run(python, number, Path(folder), words)
    for known, python in pythons.items():
        print(f"{'.'.join(map(str, known)):8} {'passed' if passed[known] else 'FAILED'}  {python}")
    for minor in MINORS:
        if not any(known[1] == minor for known in pythons):
            print(f"3.{minor:<6} not at hand")
    return 0 if passed and all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
