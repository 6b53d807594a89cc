"""Prepares text for Word2Vec: `python -m dlperf.data words --corpus DIR --output DIR`.

The files that come out are described in `dlperf.models.words`. The same corpus and options give the same bytes.

As in word2vec and in the scripts of FleetX: words that are not in the vocabulary are left out first, so that those
beside them are neighbours; of each word that is left a window is drawn, from 1 to WINDOW, each as likely; each word at
most so far away, on the same line, is a context of it. Frequent words are not thinned out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from dlperf.data.folder import Advance, Growing, aside, digest, growing, output_problems, stage
from dlperf.data.lines import most_frequent, sizes, vocabulary_of
from dlperf.data.text import BLOCK, corpus_problems, scan, text_files
from dlperf.errors import Problem, UsageError, whole_number
from dlperf.models import words
from dlperf.models.parameters import random_state
from dlperf.models.prepared import DESCRIPTION, path
from dlperf.words import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: words on either side that may be a context, at most
WINDOW = 5
HELP = f"""\
Turns the plain text files of a folder (*.txt, also in its subfolders, UTF-8) into rows for Word2Vec: a word, and a word
near it on the same line.

Words are what stands between white space, in lower case. Those that are not in the vocabulary are left out before
windows, of 1 to {WINDOW} words on either side, are drawn. A word gives about six rows of 8 bytes. A line of more than
{BLOCK:,} characters is taken for several.
"""


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. vocabulary: most words of it. seed: of windows."""

    corpus: Path
    output: Path
    vocabulary: int
    seed: int = 1


def add_to(kinds: Any) -> None:
    """The command's options."""
    parser = kinds.add_parser(
        "words",
        help="words with contexts for Word2Vec from plain text",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", required=True, metavar="DIR", type=Path, help="folder of text files")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    help = f"most words of the vocabulary, the most frequent ones (default: {sizes('words')[0].vocabulary})"
    parser.add_argument("--vocabulary", metavar="N", help=help)
    parser.add_argument("--seed", default="1", metavar="N", help="of windows (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the corpus."""
    vocabulary, problems = vocabulary_of(asked.vocabulary, [one.vocabulary for one in sizes("words")], "Word2Vec")
    seed = whole_number(asked.seed, 0, 2**32 - 1)
    if seed is None:
        problems.append(Problem("--seed", asked.seed, f"a whole number from 0 to {2**32 - 1}"))
    problems += corpus_problems(asked.corpus) + output_problems(asked.output, "--corpus", asked.corpus)
    if problems:
        raise UsageError(problems)
    return Options(asked.corpus, asked.output, vocabulary, seed or 0)


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end. UsageError for a corpus that will not do,
    RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        found = _prepare_in(data, options, quiet)
    if not quiet:
        corpus = found["corpus"]
        print(
            f"{options.output}: {count(found['rows'], 'row')} of {count(corpus['words'], 'word')} in "
            f"{time.monotonic() - begin:.1f} s; a vocabulary of {found['vocabulary']:,}, which "
            f"{corpus['left_out']:,} words of the text are not in."
        )
    return found


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    files = text_files(options.corpus)
    with stage("read", sum(file.stat().st_size for file in files), quiet) as advance:
        size = scan(files, advance).total()
    counts: Counter[str] = Counter()
    with stage("vocabulary", size, quiet) as advance:
        for batch in _batches(files, advance):
            for line in batch:
                counts.update(_words(line))
    vocabulary = most_frequent(counts, options.vocabulary)
    with stage("rows", size, quiet) as advance:
        rows, written = _write(data, vocabulary, counts, _batches(files, advance), options.seed)
    if not rows:
        says = f"no line has two words of the vocabulary, which has {len(vocabulary):,}. Add text."
        raise UsageError([Problem("--corpus", options.corpus, says=says)])
    (data / words.VOCABULARY).write_text("".join(word + "\n" for word in vocabulary), "utf-8")
    kept = sum(counts[word] for word in vocabulary)
    found = {
        "format": words.FOLDER.format,
        "version": words.FOLDER.version,
        "rows": rows,
        "vocabulary": len(vocabulary),
        "window": WINDOW,
        "seed": options.seed,
        "corpus": {"files": len(files), "characters": size, "words": counts.total(), "left_out": counts.total() - kept},
        "digest": written,
    }
    (data / DESCRIPTION).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return found


def _words(line: str) -> list[str]:
    return line.lower().split()


def _batches(files: Sequence[Path], advance: Advance) -> Iterator[list[str]]:
    """Lines of about BLOCK characters."""
    batch, size = list[str](), 0
    for file in files:
        for line in _lines(file):
            batch.append(line)
            size += len(line)
            if size >= BLOCK:
                yield batch
                advance(size)
                batch, size = [], 0
    yield batch


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file; of more than BLOCK characters the parts, cut at blanks where there are some."""
    rest = ""
    with file.open(encoding="utf-8-sig") as stream:
        for line in iter(lambda: stream.readline(BLOCK), ""):
            line, rest = rest + line, ""
            if len(line) >= BLOCK and not line.endswith("\n"):
                head, blank, tail = line.rpartition(" ")
                line, rest = (head, tail) if blank else (line, "")
            yield line
    yield rest


def _write(
    folder: Path, vocabulary: Sequence[str], counts: Counter[str], batches: Iterator[list[str]], seed: int
) -> tuple[int, str]:
    """Writes the arrays, and returns how many rows there are, and their digest."""
    numbers = {word: number for number, word in enumerate(vocabulary)}
    random = random_state(seed, "windows")
    with growing(folder, words.FIELDS, {}) as arrays, Growing(path(folder, words.COUNTS), words.DTYPE) as often:
        often.add(numpy.array([counts[word] for word in vocabulary], words.DTYPE))
        for batch in batches:
            of_lines = [[numbers[word] for word in _words(line) if word in numbers] for line in batch]
            there = numpy.array([number for line in of_lines for number in line], "int32")
            lines = numpy.arange(len(batch)).repeat([len(line) for line in of_lines])
            windows = random.randint(1, WINDOW + 1, len(there))
            for name, values in zip(("words", "contexts"), pairs(there, lines, windows), strict=True):
                arrays[name].add(values)
    return arrays["words"].rows, digest({**arrays, words.COUNTS: often})


def pairs(numbers: NDArray[Any], lines: NDArray[Any], windows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each word and one of its contexts, in the order of the text. numbers: of words; lines: of each the number of its
    line; windows: of each how far away a context may be."""
    offsets = numpy.array([*range(-WINDOW, 0), *range(1, WINDOW + 1)])
    places = numpy.arange(len(numbers))[:, None] + offsets
    inside = (places >= 0) & (places < len(numbers)) & (abs(offsets) <= windows[:, None])
    owners, which = numpy.nonzero(inside)
    places = places[owners, which]
    same = lines[owners] == lines[places]
    return numbers[owners[same]], numbers[places[same]]
