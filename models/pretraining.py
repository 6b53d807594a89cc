"""Prepared BERT examples on disk, and the rows that a rank reads from them.

A data folder, as `python -m dlperf.data bert` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    vocab.txt       the words, one per line; a word's number is its line, from 0
    <field>.npy     for each field of `bert.FIELDS`: (rows,) + the field's shape, in the field's own dtype

Rows were shuffled when they were written, so a batch is one contiguous slice of each array. It is read from a memory
map: no copy, no conversion, and one page cache for all processes of a machine.
"""

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf.models.bert import FIELDS, Config
from dlperf.models.parameters import random_state
from dlperf.models.prepared import Folder, mapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMMAND = "python -m dlperf.data bert"
FOLDER = Folder(
    "prepared BERT examples", "dlperf-bert-pretraining", 1, ("rows", "sequence", "masked", "vocabulary"), COMMAND
)
VOCABULARY = "vocab.txt"
#: keys of dataset.json that are sizes of the model too, and must be the same there
SIZES = ("sequence", "masked")

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows:
    """The batches of one rank for one epoch: `rows[i]` is a dict of FIELDS, each (batch_size,) + the field's shape.

    The arrays are read-only, C-contiguous views of the memory map. Global batch number k is world_size * batch_size
    rows, of which rank r has its r-th slice; rows that do not fill a last global batch are left out. The seed chooses
    the global batch to begin with, the same in every rank. Raises ValueError with all problems that `check` finds.
    """

    def __init__(self, data_dir: str, config: Config, batch_size: int, rank: int, world_size: int, seed: int):
        problems = check(data_dir, config, batch_size * world_size)
        if problems:
            raise ValueError("\n".join(problems))
        import numpy

        self._arrays = {field: numpy.asarray(mapped(data_dir, field)) for field in FIELDS}
        self._batch_size = batch_size
        self._rank = rank
        self._world_size = world_size
        self._count = len(self._arrays["lengths"]) // (batch_size * world_size)
        self._first = int(random_state(seed, "first batch").randint(self._count))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> "Dict[str, NDArray[Any]]":
        start = self._start(index) + self._rank * self._batch_size
        return {field: array[start : start + self._batch_size] for field, array in self._arrays.items()}

    def total(self, index: int, field: str) -> float:
        """The sum of a field over the whole global batch."""
        start = self._start(index)
        return float(self._arrays[field][start : start + self._batch_size * self._world_size].sum(dtype="float64"))

    def _start(self, index: int) -> int:
        """The first row of a global batch."""
        if not 0 <= index < self._count:
            raise IndexError(f"batch {index} of {self._count}")
        return (self._first + index) % self._count * self._batch_size * self._world_size


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: Config, global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    return FOLDER.rows_problems(data_dir, FIELDS, SIZES, config, global_batch_size)
