"""Prepared clicks on disk, and the batches that a rank reads from them.

A data folder, as `python -m dlperf.data clicks` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    numbers.npy     float32 (rows, numbers): scaled, see `dlperf.data.clicks`
    categories.npy  int32 (rows, slots): rows of the table, hashed
    clicked.npy     int32 (rows,): 0 or 1

An example has Criteo's NUMBERS numbers and SLOTS categories.
"""

from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from dlperf.models.prepared import Arrays, Folder

if TYPE_CHECKING:
    from dlperf.models.ctr_dnn import Config

COMMAND = "python -m dlperf.data clicks"
FOLDER = Folder(
    "prepared clicks",
    "dlperf-clicks",
    1,
    ("rows", "numbers", "slots", "vocabulary"),
    COMMAND,
    "--source FILE",
    entries="rows of the table",
    sized="--vocabulary",
)
NUMBERS, SLOTS = 13, 26
#: name -> its axes besides that of rows, and its dtype
FIELDS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    "numbers": (("numbers",), "float32"),
    "categories": (("slots",), "int32"),
    "clicked": ((), "int32"),
}

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows(Arrays):
    """`rows[i]` is what `batch` of dlperf.models.ctr_dnn gives."""

    fields, ids = FIELDS, {"categories": 0}

    def _check(self, data_dir: str, config: "Config", global_batch_size: int) -> List[str]:
        return check(data_dir, config, global_batch_size)


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: "Config", global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    problems = FOLDER.rows_problems(data_dir, FIELDS, (), config, global_batch_size)
    if (config.numbers, config.slots) != (NUMBERS, SLOTS):  # no option makes other ones
        problems.append(
            f"{data_dir}: clicks have {NUMBERS} numbers and {SLOTS} categories; the model has {config.numbers} and "
            f"{config.slots}. Compare ctr_dnn."
        )
    return problems
