"""Prepares pairs of sentences for the Transformer: `python -m dlperf.data translation --source FILE --target FILE`.

The files that come out are described in `dlperf.models.translation`. The same text and the same options give the same
bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from dlperf import models
from dlperf.data import bpe
from dlperf.data.folder import Advance, aside, digest, growing, output_problems, stage
from dlperf.data.text import scan
from dlperf.errors import Problem, UsageError, either, whole_number
from dlperf.models import translation
from dlperf.models.prepared import DESCRIPTION
from dlperf.models.translation import FIELDS, SPECIAL
from dlperf.words import count

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: lines of a file that are encoded at once, and rows that are written at once
BATCH = 1000
HELP = """\
Turns two plain text files (UTF-8), of which line k of one is the translation of line k of the other, into rows for the
Transformer. Both languages share one vocabulary: without --tokenizer, byte pairs are trained on both files.

A row has as many pairs, one behind the other, as fit into --sequence tokens on both sides. Left out are pairs with an
empty line, and those that are longer; how many is printed.
"""

Tokens = list[int]


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. tokenizer: to use, or None to train one of `vocab_size`."""

    source: Path
    target: Path
    output: Path
    sequence: int
    vocab_size: int
    tokenizer: Tokenizer | None = None


def add_to(kinds: Any) -> None:
    """The command's options."""
    first = next(iter(_read()))
    parser = kinds.add_parser(
        "translation",
        help="pairs of sentences for the Transformer from two plain text files",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for side in ("source", "target"):
        parser.add_argument(f"--{side}", required=True, metavar="FILE", type=Path, help=f"sentences of the {side}")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    parser.add_argument("--sequence", metavar="N", help=f"tokens of a row on each side (default: {first})")
    parser.add_argument("--tokenizer", metavar="FILE", type=Path, help="tokenizer.json to use (else: trained)")
    help = "most tokens of a trained vocabulary; a small corpus yields fewer (default: the model's)"
    parser.add_argument("--vocab-size", metavar="N", help=help)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))


