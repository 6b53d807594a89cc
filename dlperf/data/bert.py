"""Prepares text for BERT: `python -m dlperf.data bert --corpus DIR --output DIR`.

The files that come out are described in `dlperf.models.pretraining`. The same corpus and the same options give the same
bytes: files are read in the order of their names, every draw is seeded, and the generators (numpy's RandomState,
Python's random.random) are frozen by their makers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from dlperf import models
from dlperf.data.folder import Advance, aside, digest, growing, output_problems, stage
from dlperf.data.pretraining import Corpus, Options, batches, pairs, rows, tokenize
from dlperf.data.text import corpus_problems, read_vocabulary, scan, text_files, train
from dlperf.errors import Problem, UsageError, decimal, either, whole_number
from dlperf.models import pretraining
from dlperf.models.bert import FIELDS
from dlperf.models.prepared import DESCRIPTION
from dlperf.words import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf.data.pretraining import Arrays


class Number(NamedTuple):
    """A numeric option: how to read it, its default, which values fit, and what to tell people. convert: None where the
    text is none."""

    convert: Callable[[str], float | None]
    default: float
    fits: Callable[[float], bool]
    allowed: str
    help: str


def _whole(default: int, low: int, high: int, help: str) -> Number:
    allowed = f"a whole number from {low} to {high}"
    return Number(lambda text: whole_number(text, low), default, lambda value: value <= high, allowed, help)


NUMBERS = {
    "vocab_size": _whole(30522, 6, 10**6, "most words of a trained vocabulary; a small corpus yields fewer"),
    "sequence": _whole(128, 8, 512, "tokens of a row"),
    "masked": _whole(20, 1, 509, "most masked words of a row"),
    "masking": Number(
        decimal, 0.15, lambda value: 0 < value < 1, "a number above 0 and below 1", "share of masked words"
    ),
    "short_sequence_probability": Number(
        decimal, 0.1, lambda value: 0 <= value <= 1, "a number from 0 to 1", "share of documents cut into shorter rows"
    ),
    "duplicate_factor": _whole(5, 1, 1000, "times each document is used, with other pairs and masks"),
    "seed": _whole(12345, 0, 2**32 - 1, "of every draw"),
}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the corpus."""
    numbers, problems = _numbers({name: getattr(asked, name) for name in NUMBERS})
    if not problems and numbers["masked"] > numbers["sequence"] - 3:
        allowed = f"1 to {numbers['sequence'] - 3}, which is --sequence less [CLS] and two [SEP]"
        problems.append(Problem("--masked", numbers["masked"], allowed))
    words = None
    if asked.vocab is not None:
        words, wrong = read_vocabulary(asked.vocab)
        problems += wrong
        if asked.vocab_size is not None:
            says = "--vocab is given too, which has its own size. Leave out one of them."
            problems.append(Problem("--vocab-size", asked.vocab_size, says=says))
    if not problems:
        problems += _unread(numbers, words, asked)
    problems += corpus_problems(asked.corpus) + output_problems(asked.output, "--corpus", asked.corpus)
    if problems:
        raise UsageError(problems)
    return Options(asked.corpus, asked.output, words, **numbers)


def _unread(numbers: dict[str, Any], words: Sequence[str] | None, asked: argparse.Namespace) -> list[Problem]:
    """Why no model would read such rows, so that every comparison would refuse the folder."""
    read: dict[tuple[int, int], int] = {}  # tokens and masked words of a row -> the largest vocabulary
    for model in models.NAMES:
        if models.family(model).INPUT == "pretraining":
            config = models.config(model)
            size = config.sequence, config.masked
            read[size] = max(config.vocabulary, read.get(size, 0))
    sequence, masked = numbers["sequence"], numbers["masked"]
    most = read.get((sequence, masked))
    if most is None:
        pairs = either([f"{one} with --masked {other}" for one, other in sorted(read)])
        says = f"no model reads rows of so many tokens with --masked {masked}; allowed: {pairs}."
        return [Problem("--sequence", sequence, says=says)]
    allowed = f"at most {most}, the vocabulary of models that read rows of {sequence} tokens"
    if words is not None:
        says = f"it has {len(words)} words; allowed: {allowed}."
        return [Problem("--vocab", asked.vocab, says=says)] if len(words) > most else []
    if asked.vocab_size is None:
        numbers["vocab_size"] = min(numbers["vocab_size"], most)
    return [Problem("--vocab-size", asked.vocab_size, allowed)] if numbers["vocab_size"] > most else []


