"""Prepares real input for the models: `python -m dlperf.data bert --corpus DIR --output DIR`.

Images for ResNet are made by `dlperf.imagenet`. For BERT: plain text -> words and word pieces -> pairs of text ->
rows with masked words, as Devlin et al. (2018) describe and google-research/bert's create_pretraining_data computes
them. Two deliberate differences: a random word that stands in for a masked one is never a special token, and a corpus
of one document takes its random second text from elsewhere in that document. The files that come out are described in
`dlperf.models.pretraining`.

The same corpus and the same options give the same bytes: files are read in the order of their names, every draw is
seeded, and the generators (numpy's RandomState, Python's random.random) are frozen by their makers.
"""

from __future__ import annotations

import argparse
import codecs
import hashlib
import itertools
import json
import random
import re
import sys
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy

from dlperf import imagenet
from dlperf.errors import Problem, RunError, UsageError, heed_signals
from dlperf.models import pretraining
from dlperf.models.bert import FIELDS
from dlperf.models.parameters import random_state
from dlperf.preparing import Advance, aside, output_problems, stage

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Arrays = dict[str, NDArray[Any]]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: characters that a trained vocabulary knows, the most frequent first; words with others become [UNK]
ALPHABET = 1000
#: a longer line is a paragraph, to be split into sentences; a longer sentence is cut
LONG_LINE = 500
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'”’)])\s+|(?<=[。！？])")
#: bytes or characters read at once
BLOCK = 1 << 20
#: sentences tokenized at once
BATCH = 8192
#: rows made at once; part of the format, as the draws of a chunk come one field after the other
CHUNK = 4096

HELP = f"""\
Turns the plain text files of a folder (*.txt, also in its subfolders, UTF-8) into BERT pretraining examples.

One sentence per line, blank lines between documents; the end of a file ends a document too. A line of more than
{LONG_LINE} characters is taken for a paragraph and split after . ! ? and their like; what is still longer is cut
between words. Text is lowercased and stripped of accents, as BERT's uncased models have it.
"""


class Number(NamedTuple):
    """A numeric option: how to read it, its default, which values fit, and what to tell people."""

    convert: Callable[[str], float]
    default: float
    fits: Callable[[float], bool]
    allowed: str
    help: str


def _whole(default: int, low: int, high: int, help: str) -> Number:
    return Number(int, default, lambda value: low <= value <= high, f"a whole number from {low} to {high}", help)


