"""Folders of prepared rows on disk: a description, and arrays that are read from a memory map.

`dataset.json` says what a folder is; each array is a .npy file beside it. Nothing is copied or converted, and all
processes of a machine share one page cache.
"""

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple, Union

from dlperf.models.parameters import random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

DESCRIPTION = "dataset.json"


class Folder(NamedTuple):
    """What one kind of folder is. what: in words, "prepared BERT examples". format, version: in dataset.json. keys: of
    it that a reader needs; each is a count, 1 or more. command: what makes such a folder. takes: from what. entries:
    what its vocabulary is of. sized: the option that limits that."""

    what: str
    format: str
    version: int
    keys: Tuple[str, ...]
    command: str
    takes: str = "--corpus DIR"
    entries: str = "words"
    sized: str = "--vocab-size"

    @property
    def prepare(self) -> str:
        return f"Prepare a folder with `{self.command} {self.takes} --output DIR`"

    def describe(self, data_dir: str) -> Dict[str, Any]:
        """What dataset.json says, as a dict. ValueError, one sentence, when the folder is not one that we can read."""
        file = os.path.join(data_dir, DESCRIPTION)
        if not os.path.isdir(data_dir):
            what = "is not a folder" if os.path.exists(data_dir) else "does not exist"
            raise ValueError(f"{data_dir}: {what}; allowed: a folder of {self.what}. {self.prepare}.")
        if not os.path.isfile(file):
            raise ValueError(f"{data_dir}: has no {DESCRIPTION}; allowed: a folder of {self.what}. {self.prepare}.")
        try:
            with open(file, encoding="utf-8") as stream:
                found: Dict[str, Any] = json.load(stream)
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{file}: cannot be read as JSON ({_first_line(error)}). {self.prepare} again.") from None
        self._recognise(file, found)
        return found

    def _recognise(self, file: str, found: Any) -> None:
        """ValueError unless `found` is a description that this version reads."""
        name = found.get("format") if isinstance(found, dict) else None
        if name != self.format:
            raise ValueError(f"{file}: format is {name!r:.60}; allowed: {self.format!r}. {self.prepare}.")
        if found.get("version") != self.version:
            raise ValueError(
                f"{file}: version is {found.get('version')!r:.60}; this dlperf reads {self.version}. "
                f"{self.prepare} again."
            )
        wrong = [f"{key} is {found.get(key)!r:.60}" for key in self.keys if not _is_count(found.get(key))]
        if wrong:
            raise ValueError(f"{file}: {', '.join(wrong)}; allowed: whole numbers from 1. {self.prepare} again.")

    def rows_problems(
        self,
        data_dir: str,
        fields: Mapping[str, Tuple[Tuple[str, ...], str]],
        sizes: Sequence[str],
        config: Any,
        global_batch_size: int,
    ) -> List[str]:
        """What keeps a folder of rows from feeding a model of these sizes. fields: name of an array -> the keys of
        dataset.json that are its axes besides that of rows, and its dtype. sizes: keys that are the model's too."""
        try:
            found = self.describe(data_dir)
        except ValueError as error:
            return [str(error)]
        file, problems = os.path.join(data_dir, DESCRIPTION), []
        for key in sizes:
            data, model = found[key], getattr(config, key)
            if data != model:
                problems.append(f"{file}: {key} is {data}; the model needs {model}. Prepare with --{key} {model}.")
        problems += self.vocabulary_problems(data_dir, found["vocabulary"], config.vocabulary)
        for field, (axes, dtype) in fields.items():
            problems += self.array_problems(data_dir, field, dtype, (found["rows"], *(found[axis] for axis in axes)))
        if found["rows"] < global_batch_size:
            problems.append(
                f"{data_dir}: has {found['rows']} rows; one global batch needs {global_batch_size}. "
                "Take a smaller batch, or prepare more text."
            )
        return problems

    def vocabulary_problems(self, data_dir: str, data: int, model: int) -> List[str]:
        """What is wrong with a vocabulary of so many entries for a model that has so many."""
        if data <= model:
            return []
        file = os.path.join(data_dir, DESCRIPTION)
        step = f"Prepare with {self.sized} {model}."
        return [f"{file}: vocabulary is {data} {self.entries}; the model has {model}. {step}"]

    def array_problems(self, data_dir: str, field: str, dtype: str, shape: Tuple[int, ...]) -> List[str]:
        """Problems of one array, by the type and shape that dataset.json promises."""
        file = path(data_dir, field)
        if not os.path.isfile(file):
            return [f"{file}: is missing. {self.prepare} again."]
        promised = (dtype, shape)
        try:
            array = mapped(data_dir, field)
            actual = (str(array.dtype), array.shape)
            ordered = array.flags.c_contiguous
        except Exception as error:  # for a damaged file numpy raises whatever its parser met
            return [f"{file}: is damaged or cut short ({_first_line(error)}). {self.prepare} again."]
        if actual != promised or not ordered:
            order = "" if ordered else " in Fortran order"
            return [f"{file}: holds {actual}{order}; {DESCRIPTION} promises {promised}. {self.prepare} again."]
        return []