def _numbers(given: dict[str, str | None]) -> tuple[dict[str, Any], list[Problem]]:
    numbers: dict[str, Any] = {}
    problems = []
    for name, number in NUMBERS.items():
        text = given[name]
        value = number.default if text is None else number.convert(text)
        if value is None or not number.fits(value):
            problems.append(Problem(flag(name), text, number.allowed, f"The default is {number.default}."))
        else:
            numbers[name] = value
    return numbers, problems


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end, so that an interrupted preparation leaves no
    folder that looks complete. UsageError for a corpus that will not do, RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        description = _prepare_in(data, data.parent / "tokens", options, quiet)
    if not quiet:
        _summary(description, options.output, time.monotonic() - begin)
    return description


def _prepare_in(data: Path, tokens: Path, options: Options, quiet: bool) -> dict[str, Any]:
    """Fills the folder `data`; `tokens` is a file for the time being."""
    files = text_files(options.corpus)
    with stage("read", sum(file.stat().st_size for file in files), quiet) as advance:
        characters = scan(files, advance)
    size = characters.total()
    words = options.words
    if words is None:
        with stage("vocabulary", size, quiet) as advance:
            words = train(batches(files, advance), characters, options.vocab_size)
    with stage("tokens", size, quiet) as advance:
        corpus = tokenize(batches(files, advance), words, tokens)
    if len(corpus.sentences) < 3:
        raise UsageError([Problem("--corpus", options.corpus, says="it has fewer than two sentences. Add text.")])
    with stage("pairs", options.duplicate_factor * (len(corpus.documents) - 1), quiet) as advance:
        found = pairs(corpus, options, advance)
    with stage("rows", len(found[0]), quiet) as advance:
        written = _write(data, rows(corpus, found, words, options), options, advance)
    (data / pretraining.VOCABULARY).write_text("".join(word + "\n" for word in words), "utf-8")
    description = _describe(options, words, corpus, found, written, len(files))
    (data / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", "utf-8")
    return description


def _write(folder: Path, chunks: Iterator[Arrays], options: Options, advance: Advance) -> str:
    """Writes the arrays chunk by chunk and returns their digest."""
    sizes = {axis: getattr(options, axis) for axes, _ in FIELDS.values() for axis in axes}
    with growing(folder, FIELDS, sizes) as arrays:
        for chunk in chunks:
            for field, values in chunk.items():
                arrays[field].add(values)
            advance(len(chunk["lengths"]))
    return digest(arrays)


def _describe(
    options: Options, words: Sequence[str], corpus: Corpus, found: list[NDArray[Any]], written: str, files: int
) -> dict[str, Any]:
    unknown = words.index("[UNK]")
    return {
        "format": pretraining.FOLDER.format,
        "version": pretraining.FOLDER.version,
        "rows": len(found[0]),
        "random_next_rows": int(found[4].sum()),
        "sequence": options.sequence,
        "masked": options.masked,
        "vocabulary": len(words),
        "masking": options.masking,
        "short_sequence_probability": options.short_sequence_probability,
        "duplicate_factor": options.duplicate_factor,
        "seed": options.seed,
        "corpus": {
            "files": files,
            "documents": len(corpus.documents) - 1,
            "sentences": len(corpus.sentences) - 1,
            "tokens": len(corpus.tokens),
            "unknown_tokens": int(numpy.count_nonzero(corpus.tokens == unknown)),
        },
        "digest": written,
    }


def _summary(description: dict[str, Any], output: Path, seconds: float) -> None:
    corpus, rows = description["corpus"], description["rows"]
    print(
        f"{output}: {count(rows, 'row')} in {seconds:.1f} s ({rows / seconds:,.0f} rows/s), "
        f"{description['random_next_rows'] / rows:.0%} of them with a random second text; "
        f"{count(corpus['documents'], 'document')}, {count(corpus['sentences'], 'sentence')}, "
        f"{count(corpus['tokens'], 'token')} "
        f"({corpus['unknown_tokens'] / corpus['tokens']:.2%} unknown), {count(description['vocabulary'], 'word')}."
    )
