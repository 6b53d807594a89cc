"""`dlperf COMMAND ...`: the same commands as `python -m dlperf.COMMAND ...`."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import importlib
import sys

from dlperf import __version__
from dlperf.cli import COMMANDS, PACKAGES, exit_code
from dlperf.errors import Problem, did_you_mean


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        command = importlib.import_module(f"dlperf.{name}" + (".__main__" if name in PACKAGES else ""))
        return int(command.main(sys.argv[2:]))
    return exit_code(lambda: _usage(name))


def _usage(name: str) -> int:
    """Of --help, --version and a command that does not exist."""
    if name == "--version":
        print(f"dlperf {__version__}")
        return 0
    print(
        "usage: dlperf COMMAND [--help], or --version\n\n"
        + "\n".join(f"  {key:<11}{text}" for key, text in COMMANDS.items())
    )
    if name in ("-h", "--help"):
        return 0
    print(f"\n{Problem('command', name, ', '.join(COMMANDS), did_you_mean(name, COMMANDS))}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