NUMBERS = {
    "vocab_size": _whole(30522, 6, 10**6, "most words of a trained vocabulary; a small corpus yields fewer"),
    "sequence": _whole(128, 8, 512, "tokens of a row"),
    "masked": _whole(20, 1, 509, "most masked words of a row"),
    "masking": Number(
        float, 0.15, lambda value: 0 < value < 1, "a number above 0 and below 1", "share of masked words"
    ),
    "short_sequence_probability": Number(
        float, 0.1, lambda value: 0 <= value <= 1, "a number from 0 to 1", "share of documents cut into shorter rows"
    ),
    "duplicate_factor": _whole(5, 1, 1000, "times each document is used, with other pairs and masks"),
    "seed": _whole(12345, 0, 2**32 - 1, "of every draw"),
}


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked. `words` is the vocabulary, or None to train one of `vocab_size`."""

    corpus: Path
    output: Path
    words: Sequence[str] | None = None
    vocab_size: int = 30522
    sequence: int = 128
    masked: int = 20
    masking: float = 0.15
    short_sequence_probability: float = 0.1
    duplicate_factor: int = 5
    seed: int = 12345

    @property
    def room(self) -> int:
        """Words of a full row: all but [CLS] and two [SEP]."""
        return self.sequence - 3


# --- command line -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for a request that cannot be met; 1 for a failure on the way; 130 when interrupted."""
    asked = _parser().parse_args(arguments)
    heed_signals()
    try:
        asked.run(asked)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted: nothing was written to {asked.output}.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dlperf.data", description="Prepares real input for the models.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
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
        bert.add_argument(_flag(name), metavar="N", help=help)
    bert.add_argument("--quiet", action="store_true", help="print errors only")
    bert.set_defaults(run=lambda asked: prepare(options(asked), quiet=asked.quiet))
    imagenet.add_to(kinds)
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen without reading the corpus."""
    numbers, problems = _numbers({name: getattr(asked, name) for name in NUMBERS})
    if not problems and numbers["masked"] > numbers["sequence"] - 3:
        allowed = f"1 to {numbers['sequence'] - 3}, which is --sequence less [CLS] and two [SEP]"
        problems.append(Problem("--masked", numbers["masked"], allowed))
    words = None
    if asked.vocab is not None:
        words, wrong = _read_vocabulary(asked.vocab)
        problems += wrong
        if asked.vocab_size is not None:
            problems.append(Problem("--vocab-size", asked.vocab_size, "nothing beside --vocab", "Leave one out."))
    problems += _corpus_problems(asked.corpus) + output_problems(asked.output, "--corpus", asked.corpus)
    if problems:
        raise UsageError(problems)
    return Options(asked.corpus, asked.output, words, **numbers)


def _numbers(given: dict[str, str | None]) -> tuple[dict[str, Any], list[Problem]]:
    numbers: dict[str, Any] = {}
    problems = []
    for name, number in NUMBERS.items():
        text = given[name]
        try:
            numbers[name] = number.default if text is None else number.convert(text)
            wrong = not number.fits(numbers[name])
        except ValueError:
            wrong = True
        if wrong:
            problems.append(Problem(_flag(name), text, number.allowed, f"The default is {number.default}."))
    return numbers, problems


def _corpus_problems(corpus: Path) -> list[Problem]:
    allowed = "a folder with text files, *.txt"
    if not corpus.is_dir():
        what = "is a file" if corpus.exists() else "does not exist"
        return [Problem("--corpus", corpus, allowed, f"This {what}.")]
    files = text_files(corpus)
    if not files:
        return [Problem("--corpus", corpus, allowed, "There is no *.txt in it; rename your text files.")]
    if not any(file.stat().st_size for file in files):
        return [Problem("--corpus", corpus, allowed, f"All {len(files)} are empty.")]
    return []


# --- text -------------------------------------------------------------------------------------------------------


def text_files(corpus: Path) -> list[Path]:
    """All *.txt of a folder and its subfolders, in the order of their relative names, the same on every machine."""
    return sorted((path for path in corpus.rglob("*.txt") if path.is_file()), key=lambda path: path.parts)


def scan(files: Sequence[Path], advance: Advance) -> Counter[str]:
    """How often each character occurs. UsageError with every file that cannot be read or is not UTF-8."""
    characters: Counter[str] = Counter()
    problems = []
    for file in files:
        try:
            for text in _decoded(file, advance):
                characters.update(text)
        except _NotText as error:
            step = f"Byte {error.position} is 0x{error.value:02x}; convert it: iconv -f latin1 -t utf-8."
            problems.append(Problem("--corpus", file, "UTF-8 text", step))
        except OSError as error:
            problems.append(Problem("--corpus", file, "a file that can be read", f"{error.strerror}."))
    if problems:
        raise UsageError(problems)
    return characters


class _NotText(ValueError):
    """A file is not UTF-8: the first byte that cannot be, counted from 0, and its value."""

    def __init__(self, position: int, value: int):
        super().__init__(position, value)
        self.position, self.value = position, value


def _decoded(file: Path, advance: Advance) -> Iterator[str]:
    """The text of a file in blocks; _NotText if it is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    with file.open("rb") as stream:
        while True:
            block = stream.read(BLOCK)
            pending, _ = decoder.getstate()
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise _NotText(position - len(pending) + error.start, error.object[error.start]) from None
            if not block:
                return
            position += len(block)
            advance(len(block))


def sentences(file: Path) -> Iterator[str]:
    """The sentences of a file, and an empty string after each document."""
    with file.open(encoding="utf-8-sig") as stream:
        # A limit, as some corpora are one single line; the word there may be cut.
        for line in iter(lambda: stream.readline(BLOCK), ""):
            text = line.strip()
            yield from split(text) if text else [""]
    yield ""


