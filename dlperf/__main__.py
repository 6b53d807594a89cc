"""`dlperf COMMAND ...`: the same commands as `python -m dlperf.COMMAND ...`."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import importlib
import sys

from dlperf import __version__
from dlperf.cli import exit_code
from dlperf.errors import Problem, did_you_mean

COMMANDS = {
    "archive": "pack a comparison into one file that anybody can check, check it, sign it",
    "compare": "train the same models in several frameworks and report who was faster",
    "data": "prepare text for BERT and images for ResNet",
    "doctor": "say what this machine is, which rows run on it, and what a comparison takes",
    "envs": "list, install and remove the frameworks' environments",
    "images": "build, list, run and inspect the frameworks' images",
    "list": "list frameworks, models, options, and what is supported where",
    "publish": "put a comparison that is fit for it among published ones, with its archive",
    "report": "render reports again, and several together",
    "scaling": "hold the model of scaling against DLPerf's published tables",
    "show": "show a comparison's rows, or all runs of one row",
    "site": "make a site of static pages over a folder of published reports",
    "table": "print the small tables of a comparison as Markdown, or renew them in a page",
    "verify": "prove that the frameworks do the same work",
    "why": "tell where the steps of two rows differ",
}
#: those that are packages, with a __main__
PACKAGES = frozenset(["archive", "data", "envs", "report"])


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
        + "\n".join(f"  {key:<9}{text}" for key, text in COMMANDS.items())
    )
    if name in ("-h", "--help"):
        return 0
    print(f"\n{Problem('command', name, ', '.join(COMMANDS), did_you_mean(name, COMMANDS))}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
