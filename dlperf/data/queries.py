"""Prepares queries for Simnet-BOW: `python -m dlperf.data queries --source FILE --output DIR`.

The files that come out are described in `dlperf.models.queries`. The same lines and the same options give the same
bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from dlperf.data.folder import aside, digest, growing, output_problems, stage
from dlperf.data.lines import lines, most_frequent, sizes, source_files, source_problems, vocabulary_of
from dlperf.errors import Problem, UsageError, either, whole_number
from dlperf.models import queries
from dlperf.models.prepared import DESCRIPTION
from dlperf.models.queries import FIELDS, PADDING
from dlperf.words import count

#: rows that are written at once
BATCH = 10_000
#: fields of a line, of which each is an array of this name
TEXTS = tuple(FIELDS)
FORM = "a query, the title that was clicked and another title"
HELP = f"""\
Turns lines (UTF-8) with {FORM}, with a tab
between two, into rows for Simnet-BOW.

Words are what stands between white space, in lower case. Of each text the first ones count, as many as the model has
room for; those that are not in the vocabulary are left out before. Lines with a text of which no word is left are left
out; how many is printed.
"""


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. query, title: words of each, at most. vocabulary: most words of it."""

    source: Path
    output: Path
    query: int
    title: int
    vocabulary: int


def add_to(kinds: Any) -> None:
    """The command's options."""
    (query, title), (vocabulary, *_) = next(iter(_read().items()))
    parser = kinds.add_parser(
        "queries",
        help="queries with titles for Simnet-BOW from lines of text",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--source", required=True, metavar="FILE", type=Path, help="file, or a folder of *.txt")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    parser.add_argument("--query", default=str(query), metavar="N", help=f"most words of a query (default: {query})")
    parser.add_argument("--title", default=str(title), metavar="N", help=f"most words of a title (default: {title})")
    help = f"most words of the vocabulary, the most frequent ones (default: the model's, {vocabulary})"
    parser.add_argument("--vocabulary", metavar="N", help=help)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))


def _read() -> dict[tuple[int, int], list[int]]:
    """Words of a query and of a title that some model reads -> the vocabularies of these models."""
    found: dict[tuple[int, int], list[int]] = {}
    for config in sizes("queries"):
        found.setdefault((config.query, config.title), []).append(config.vocabulary)
    return found


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the lines."""
    read = _read()
    query, title = (whole_number(one) or 0 for one in (asked.query, asked.title))
    problems = []
    if (query, title) not in read:
        pairs = either([f"{one} with --title {other}" for one, other in sorted(read)])
        says = f"no model reads such rows with --title {asked.title}; allowed: {pairs}."
        problems.append(Problem("--query", asked.query, says=says))
    vocabularies = read.get((query, title)) or [size for sizes in read.values() for size in sizes]
    vocabulary, wrong = vocabulary_of(asked.vocabulary, vocabularies, "Simnet-BOW")
    problems += [*wrong, *source_problems(asked.source), *output_problems(asked.output, "--source", asked.source)]
    if problems:
        raise UsageError(problems)
    return Options(asked.source, asked.output, query, title, vocabulary)


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end. UsageError for lines that will not do, with file
    and line where it is one, RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        found = _prepare_in(data, options, quiet)
    if not quiet:
        corpus = found["corpus"]
        print(
            f"{options.output}: {count(found['rows'], 'row')} in {time.monotonic() - begin:.1f} s; left out: "
            f"{count(corpus['empty'], 'line')} with a text of which no word is left; cut: "
            f"{count(corpus['cut'], 'text')}; a vocabulary of {found['vocabulary']:,}."
        )
    return found


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    files, counts = source_files(options.source), Counter[str]()
    size = sum(file.stat().st_size for file in files)
    with stage("vocabulary", size, quiet) as advance:
        for texts in _texts(lines(files, len(TEXTS), FORM, advance)):
            for words in texts:
                counts.update(words)
    vocabulary = most_frequent(counts, options.vocabulary)
    axes = {"query": options.query, "title": options.title}
    rows = Rows({word: number for number, word in enumerate(vocabulary)}, options)
    with stage("rows", size, quiet) as advance, growing(data, FIELDS, axes) as arrays:
        found = rows.of(_texts(lines(files, len(TEXTS), FORM, advance)))
        while batch := list(itertools.islice(found, BATCH)):
            for name, values in zip(TEXTS, zip(*batch, strict=True), strict=True):
                arrays[name].add(numpy.array(values))
    if not arrays["query"].rows:
        says = "no line is left: in each a text has no word of the vocabulary. Add lines."
        raise UsageError([Problem("--source", options.source, says=says)])
    (data / queries.VOCABULARY).write_text("".join(word + "\n" for word in vocabulary), "utf-8")
    described = {
        "format": queries.FOLDER.format,
        "version": queries.FOLDER.version,
        "rows": arrays["query"].rows,
        **axes,
        "vocabulary": len(vocabulary),
        "corpus": {"files": len(files), "words": counts.total(), "empty": rows.empty, "cut": rows.cut},
        "digest": digest(arrays),
    }
    (data / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    return described


def _texts(read: Iterator[Any]) -> Iterator[list[list[str]]]:
    """Of each line the words of its texts."""
    for line in read:
        try:
            yield [field.decode().lower().split() for field in line.fields]
        except UnicodeDecodeError:
            raise line.wrong("it is not UTF-8. Convert the file: iconv -f latin1 -t utf-8.") from None


class Rows:
    """What becomes of texts. numbers: of the words of the vocabulary. empty: lines that were left out so far. cut:
    texts that were too long."""

    def __init__(self, numbers: Mapping[str, int], options: Options) -> None:
        self._numbers, self.empty, self.cut = numbers, 0, 0
        self._most = {"query": options.query, "title": options.title, "other": options.title}

    def of(self, texts: Iterator[list[list[str]]]) -> Iterator[list[list[int]]]:
        """Of each line that is not left out its three texts, padded."""
        numbers = self._numbers
        for words in texts:
            found = [[numbers[word] for word in text if word in numbers] for text in words]
            if not all(found):
                self.empty += 1
                continue
            most = self._most.values()
            self.cut += sum(len(text) > size for text, size in zip(found, most, strict=True))
            yield [text[:size] + [PADDING] * (size - len(text)) for text, size in zip(found, most, strict=True)]
