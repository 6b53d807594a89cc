"""Prepared pairs of sentences on disk, and the rows that a rank reads from them.

A data folder, as `python -m dlperf.data translation` writes it:

    dataset.json        what it is: the keys of FOLDER, and how it was made
    tokenizer.json      what made tokens of both languages, as the library `tokenizers` reads it
    source.npy          uint16 (rows, sequence): sentences, each with </s> after it, then padding
    source_lengths.npy  int32 (rows,): tokens without padding
    labels.npy, lengths.npy     the same of the target

A row has as many pairs, one behind the other, as fit. So all rows are about full and have one shape, for which each
framework compiles once; sentences of a row see each other.
"""

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf.models.prepared import Arrays, Folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf.models.transformer import Config

COMMAND = "python -m dlperf.data translation"
FOLDER = Folder(
    "prepared pairs of sentences",
    "dlperf-translation",
    1,
    ("rows", "sequence", "vocabulary"),
    COMMAND,
    "--source FILE --target FILE",
)
TOKENIZER = "tokenizer.json"
#: the first tokens of the vocabulary
SPECIAL = ("<pad>", "<s>", "</s>")
#: name -> its axes besides that of rows, and its dtype
FIELDS = {
    "source": (("sequence",), "uint16"),
    "source_lengths": ((), "int32"),
    "labels": (("sequence",), "uint16"),
    "lengths": ((), "int32"),
}  # type: Dict[str, Tuple[Tuple[str, ...], str]]

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows(Arrays):
    """`rows[i]` is what `batch` of dlperf.models.transformer gives, but with as many tokens as its sentences have."""

    fields = FIELDS

    def _check(self, data_dir: str, config: "Config", global_batch_size: int) -> List[str]:
        return check(data_dir, config, global_batch_size)

    def _read(self, rows: "NDArray[Any]") -> "Dict[str, NDArray[Any]]":
        from dlperf.models.transformer import decoder

        found = {name: one.astype("int32", copy=False) for name, one in super()._read(rows).items()}
        source = {"source": found["source"], "source_lengths": found["source_lengths"]}
        return {**source, **decoder(found["labels"], found["lengths"])}


def formats(data_dir: str) -> List[str]:
    """None."""
    return []


def check(data_dir: str, config: "Config", global_batch_size: int = 1, formats: Sequence[str] = ()) -> List[str]:
    """What keeps this folder from feeding a model of these sizes: a list of sentences, empty if nothing.

    Each names the file, the value, what is allowed and the next step. Opens every file, reads no row.
    """
    return FOLDER.rows_problems(data_dir, FIELDS, ("sequence",), config, global_batch_size)
