"""Rows for BERT's pretraining: plain text -> words and word pieces -> pairs of text -> rows with masked words.

As Devlin et al. (2018) describe and google-research/bert's create_pretraining_data computes them. Two deliberate
differences: a random word that stands in for a masked one is never a special token, and a corpus of one document takes
its random second text from elsewhere in that document.
"""

from __future__ import annotations

import itertools
import random
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from dlperf.data.folder import Advance
from dlperf.data.text import SPECIAL, sentences, tokenizer
from dlperf.models.bert import FIELDS
from dlperf.models.parameters import random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

#: sentences tokenized at once
BATCH = 8192
#: rows made at once; part of the format, as the draws of a chunk come one field after the other
CHUNK = 4096


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


def batches(files: Sequence[Path], advance: Advance) -> Iterator[list[str]]:
    everything = itertools.chain.from_iterable(sentences(file) for file in files)
    while batch := list(itertools.islice(everything, BATCH)):
        yield batch
        advance(sum(map(len, batch)))
