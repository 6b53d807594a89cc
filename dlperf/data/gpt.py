"""Prepares text for GPT-2: `python -m dlperf.data text --corpus DIR --output DIR`.

The files that come out are described in `dlperf.models.text`. The same corpus and the same options give the same bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from dlperf import models
from dlperf.data import bpe
from dlperf.data.folder import Advance, Growing, aside, output_problems, stage
from dlperf.data.text import BLOCK, corpus_problems, scan, text_files
from dlperf.errors import Problem, UsageError, whole_number
from dlperf.models import text
from dlperf.models.prepared import DESCRIPTION, path
from dlperf.words import count

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"
#: pieces of text that are encoded at once
BATCH = 256
HELP = f"""\
Turns the plain text files of a folder (*.txt, also in its subfolders, UTF-8) into one run of tokens for GPT-2, from
which rows of any length are read.

A file is a document, or several with a line {END} between them. Without --tokenizer, byte pairs are trained on the
text, by GPT-2's rules. Text is encoded in pieces of whole lines of up to {BLOCK:,} characters.
"""


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. tokenizer: to use, or None to train one of `vocab_size`."""

    corpus: Path
    output: Path
    vocab_size: int
    tokenizer: Tokenizer | None = None


def add_to(kinds: Any) -> None:
    """The command's options."""
    most = _largest()
    parser = kinds.add_parser(
        "text",
        help="tokens for GPT-2 from plain text",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", required=True, metavar="DIR", type=Path, help="folder of text files")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    parser.add_argument("--tokenizer", metavar="FILE", type=Path, help="tokenizer.json to use (else: trained)")
    help = f"most tokens of a trained vocabulary; a small corpus yields fewer (default: {most})"
    parser.add_argument("--vocab-size", metavar="N", help=help)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))


def _largest() -> int:
    """What all GPT-2 read."""
    return int(models.config("gpt2").vocabulary)


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the corpus."""
    most, problems, tokenizer = _largest(), [], None
    size = most if asked.vocab_size is None else whole_number(asked.vocab_size, 2)
    if size is None or size > most:
        allowed = f"a whole number from 2 to {most}, the vocabulary of GPT-2"
        problems.append(Problem("--vocab-size", asked.vocab_size, allowed))
    if asked.tokenizer is not None:
        tokenizer, wrong = bpe.read(asked.tokenizer, most, [END], "GPT-2")
        problems += wrong
        if asked.vocab_size is not None:
            says = "--tokenizer is given too, which has its own size. Leave out one of them."
            problems.append(Problem("--vocab-size", asked.vocab_size, says=says))
    problems += corpus_problems(asked.corpus) + output_problems(asked.output, "--corpus", asked.corpus)
    if problems:
        raise UsageError(problems)
    return Options(asked.corpus, asked.output, size or most, tokenizer)


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says.

    All is written beside the output and moved into place at the end. UsageError for a corpus that will not do,
    RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as data:
        found = _prepare_in(data, options, quiet)
    if not quiet:
        print(
            f"{options.output}: {count(found['tokens'], 'token')} of "
            f"{count(found['corpus']['documents'], 'document')} in {time.monotonic() - begin:.1f} s; "
            f"a vocabulary of {found['vocabulary']:,}."
        )
    return found


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    files = text_files(options.corpus)
    with stage("read", sum(file.stat().st_size for file in files), quiet) as advance:
        characters = scan(files, advance)
    tokenizer = options.tokenizer
    if tokenizer is None:
        with stage("vocabulary", characters.total(), quiet) as advance:
            texts = ([one for one in batch if one != END] for batch in _batches(files, advance))
            tokenizer = bpe.train(texts, bpe.bytes_of(characters), options.vocab_size, [END])
    with stage("tokens", characters.total(), quiet) as advance:
        documents, count, digest = _write(data, tokenizer, _batches(files, advance))
    if count < 2:
        raise UsageError([Problem("--corpus", options.corpus, says="it has no text. Add some.")])
    tokenizer.save(str(data / text.TOKENIZER))
    found = {
        "format": text.FOLDER.format,
        "version": text.FOLDER.version,
        "tokens": count,
        "vocabulary": tokenizer.get_vocab_size(),
        "tokenizer": "given" if options.tokenizer else "trained",
        "corpus": {"files": len(files), "documents": documents, "characters": characters.total()},
        "digest": digest,
    }
    (data / DESCRIPTION).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return found


def _write(folder: Path, tokenizer: Tokenizer, texts: Iterable[list[str]]) -> tuple[int, int, str]:
    """Writes tokens.npy, and returns how many documents and tokens there are, and the SHA-256 of the tokens."""
    end = tokenizer.get_vocab()[END]
    documents, empty = 0, True
    with Growing(path(folder, text.TOKENS), text.DTYPE) as tokens:
        for batch in texts:
            found: list[int] = []
            encoded = tokenizer.encode_batch_fast(
                [one if one != END else "" for one in batch], add_special_tokens=False
            )
            for piece, encoding in zip(batch, encoded, strict=True):
                found.extend(encoding.ids)
                empty = empty and not encoding.ids
                if piece == END and not empty:
                    found.append(end)
                    documents, empty = documents + 1, True
            tokens.add(numpy.array(found, text.DTYPE))
    return documents, tokens.rows, tokens.digest


def _batches(files: Sequence[Path], advance: Advance) -> Iterator[list[str]]:
    pieces = itertools.chain.from_iterable(map(_pieces, files))
    while batch := list(itertools.islice(pieces, BATCH)):
        yield batch
        advance(sum(map(len, batch)))


def _pieces(file: Path) -> Iterator[str]:
    """The text of a file in whole lines of up to BLOCK characters, and END after each document."""
    lines: list[str] = []
    length = 0
    with file.open(encoding="utf-8-sig") as stream:
        # A limit, as some corpora are one single line.
        for line in iter(lambda: stream.readline(BLOCK), ""):
            ends = line.strip() == END
            if ends or length + len(line) > BLOCK:
                yield "".join(lines)
                lines, length = [], 0
            if ends:
                yield END
            else:
                lines.append(line)
                length += len(line)
    yield "".join(lines)
    yield END
