"""Prepares real input for the models: `python -m dlperf.data bert|text|translation|words|clicks|queries|imagenet`."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dlperf.cli import Parser, exit_code
from dlperf.data import clicks, gpt, photos, queries, translation, words
from dlperf.data.bert import NUMBERS, flag, options, prepare
from dlperf.data.text import LONG_LINE

HELP = f"""\
Turns the plain text files of a folder (*.txt, also in its subfolders, UTF-8) into BERT pretraining examples.

One sentence per line, blank lines between documents; the end of a file ends a document too. A line of more than
{LONG_LINE} characters is taken for a paragraph and split after . ! ? and their like; what is still longer is cut
between words. Text is lowercased and stripped of accents, as BERT's uncased models have it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for a request that cannot be met; 1 for a failure on the way; 130 after Ctrl-C, 143 after
    SIGTERM."""
    asked = parser().parse_args(arguments)

    def run() -> None:
        asked.run(asked)

    return exit_code(run, interrupted=f"Interrupted: nothing was written to {asked.output}.")


def parser() -> Parser:
    made = Parser(prog="python -m dlperf.data", description="Prepares real input for the models.")
    kinds = made.add_subparsers(dest="kind", required=True, metavar="KIND")
    bert = kinds.add_parser(
        "bert",
        help="BERT pretraining examples from plain text",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bert.add_argument("--corpus", required=True, metavar="DIR", type=Path, help="folder of text files")
    bert.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    bert.add_argument("--vocab", metavar="FILE", type=Path, help="vocab.txt to use, one word per line (else: trained)")
    for name, number in NUMBERS.items():
        # Read as text: argparse would stop at the first wrong number, we name them all.
        help = f"{number.help}; {number.allowed} (default: {number.default})"
        bert.add_argument(flag(name), metavar="N", help=help)
    bert.add_argument("--quiet", action="store_true", help="print errors only")
    bert.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))
    gpt.add_to(kinds)
    translation.add_to(kinds)
    for kind in (words, clicks, queries):
        kind.add_to(kinds)
    photos.add_to(kinds)
    return made


if __name__ == "__main__":
    sys.exit(main())
