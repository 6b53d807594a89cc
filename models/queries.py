"""Prepared queries on disk, each with a title that was clicked and another, and the batches that a rank reads of them.

A data folder, as `python -m dlperf.data queries` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    vocab.txt       the words, one per line, the most frequent first; a word's number is its line, from 0
    query.npy       int32 (rows, query): words, then -1
    title.npy, other.npy    int32 (rows, title): likewise
"""

from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from dlperf.models.prepared import Arrays, Folder

if TYPE_CHECKING:
    from dlperf.models.simnet_bow import Config

COMMAND = "python -m dlperf.data queries"
FOLDER = Folder(
    "prepared queries",
    "dlperf-queries",
    1,
    ("rows", "query", "title", "vocabulary"),
    COMMAND,
    "--source FILE",
    sized="--vocabulary",
)
VOCABULARY = "vocab.txt"
#: behind a text's words
PADDING = -1
#: name -> its axes besides that of rows, and its dtype
FIELDS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    "query": (("query",), "int32"),
    "title": (("title",), "int32"),
    "other": (("title",), "int32"),
}
#: keys of dataset.json that are sizes of the model too, and must be the same there
SIZES = ("query", "title")

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows(Arrays):
    """`rows[i]` is what `batch` of dlperf.models.simnet_bow gives."""

    fields, ids = FIELDS, dict.fromkeys(FIELDS, PADDING)

    def _check(self, data_dir: str, config: "Config", global_batch_size: int) -> List[str]:
        return check(data_dir, config, global_batch_size)


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: "Config", global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    return FOLDER.rows_problems(data_dir, FIELDS, SIZES, config, global_batch_size)
