"""Prepared text on disk: one run of tokens, and the rows of any length that a rank reads from it.

A data folder, as `python -m dlperf.data text` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    tokenizer.json  what made tokens of text, as the library `tokenizers` reads it
    tokens.npy      uint16 (tokens,): all documents, each with <|endoftext|> after it

Row k of `sequence` tokens is tokens[k * sequence : (k + 1) * sequence], whose labels are the tokens that follow them,
as nanoGPT has it; a last row that is not full is left out.
"""

import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf.models.parameters import random_state
from dlperf.models.prepared import DESCRIPTION, Folder, mapped, vocabulary_problems

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMMAND = "python -m dlperf.data text"
FOLDER = Folder("prepared text", "dlperf-text", 1, ("tokens", "vocabulary"), COMMAND)
TOKENS, DTYPE = "tokens", "uint16"
TOKENIZER = "tokenizer.json"

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows:
    """The batches of one rank for one epoch: `rows[i]` is a dict of input_ids and labels, int32 (batch_size, sequence).

    Rows are in a random order, which the seed gives, the same in every rank. Global batch number k is
    world_size * batch_size rows of it, of which rank r has its r-th slice; rows that do not fill a last global batch
    are left out. Raises ValueError with all problems that `check` finds.
    """

    def __init__(self, data_dir: str, config: Any, batch_size: int, rank: int, world_size: int, seed: int):
        problems = check(data_dir, config, batch_size * world_size)
        if problems:
            raise ValueError("\n".join(problems))
        self._tokens = mapped(data_dir, TOKENS)
        self._sequence: int = config.sequence
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        rows: int = (len(self._tokens) - 1) // config.sequence
        self._order = random_state(seed, "order of rows").permutation(rows)
        self._count = rows // (batch_size * world_size)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> "Dict[str, NDArray[Any]]":
        return self._read(index, self._rank * self._batch_size, self._batch_size)

    def total(self, index: int, field: str) -> float:
        """The sum of a field over the whole global batch."""
        return float(self._read(index, 0, self._batch_size * self._world_size)[field].sum(dtype="float64"))

    def _read(self, index: int, start: int, count: int) -> "Dict[str, NDArray[Any]]":
        """So many rows of a global batch."""
        import numpy

        if not 0 <= index < self._count:
            raise IndexError(f"batch {index} of {self._count}")
        start += index * self._batch_size * self._world_size
        begins = self._order[start : start + count] * self._sequence
        tokens = numpy.stack([self._tokens[one : one + self._sequence + 1] for one in begins]).astype("int32")
        return {"input_ids": numpy.ascontiguousarray(tokens[:, :-1]), "labels": numpy.ascontiguousarray(tokens[:, 1:])}


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: Any, global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Reads no token.
    """
    try:
        found = FOLDER.describe(data_dir)
    except ValueError as error:
        return [str(error)]
    problems = vocabulary_problems(os.path.join(data_dir, DESCRIPTION), found["vocabulary"], config.vocabulary)
    problems += FOLDER.array_problems(data_dir, TOKENS, DTYPE, (found["tokens"],))
    needs = global_batch_size * config.sequence + 1
    if found["tokens"] < needs:
        problems.append(
            f"{data_dir}: has {found['tokens']} tokens; one global batch of {global_batch_size} rows of "
            f"{config.sequence} needs {needs}. Take a smaller batch, or prepare more text."
        )
    return problems