def _read() -> dict[int, list[int]]:
    """Tokens of a row that some model reads -> the vocabularies of these models, in the order of models."""
    found: dict[int, list[int]] = {}
    for model in models.NAMES:
        if models.family(model).INPUT == "translation":
            config = models.config(model)
            found.setdefault(config.sequence, []).append(config.vocabulary)
    return found


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the text."""
    read, problems, tokenizer = _read(), [], None
    sequence = next(iter(read)) if asked.sequence is None else whole_number(asked.sequence)
    if sequence not in read:
        allowed = f"{either(sorted(map(str, read), key=int))}, which models read"
        problems.append(Problem("--sequence", asked.sequence, allowed))
    vocabularies = read.get(sequence or 0) or [size for sizes in read.values() for size in sizes]
    most, size = max(vocabularies), min(vocabularies)
    if asked.vocab_size is not None:
        size = whole_number(asked.vocab_size, len(SPECIAL) + 1, most) or 0
        if not size:
            allowed = f"a whole number from {len(SPECIAL) + 1} to {most}, the vocabulary of the Transformer"
            problems.append(Problem("--vocab-size", asked.vocab_size, allowed))
    if asked.tokenizer is not None:
        tokenizer, wrong = bpe.read(asked.tokenizer, most, SPECIAL, "the Transformer")
        if tokenizer and [tokenizer.token_to_id(one) for one in SPECIAL] != [*range(len(SPECIAL))]:
            says = f"its first tokens are not {' '.join(SPECIAL)}. Give one that this command has made."
            wrong = [Problem("--tokenizer", asked.tokenizer, says=says)]
        problems += wrong
        if asked.vocab_size is not None:
            says = "--tokenizer is given too, which has its own size. Leave out one of them."
            problems.append(Problem("--vocab-size", asked.vocab_size, says=says))
    for side in ("source", "target"):
        problems += _file_problems(f"--{side}", getattr(asked, side))
    if not problems and asked.source.samefile(asked.target):
        problems.append(Problem("--target", asked.target, says="this is the source. Name its translation."))
    problems += output_problems(asked.output, "--source", asked.source)
    if problems:
        raise UsageError(problems)
    return Options(asked.source, asked.target, asked.output, sequence or 0, size, tokenizer)


def _file_problems(flag: str, file: Path) -> list[Problem]:
    if file.is_file():  # a pipe would be waited for
        return []
    what = "this is no file" if file.exists() else "there is no such file"
    return [Problem(flag, file, says=f"{what}. Name a text file with a sentence on each line.")]


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end. UsageError for text that will not do, RunError
    when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        found = _prepare_in(data, options, quiet)
    if not quiet:
        corpus, sides = found["corpus"], 2 * found["rows"] * found["sequence"]
        full = (corpus["source_tokens"] + corpus["target_tokens"]) / sides
        print(
            f"{options.output}: {count(found['rows'], 'row')} of {found['sequence']} tokens in "
            f"{time.monotonic() - begin:.1f} s, {full:.0%} full, "
            f"of {count(corpus['pairs'], 'pair')} of sentences; left out: "
            f"{corpus['empty_pairs']:,} with an empty line, {corpus['long_pairs']:,} too long; a vocabulary of "
            f"{found['vocabulary']:,}."
        )
    return found


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    files = {"--source": options.source, "--target": options.target}
    with stage("read", sum(file.stat().st_size for file in files.values()), quiet) as advance:
        characters = sum((scan([file], advance, flag) for flag, file in files.items()), start=scan([], advance))
    lines = {flag: sum(1 for _ in _lines(file)) for flag, file in files.items()}
    if lines["--source"] != lines["--target"]:
        says = (
            f"it has {count(lines['--target'], 'line')}, and --source {options.source} has {lines['--source']:,}. "
            "Line k of one must be the translation of line k of the other."
        )
        raise UsageError([Problem("--target", options.target, says=says)])
    tokenizer = options.tokenizer
    if tokenizer is None:
        with stage("vocabulary", 2 * lines["--source"], quiet) as advance:
            texts = (batch for file in files.values() for batch in _batches(file, advance))
            tokenizer = bpe.train(texts, bpe.bytes_of(characters), options.vocab_size, SPECIAL)
    with stage("rows", lines["--source"], quiet) as advance:
        packing = Packing(options.sequence, _pairs(tokenizer, options, advance))
        rows, written = _write(data, packing, options.sequence)
    if not rows:
        says = "no pair of sentences is left: "
        says += (
            f"{packing.empty_pairs:,} have an empty line, {packing.long_pairs:,} more than {options.sequence} tokens."
        )
        raise UsageError([Problem("--source", options.source, says=says)])
    tokenizer.save(str(data / translation.TOKENIZER))
    found = {
        "format": translation.FOLDER.format,
        "version": translation.FOLDER.version,
        "rows": rows,
        "sequence": options.sequence,
        "vocabulary": tokenizer.get_vocab_size(),
        "tokenizer": "given" if options.tokenizer else "trained",
        "corpus": {
            "pairs": packing.pairs,
            "empty_pairs": packing.empty_pairs,
            "long_pairs": packing.long_pairs,
            "source_tokens": packing.tokens[0],
            "target_tokens": packing.tokens[1],
        },
        "digest": written,
    }
    (data / DESCRIPTION).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return found


def _lines(file: Path) -> Iterator[str]:
    """Each without its end, which is \\n or \\r\\n alone, as for `wc -l`."""
    with file.open(encoding="utf-8-sig", newline="\n") as stream:
        for line in stream:
            yield line.rstrip("\r\n")


def _batches(file: Path, advance: Advance) -> Iterator[list[str]]:
    lines = _lines(file)
    while batch := [one.strip() for one in itertools.islice(lines, BATCH)]:
        yield batch
        advance(len(batch))


def _pairs(tokenizer: Tokenizer, options: Options, advance: Advance) -> Iterator[tuple[Tokens, Tokens]]:
    """The tokens of each pair of lines, with no end behind."""
    for pair in zip(_batches(options.source, advance), _batches(options.target, lambda amount: None), strict=True):
        source, target = (tokenizer.encode_batch_fast(batch, add_special_tokens=False) for batch in pair)
        yield from ((one.ids, other.ids) for one, other in zip(source, target, strict=True))


class Packing:
    """Rows of pairs, one behind the other, and what went into them: iterating gives the tokens of both sides of each,
    at most `sequence`."""

    def __init__(self, sequence: int, pairs: Iterator[tuple[Tokens, Tokens]]) -> None:
        self._sequence, self._pairs = sequence, pairs
        self.pairs = self.empty_pairs = self.long_pairs = 0
        self.tokens = (0, 0)

    def __iter__(self) -> Iterator[tuple[Tokens, Tokens]]:
        end, source, target = SPECIAL.index("</s>"), list[int](), list[int]()
        for one, other in self._pairs:
            if not one or not other:
                self.empty_pairs += 1
                continue
            if max(len(one), len(other)) + 1 > self._sequence:
                self.long_pairs += 1
                continue
            if max(len(source) + len(one), len(target) + len(other)) + 1 > self._sequence:
                yield source, target
                source, target = [], []
            source, target = [*source, *one, end], [*target, *other, end]
            self.pairs += 1
            self.tokens = (self.tokens[0] + len(one) + 1, self.tokens[1] + len(other) + 1)
        if source:
            yield source, target


def _write(folder: Path, packing: Packing, sequence: int) -> tuple[int, str]:
    """Writes the arrays, and returns how many rows there are, and their digest."""
    rows = iter(packing)
    with growing(folder, FIELDS, {"sequence": sequence}) as arrays:
        while batch := list(itertools.islice(rows, BATCH)):
            source, target = zip(*batch, strict=True)
            for names, side in ((("source", "source_lengths"), source), (("labels", "lengths"), target)):
                padded = [[*one, *[0] * (sequence - len(one))] for one in side]
                for name, values in zip(names, (padded, list(map(len, side))), strict=True):
                    arrays[name].add(numpy.array(values))
    return arrays["lengths"].rows, digest(arrays)