class Shuffled:
    """The batches of one rank for one epoch, of rows in a random order, which the seed gives, the same in every rank.

    Global batch number k is world_size * batch_size rows of it, of which rank r has its r-th slice; rows that do not
    fill a last global batch are left out. rows: how many there are. A subclass reads them.
    """

    def __init__(self, rows: int, batch_size: int, rank: int, world_size: int, seed: int):
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        self._order = random_state(seed, "order of rows").permutation(rows)
        self._count = rows // (batch_size * world_size)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> "Dict[str, NDArray[Any]]":
        return self._slice(index, self._rank * self._batch_size, self._batch_size)

    def total(self, index: int, field: str) -> float:
        """The sum of a field over the whole global batch."""
        return float(self._slice(index, 0, self._batch_size * self._world_size)[field].sum(dtype="float64"))

    def _slice(self, index: int, start: int, count: int) -> "Dict[str, NDArray[Any]]":
        """So many rows of a global batch."""
        if not 0 <= index < self._count:
            raise IndexError(f"batch {index} of {self._count}")
        start += index * self._batch_size * self._world_size
        return self._read(self._order[start : start + count])

    def _read(self, rows: "NDArray[Any]") -> "Dict[str, NDArray[Any]]":
        """These rows: arrays by name, C-contiguous, batch axis first."""
        raise NotImplementedError


class Arrays(Shuffled):
    """Rows of a folder whose arrays have one entry for each row, in the arrays' own types. Raises ValueError with all
    problems of `_check`.

    A subclass has `_check`, `fields`, as Folder.rows_problems has them, and `ids`: of arrays that have rows of the
    model's table, the least number that may be there.
    """

    fields: Mapping[str, Tuple[Tuple[str, ...], str]] = {}
    ids: Mapping[str, int] = {}

    def __init__(self, data_dir: str, config: Any, batch_size: int, rank: int, world_size: int, seed: int):
        problems = self._check(data_dir, config, batch_size * world_size)
        if problems:
            raise ValueError("\n".join(problems))
        import numpy

        self._data_dir, self._config = data_dir, config
        self._arrays = {field: numpy.asarray(mapped(data_dir, field)) for field in self.fields}
        super().__init__(len(self._arrays[next(iter(self.fields))]), batch_size, rank, world_size, seed)

    def _check(self, data_dir: str, config: Any, global_batch_size: int) -> List[str]:
        """The folder's `check`."""
        raise NotImplementedError

    def _read(self, rows: "NDArray[Any]") -> "Dict[str, NDArray[Any]]":
        import numpy

        found = {field: numpy.ascontiguousarray(array[rows]) for field, array in self._arrays.items()}
        for field, least in self.ids.items():
            low, high, most = int(found[field].min()), int(found[field].max()), self._config.vocabulary - 1
            if low < least or high > most:  # some frameworks would take another row of the table, and not say so
                raise ValueError(
                    f"{path(self._data_dir, field)}: has {low if low < least else high}; allowed: {least} to {most}, "
                    "rows of the model's table. Prepare the folder again."
                )
        return found


def path(data_dir: "Union[str, os.PathLike[str]]", field: str) -> str:
    """The file of one array."""
    return os.path.join(data_dir, field + ".npy")


def mapped(data_dir: str, field: str) -> "NDArray[Any]":
    """One array, read-only."""
    import numpy

    loaded: NDArray[Any] = numpy.load(path(data_dir, field), mmap_mode="r", allow_pickle=False)
    return loaded


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