def split(text: str) -> list[str]:
    """One line of text as sentences; a line of usual length is one already."""
    if len(text) <= LONG_LINE:
        return [text]
    found: list[str] = []
    for sentence in filter(None, SENTENCE_END.split(text)):
        found += _cut(sentence)
    return found


def _cut(sentence: str) -> Iterator[str]:
    """Pieces of at most LONG_LINE characters, cut at blanks where there are some."""
    start = 0
    while len(sentence) - start > LONG_LINE:
        end = sentence.rfind(" ", start + 1, start + LONG_LINE + 1)
        end = end if end > 0 else start + LONG_LINE
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:].strip()


# --- vocabulary -------------------------------------------------------------------------------------------------


def _read_vocabulary(file: Path) -> tuple[list[str], list[Problem]]:
    allowed = f"a text file with one word per line, {' '.join(SPECIAL)} among them"
    try:
        words = file.read_text("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        return [], [Problem("--vocab", file, allowed, f"Byte {error.start} is not UTF-8.")]
    except OSError as error:
        return [], [Problem("--vocab", file, allowed, f"{error.strerror}.")]
    missing = [token for token in SPECIAL if token not in words]
    if missing:
        return [], [Problem("--vocab", file, allowed, f"{' '.join(missing)} missing; is it BERT's vocab.txt?")]
    word, times = Counter(words).most_common(1)[0]
    if times > 1:
        return [], [Problem("--vocab", file, allowed, f"{word!r} is there {times} times; keep one.")]
    if len(words) == len(SPECIAL):
        return [], [Problem("--vocab", file, allowed, "There is no other word.")]
    return words, []


def tokenizer(words: Sequence[str]) -> Tokenizer:
    """BERT's uncased tokenizer. It knows no special tokens: "[MASK]" in a text is three words, as for Google's."""
    from tokenizers import Tokenizer, models

    vocabulary = {word: number for number, word in enumerate(words)}
    return _with_rules(Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")))


def _with_rules(tokenizer: Tokenizer) -> Tokenizer:
    from tokenizers import normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train(texts: Iterable[list[str]], characters: Counter[str], size: int) -> list[str]:
    """The words of a WordPiece vocabulary for these texts, at most `size`, special tokens first.

    `characters` are those of the texts. The library numbers the pieces inside words in the order of a hash table,
    which changes with each run and decides ties, so we hand it the alphabet, sorted, as if it were special tokens.
    """
    from tokenizers import Tokenizer, models, trainers

    trained = _with_rules(Tokenizer(models.WordPiece(unk_token="[UNK]")))
    start, inside = _alphabet(trained, characters)
    first = [*SPECIAL, *start, *("##" + character for character in inside)]
    if size < len(first):
        allowed = f"at least {len(first)}, for the {len(start)} characters of this corpus"
        raise UsageError([Problem("--vocab-size", size, allowed)])
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=first,
        initial_alphabet=start,
        limit_alphabet=len(start),
    )
    trained.train_from_iterator(texts, trainer)
    numbers = trained.get_vocab()
    return sorted(numbers, key=numbers.__getitem__)


def _alphabet(rules: Tokenizer, characters: Counter[str]) -> tuple[list[str], list[str]]:
    """The most frequent characters of normalized text, sorted; and those that can stand inside a word."""
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        # "É" becomes "e"; a Chinese one gets blanks around it; some become several
        for normal in rules.normalizer.normalize_str(character).split():
            counts.update(dict.fromkeys(normal, count))
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[:ALPHABET]
    start = sorted(frequent)
    return start, [character for character in start if _inside_word(rules, character)]


def _inside_word(rules: Tokenizer, character: str) -> bool:
    text = rules.normalizer.normalize_str("a" + character)
    return len(rules.pre_tokenizer.pre_tokenize_str(text)) == 1


# --- tokens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """All tokens in one flat array; sentence s is `tokens[sentences[s]:sentences[s + 1]]`, and document d holds
    sentences `documents[d]` to `documents[d + 1]`, the last one excluded. None of them is empty."""

    tokens: NDArray[Any]
    sentences: array[int]
    documents: array[int]


def tokenize(texts: Iterable[list[str]], words: Sequence[str], file: Path) -> Corpus:
    """Tokens of texts (with "" after each document), kept in `file`, as they may need more space than memory has."""
    code = "H" if len(words) <= 1 << 16 else "i"
    encode = tokenizer(words).encode_batch_fast
    ends, documents = array("q", [0]), array("q", [0])
    with file.open("wb") as stream:
        for batch in texts:
            tokens = array(code)
            start = ends[-1]
            for text, encoding in zip(batch, encode(batch, add_special_tokens=False), strict=True):
                tokens.extend(encoding.ids)
                if start + len(tokens) > ends[-1]:
                    ends.append(start + len(tokens))
                elif not text and len(ends) - 1 > documents[-1]:
                    documents.append(len(ends) - 1)
            tokens.tofile(stream)
    tokens_of_all = numpy.memmap(file, code, "r") if ends[-1] else numpy.zeros(0, code)  # no map of an empty file
    return Corpus(numpy.asarray(tokens_of_all), ends, documents)


# --- pairs ------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A row to be: two runs of `Corpus.tokens`, not yet cut to the room, and whether the second one is random."""

    start_a: int
    length_a: int
    start_b: int
    length_b: int
    random: int


def pairs(corpus: Corpus, options: Options, advance: Advance) -> list[NDArray[Any]]:
    """All pairs, as one array for each field of `Pair`."""
    draw = random.Random(options.seed).random
    columns = [array("q"), array("i"), array("q"), array("i"), array("b")]
    for _ in range(options.duplicate_factor):
        for document in range(len(corpus.documents) - 1):
            for pair in document_pairs(corpus, document, options, draw):
                for column, value in zip(columns, pair, strict=True):
                    column.append(value)
            advance(1)
    return [numpy.frombuffer(column, column.typecode) for column in columns]


def document_pairs(corpus: Corpus, document: int, options: Options, draw: Callable[[], float]) -> Iterator[Pair]:
    """Cuts a document into chunks of whole sentences that just fill a row, and each chunk into two at random.

    In half of the chunks the second part gives way to text from elsewhere, and is used again for the next chunk. A
    chunk of one sentence has no second part, so that one is always random.
    """
    offsets = corpus.sentences
    here, last = corpus.documents[document], corpus.documents[document + 1]
    short = draw() < options.short_sequence_probability
    target = 2 + _below(options.room - 1, draw) if short else options.room
    while here < last:
        end = bisect_left(offsets, offsets[here] + target, here + 1, last)
        middle = here + 1 + _below(end - here - 1, draw) if end - here > 1 else end
        other = None
        if middle == end or draw() < 0.5:
            other = _elsewhere(corpus, document, here, middle, draw)
        if other is None:
            end = max(end, middle + 1)
            first, stop = middle, end
        else:
            end = middle
            first, stop = other
            wanted = offsets[first] + max(1, target - (offsets[middle] - offsets[here]))
            stop = bisect_left(offsets, wanted, first + 1, stop)
        yield Pair(
            offsets[here],
            offsets[middle] - offsets[here],
            offsets[first],
            offsets[stop] - offsets[first],
            other is not None,
        )
        here = end


def _below(count: int, draw: Callable[[], float]) -> int:
    """A whole number from 0 to count - 1. random.randrange would do, but only random.random is frozen."""
    return int(draw() * count)


def _elsewhere(
    corpus: Corpus, document: int, here: int, middle: int, draw: Callable[[], float]
) -> tuple[int, int] | None:
    """A random sentence of another document, and where that document ends.

    In a corpus of one document: a sentence before or after the first part, [here, middle), but not `middle` itself,
    which follows it; and where the text from there must end. None if there is no such sentence.
    """
    documents = corpus.documents
    count = len(documents) - 1
    if count > 1:
        other = _below(count - 1, draw)
        other += other >= document
        first, last = documents[other], documents[other + 1]
        return first + _below(last - first, draw), last
    last = documents[1]
    barred = min(middle + 1, last) - here
    if barred == last:
        return None
    sentence = _below(last - barred, draw)
    return (sentence, here) if sentence < here else (sentence + barred, last)


# --- rows -------------------------------------------------------------------------------------------------------


def rows(corpus: Corpus, found: list[NDArray[Any]], words: Sequence[str], options: Options) -> Iterator[Arrays]:
    """The pairs as rows, shuffled: chunks of the arrays of FIELDS."""
    numbers = {word: number for number, word in enumerate(words)}
    order = random_state(options.seed, "order of rows").permutation(len(found[0]))
    generator = random_state(options.seed, "rows")
    for start in range(0, len(order), CHUNK):
        chosen = order[start : start + CHUNK]
        parts = truncate([column[chosen].astype("int64") for column in found[:4]], options.room, generator)
        ids, types, lengths, maskable = _lay_out(corpus.tokens, parts, numbers, options.sequence)
        positions, originals, weights = mask(ids, lengths, maskable, numbers, options, generator)
        arrays = {
            "input_ids": ids,
            "token_type_ids": types,
            "lengths": lengths,
            "masked_positions": positions,
            "masked_ids": originals,
            "masked_weights": weights,
            "next_sentence_labels": found[4][chosen],
        }
        yield {name: numpy.ascontiguousarray(arrays[name], dtype) for name, (_, dtype) in FIELDS.items()}


def truncate(parts: Sequence[NDArray[Any]], room: int, generator: numpy.random.RandomState) -> tuple[NDArray[Any], ...]:
    """Cuts pairs (start_a, length_a, start_b, length_b) to `room` words: one word at a time from the longer part (the
    second if equal), at its begin or end by the toss of a coin; here for all words and pairs at once."""
    start_a, length_a, start_b, length_b = parts
    keep_a = numpy.minimum(length_a, numpy.maximum(room - room // 2, room - length_b))
    keep_b = numpy.minimum(length_b, numpy.maximum(room // 2, room - length_a))
    start_a = start_a + generator.binomial(length_a - keep_a, 0.5)
    start_b = start_b + generator.binomial(length_b - keep_b, 0.5)
    return start_a, keep_a, start_b, keep_b


def _lay_out(
    tokens: NDArray[Any], parts: tuple[NDArray[Any], ...], numbers: dict[str, int], sequence: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """[CLS] first part [SEP] second part [SEP] [PAD] ...: ids, token types, lengths, and where words are."""
    start_a, length_a, start_b, length_b = (part[:, None] for part in parts)
    column = numpy.arange(sequence)[None, :]
    middle = length_a + 1
    end = middle + length_b + 1
    in_a = (column > 0) & (column < middle)
    in_b = (column > middle) & (column < end)
    source = numpy.where(in_a, start_a + column - 1, numpy.where(in_b, start_b + column - middle - 1, 0))
    ids = tokens[source].astype("int32")
    ids[column > end] = numbers["[PAD]"]
    ids[(column == middle) | (column == end)] = numbers["[SEP]"]
    ids[:, 0] = numbers["[CLS]"]
    return ids, (column > middle) & (column <= end), end[:, 0] + 1, in_a | in_b


def mask(
    ids: NDArray[Any],
    lengths: NDArray[Any],
    maskable: NDArray[Any],
    numbers: dict[str, int],
    options: Options,
    generator: numpy.random.RandomState,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Masks words of `ids` in place: 80 % become [MASK], 10 % a random word, 10 % stay. Returns positions (ascending),
    original ids and weights, each (rows, masked); the share counts all tokens of a row, as Google's does."""
    count = numpy.minimum(numpy.rint(lengths * options.masking), numpy.minimum(options.masked, lengths - 3))
    used = numpy.arange(options.masked)[None, :] < numpy.maximum(count, 1)[:, None]
    scores = numpy.where(maskable, generator.random_sample(ids.shape), 2.0)
    lowest = numpy.argpartition(scores, options.masked - 1, axis=1)[:, : options.masked]
    ranks = numpy.argsort(numpy.take_along_axis(scores, lowest, axis=1), axis=1)
    positions = numpy.take_along_axis(lowest, ranks, axis=1)
    positions = numpy.sort(numpy.where(used, positions, options.sequence), axis=1)
    positions = numpy.where(used, positions, 0)
    originals = numpy.where(used, numpy.take_along_axis(ids, positions, axis=1), 0)
    words = numpy.setdiff1d(numpy.arange(len(numbers)), [numbers[token] for token in SPECIAL])
    replaced = words[generator.randint(0, len(words), used.shape)]
    luck = generator.random_sample(used.shape)
    replaced = numpy.where(luck < 0.8, numbers["[MASK]"], numpy.where(luck < 0.9, replaced, originals))
    ids[used.nonzero()[0], positions[used]] = replaced[used]
    return positions, originals, used


# --- the whole --------------------------------------------------------------------------------------------------


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
            words = train(_batches(files, advance), characters, options.vocab_size)
    with stage("tokens", size, quiet) as advance:
        corpus = tokenize(_batches(files, advance), words, tokens)
    if len(corpus.sentences) < 3:
        raise UsageError([Problem("--corpus", options.corpus, "text of at least two sentences", "Add text.")])
    with stage("pairs", options.duplicate_factor * (len(corpus.documents) - 1), quiet) as advance:
        found = pairs(corpus, options, advance)
    with stage("rows", len(found[0]), quiet) as advance:
        digest = _write(data, rows(corpus, found, words, options), len(found[0]), options, advance)
    (data / pretraining.VOCABULARY).write_text("".join(word + "\n" for word in words), "utf-8")
    description = _describe(options, words, corpus, found, digest, len(files))
    (data / pretraining.DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", "utf-8")
    return description


def _batches(files: Sequence[Path], advance: Advance) -> Iterator[list[str]]:
    everything = itertools.chain.from_iterable(sentences(file) for file in files)
    while batch := list(itertools.islice(everything, BATCH)):
        yield batch
        advance(sum(map(len, batch)))


def _write(folder: Path, chunks: Iterator[Arrays], count: int, options: Options, advance: Advance) -> str:
    """Writes the arrays chunk by chunk and returns the SHA-256 of their SHA-256s, in the order of FIELDS.

    Not through a memory map: on a full disk that would kill the process, where a write tells.
    """
    digests = {field: hashlib.sha256() for field in FIELDS}
    with ExitStack() as stack:
        streams = {field: stack.enter_context(open(pretraining.path(folder, field), "wb")) for field in FIELDS}
        for field, (axes, dtype) in FIELDS.items():
            _write_header(streams[field], (count, *(getattr(options, axis) for axis in axes)), dtype)
        for chunk in chunks:
            for field, values in chunk.items():
                streams[field].write(values.data)
                digests[field].update(values.data)
            advance(len(chunk["lengths"]))
    return hashlib.sha256(b"".join(digest.digest() for digest in digests.values())).hexdigest()


def _write_header(stream: IO[bytes], shape: tuple[int, ...], dtype: str) -> None:
    description = numpy.lib.format.dtype_to_descr(numpy.dtype(dtype))
    header = {"descr": description, "fortran_order": False, "shape": shape}
    numpy.lib.format.write_array_header_1_0(stream, header)


def _describe(
    options: Options, words: Sequence[str], corpus: Corpus, found: list[NDArray[Any]], digest: str, files: int
) -> dict[str, Any]:
    unknown = words.index("[UNK]")
    return {
        "format": pretraining.FORMAT,
        "version": pretraining.VERSION,
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
        "digest": digest,
    }


def _summary(description: dict[str, Any], output: Path, seconds: float) -> None:
    corpus, count = description["corpus"], description["rows"]
    print(
        f"{output}: {count:,} rows in {seconds:.1f} s ({count / seconds:,.0f} rows/s), "
        f"{description['random_next_rows'] / count:.0%} of them with a random second text; "
        f"{corpus['documents']:,} documents, {corpus['sentences']:,} sentences, {corpus['tokens']:,} tokens "
        f"({corpus['unknown_tokens'] / corpus['tokens']:.2%} unknown), {description['vocabulary']:,} words."
    )


if __name__ == "__main__":
    sys.exit(main())
