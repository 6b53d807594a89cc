"""Prepared words on disk, each with a context, and the batches that a rank reads from them.

A data folder, as `python -m dlperf.data words` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    vocab.txt       the words, one per line, the most frequent first; a word's number is its line, from 0
    counts.npy      int64 (vocabulary,): how often the text has each word
    words.npy       int32 (rows,): words of the text
    contexts.npy    int32 (rows,): of each a word from its window

Negatives are no part of a row, since a batch may share one set: they are drawn when a batch is read, a word with a
probability proportional to its count to the power of 3/4, as in word2vec. Reading looks up rows and draws, no more.
"""

import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf.models.parameters import random_state
from dlperf.models.prepared import Arrays, Folder, mapped
from dlperf.models.zipf import drawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf.models.word2vec import Config

COMMAND = "python -m dlperf.data words"
FOLDER = Folder("prepared words", "dlperf-words", 1, ("rows", "vocabulary"), COMMAND, sized="--vocabulary")
VOCABULARY = "vocab.txt"
COUNTS, DTYPE = "counts", "int64"
#: name -> its axes besides that of rows, and its dtype
FIELDS: Dict[str, Tuple[Tuple[str, ...], str]] = {"words": ((), "int32"), "contexts": ((), "int32")}
#: of negatives, what counts are taken to the power of
POWER = 0.75

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows(Arrays):
    """`rows[i]` is what `batch` of dlperf.models.word2vec gives. Negatives are the same whenever a batch is read; each
    rank has its own."""

    fields, ids = FIELDS, dict.fromkeys(FIELDS, 0)

    def __init__(self, data_dir: str, config: "Config", batch_size: int, rank: int, world_size: int, seed: int):
        super().__init__(data_dir, config, batch_size, rank, world_size, seed)
        import numpy

        self._sums = numpy.cumsum(mapped(data_dir, COUNTS).astype("float64") ** POWER)
        # one generator, which each batch seeds: to make one takes as long as a fast step
        self._random, self._seeds = random_state(seed, "negatives"), (seed & 0xFFFFFFFF, zlib.crc32(b"negatives"))

    def _check(self, data_dir: str, config: "Config", global_batch_size: int) -> List[str]:
        return check(data_dir, config, global_batch_size)

    def _slice(self, index: int, start: int, count: int) -> "Dict[str, NDArray[Any]]":
        import numpy

        found = super()._slice(index, start, count)
        self._random.seed([*self._seeds, index])
        sets = self._world_size * (1 if self._config.shared else self._batch_size)
        negatives = drawn(self._sums, self._random.random_sample((sets, self._config.negatives)))
        if self._config.shared:
            negatives = negatives.repeat(self._batch_size, axis=0)
        return {**found, "negatives": numpy.ascontiguousarray(negatives[start : start + count])}


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: "Config", global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    problems = FOLDER.rows_problems(data_dir, FIELDS, (), config, global_batch_size)
    try:
        found = FOLDER.describe(data_dir)
    except ValueError:  # the problem
        return problems
    return problems + FOLDER.array_problems(data_dir, COUNTS, DTYPE, (found["vocabulary"],))
