"""Prepared BERT examples on disk, and the rows that a rank reads from them.

A data folder, as `python -m dlperf.data bert` writes it:

    dataset.json    what it is: the keys of KEYS, and how it was made
    vocab.txt       the words, one per line; a word's number is its line, from 0
    <field>.npy     for each field of `bert.FIELDS`: (rows,) + the field's shape, in the field's own dtype

Rows were shuffled when they were written, so a batch is one contiguous slice of each array. It is read from a memory
map: no copy, no conversion, and one page cache for all processes of a machine.
"""

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple, Union

from dlperf.models.bert import FIELDS, Config
from dlperf.models.parameters import random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "dlperf-bert-pretraining"
VERSION = 1
DESCRIPTION = "dataset.json"
VOCABULARY = "vocab.txt"
#: keys of dataset.json that a reader needs; each is a count, 1 or more
KEYS = ("rows", "sequence", "masked", "vocabulary")
#: keys of dataset.json that are sizes of the model too, and must be the same there
SIZES = ("sequence", "masked")

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()

COMMAND = "python -m dlperf.data bert"
PREPARE = f"Prepare a folder with `{COMMAND} --corpus DIR --output DIR`"


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

        self._arrays = {field: numpy.asarray(_map(data_dir, field)) for field in FIELDS}
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


def path(data_dir: "Union[str, os.PathLike[str]]", field: str) -> str:
    """The file of one field."""
    return os.path.join(data_dir, field + ".npy")


def describe(data_dir: str) -> Dict[str, Any]:
    """What dataset.json says, as a dict. ValueError, one sentence, when the folder is not one that we can read."""
    file = os.path.join(data_dir, DESCRIPTION)
    if not os.path.isdir(data_dir):
        what = "is not a folder" if os.path.exists(data_dir) else "does not exist"
        raise ValueError(f"{data_dir}: {what}; allowed: a folder of prepared BERT examples. {PREPARE}.")
    if not os.path.isfile(file):
        raise ValueError(f"{data_dir}: has no {DESCRIPTION}; allowed: a folder of prepared BERT examples. {PREPARE}.")
    try:
        with open(file, encoding="utf-8") as stream:
            found: Dict[str, Any] = json.load(stream)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file}: cannot be read as JSON ({_first_line(error)}). {PREPARE} again.") from None
    _recognise(file, found)
    return found


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: Config, global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    try:
        found = describe(data_dir)
    except ValueError as error:
        return [str(error)]
    problems = _sizes(os.path.join(data_dir, DESCRIPTION), found, config)
    for field in FIELDS:
        problems += _array(data_dir, field, found)
    if found["rows"] < global_batch_size:
        problems.append(
            f"{data_dir}: has {found['rows']} rows; one global batch needs {global_batch_size}. "
            "Take a smaller batch, or prepare more text."
        )
    return problems


def _recognise(file: str, found: Any) -> None:
    """ValueError unless `found` is a description that this version reads."""
    name = found.get("format") if isinstance(found, dict) else None
    if name != FORMAT:
        raise ValueError(f"{file}: format is {name!r:.60}; allowed: {FORMAT!r}. {PREPARE}.")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{file}: version is {found.get('version')!r:.60}; this dlperf reads {VERSION}. {PREPARE} again."
        )
    wrong = [f"{key} is {found.get(key)!r:.60}" for key in KEYS if not _is_count(found.get(key))]
    if wrong:
        raise ValueError(f"{file}: {', '.join(wrong)}; allowed: whole numbers from 1. {PREPARE} again.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _sizes(file: str, found: Dict[str, Any], config: Config) -> List[str]:
    """Where the sizes of the data and of the model disagree."""
    problems = []
    for key in SIZES:
        data, model = found[key], getattr(config, key)
        if data != model:
            problems.append(f"{file}: {key} is {data}; the model needs {model}. Prepare with --{key} {model}.")
    data, model = found["vocabulary"], config.vocabulary
    if data > model:
        problems.append(
            f"{file}: vocabulary is {data} words; the model has {model}. Prepare with --vocab-size {model}."
        )
    return problems


def _array(data_dir: str, field: str, found: Dict[str, Any]) -> List[str]:
    """Problems of one array, by what dataset.json promises."""
    file = path(data_dir, field)
    if not os.path.isfile(file):
        return [f"{file}: is missing. {PREPARE} again."]
    axes, dtype = FIELDS[field]
    promised = (dtype, (found["rows"], *(found[axis] for axis in axes)))
    try:
        array = _map(data_dir, field)
        actual = (str(array.dtype), array.shape)
        ordered = array.flags.c_contiguous
    except Exception as error:  # for a damaged file numpy raises whatever its parser met
        return [f"{file}: is damaged or cut short ({_first_line(error)}). {PREPARE} again."]
    if actual != promised or not ordered:
        order = "" if ordered else " in Fortran order"
        return [f"{file}: holds {actual}{order}; {DESCRIPTION} promises {promised}. {PREPARE} again."]
    return []


def _map(data_dir: str, field: str) -> "NDArray[Any]":
    import numpy

    loaded: NDArray[Any] = numpy.load(path(data_dir, field), mmap_mode="r", allow_pickle=False)
    return loaded


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
