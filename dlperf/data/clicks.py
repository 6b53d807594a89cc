"""Prepares clicks on advertisements for CTR-DNN: `python -m dlperf.data clicks --source FILE --output DIR`.

The files that come out are described in `dlperf.models.clicks`. The same lines and options give the same bytes.

A line is one of Criteo's: label, 13 whole numbers, 26 categories. As the readers of PaddlePaddle's CTR-DNN have it,

- a number x becomes (x - LEAST) / RANGE of its place, where nothing is cut off: most are from 0 to 1, some far above.
  One that is missing is 0.
- a category becomes a row of the one table, by a hash of its place and its text. Theirs is Python's own hash, which
  differs between processes; here it is CRC-32 of "place:text", with places from 0, modulo the rows but the first 26.
- a category that is missing has a row of its own for each place, which no other category has: row 0 for the first
  place, row 25 for the last. Theirs is hashed as an empty text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from dlperf.data.folder import aside, digest, growing, output_problems, stage
from dlperf.data.lines import Line, lines, sizes, source_files, source_problems, vocabulary_of
from dlperf.errors import UsageError, shortened
from dlperf.models import clicks
from dlperf.models.clicks import FIELDS, NUMBERS, SLOTS
from dlperf.models.prepared import DESCRIPTION
from dlperf.words import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: of each number what is taken off, and what it is divided by
LEAST = (0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
RANGE = (20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50)
#: CRC-32 of what stands before a category's text
PLACES = tuple(zlib.crc32(b"%d:" % slot) for slot in range(SLOTS))
WHOLE = re.compile(rb"(-?[0-9]{1,18})?")
#: rows that are written at once
BATCH = 10_000
FORM = f"a label, {NUMBERS} whole numbers and {SLOTS} categories"
HELP = f"""\
Turns lines of clicks on advertisements, as Criteo publishes them, into rows for CTR-DNN.

A line has {FORM}, with a tab between two; numbers and categories may be
empty. Numbers are scaled as in PaddlePaddle's CTR-DNN, by ranges that stand in dlperf/data/clicks.py; empty ones are 0.
Categories are hashed into the rows of the table, an empty one has a row of its own.
"""


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. vocabulary: rows of the table."""

    source: Path
    output: Path
    vocabulary: int


def add_to(kinds: Any) -> None:
    """The command's options."""
    parser = kinds.add_parser(
        "clicks",
        help="clicks for CTR-DNN from lines as Criteo has them",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--source", required=True, metavar="FILE", type=Path, help="file, or a folder of *.txt")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    help = f"rows of the table that categories are hashed into (default: {_read()[0]})"
    parser.add_argument("--vocabulary", metavar="N", help=help)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))


def _read() -> list[int]:
    """The tables of the models that read such rows."""
    return [one.vocabulary for one in sizes("clicks") if (one.numbers, one.slots) == (NUMBERS, SLOTS)]


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the lines."""
    vocabulary, problems = vocabulary_of(asked.vocabulary, _read(), "CTR-DNN", least=SLOTS + 1)
    problems += source_problems(asked.source) + output_problems(asked.output, "--source", asked.source)
    if problems:
        raise UsageError(problems)
    return Options(asked.source, asked.output, vocabulary)


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end. UsageError, with file and line, for the first
    line that will not do, RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        found = _prepare_in(data, options, quiet)
    if not quiet:
        corpus, rows = found["corpus"], found["rows"]
        print(
            f"{options.output}: {count(rows, 'row')} in {time.monotonic() - begin:.1f} s, "
            f"{corpus['clicked'] / rows:.0%} "
            f"clicked; {corpus['empty_categories'] / rows / SLOTS:.0%} of the categories are empty, the others are in "
            f"{corpus['used']:,} of {found['vocabulary']:,} rows of the table."
        )
    return found


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    files = source_files(options.source)
    clicked = empty = 0
    used = numpy.zeros(options.vocabulary, bool)
    axes = {"numbers": NUMBERS, "slots": SLOTS}
    with stage("rows", sum(file.stat().st_size for file in files), quiet) as advance:
        read = lines(files, NUMBERS + SLOTS + 1, FORM, advance)
        with growing(data, FIELDS, axes) as arrays:
            for batch in _batches(read, options.vocabulary):
                for name, values in batch.items():
                    arrays[name].add(values)
                clicked += int(batch["clicked"].sum())
                empty += int((batch["categories"] < SLOTS).sum())
                used[batch["categories"]] = True
    found = {
        "format": clicks.FOLDER.format,
        "version": clicks.FOLDER.version,
        "rows": arrays["clicked"].rows,
        **axes,
        "vocabulary": options.vocabulary,
        "corpus": {
            "files": len(files),
            "clicked": clicked,
            "empty_categories": empty,
            "used": int(used[SLOTS:].sum()),
        },
        "digest": digest(arrays),
    }
    (data / DESCRIPTION).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return found


def _batches(read: Iterator[Line], vocabulary: int) -> Iterator[dict[str, NDArray[Any]]]:
    while batch := [_example(line, vocabulary) for line in itertools.islice(read, BATCH)]:
        yield {name: numpy.array(values) for name, values in zip(FIELDS, zip(*batch, strict=True), strict=True)}


def _example(line: Line, vocabulary: int) -> tuple[list[float], list[int], int]:
    """In the order of FIELDS."""
    label, numbers, categories = line.fields[0], line.fields[1 : 1 + NUMBERS], line.fields[1 + NUMBERS :]
    if label not in (b"0", b"1"):
        raise line.wrong(f"its label is {_text(label)}; allowed: 0 or 1.")
    for place, number in enumerate(numbers, 1):
        if not WHOLE.fullmatch(number):
            allowed = "a whole number of up to 18 digits, or nothing"
            raise line.wrong(f"its number {place} is {_text(number)}; allowed: {allowed}.")
    scaled = [
        (int(number) - least) / range if number else 0.0
        for number, least, range in zip(numbers, LEAST, RANGE, strict=True)
    ]
    return scaled, [row(slot, text, vocabulary) for slot, text in enumerate(categories)], int(label)


def _text(field: bytes) -> str:
    return repr(shortened(field.decode("utf-8", "replace")))


def row(slot: int, category: bytes, vocabulary: int) -> int:
    """Of a table of so many rows that of a category. slot: its place, from 0."""
    return SLOTS + zlib.crc32(category, PLACES[slot]) % (vocabulary - SLOTS) if category else slot
