"""Prepared text on disk: one run of tokens, and the rows of any length that a rank reads from it.

A data folder, as `python -m dlperf.data text` writes it:

    dataset.json    what it is: the keys of FOLDER, and how it was made
    tokenizer.json  what made tokens of text, as the library `tokenizers` reads it
    tokens.npy      uint16 (tokens,): all documents, each with <|endoftext|> after it

Row k of `sequence` tokens is tokens[k * sequence : (k + 1) * sequence], whose labels are the tokens that follow them,
as nanoGPT has it; a last row that is not full is left out.
"""

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf.models.prepared import Folder, Shuffled, mapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMMAND = "python -m dlperf.data text"
FOLDER = Folder("prepared text", "dlperf-text", 1, ("tokens", "vocabulary"), COMMAND)
TOKENS, DTYPE = "tokens", "uint16"
TOKENIZER = "tokenizer.json"

#: a folder has one, without a name
FORMATS: Tuple[str, ...] = ()


class Rows(Shuffled):
    """`rows[i]` is a dict of input_ids and labels, int32 (batch_size, sequence). Raises ValueError with all problems
    that `check` finds."""

    def __init__(self, data_dir: str, config: Any, batch_size: int, rank: int, world_size: int, seed: int):
        problems = check(data_dir, config, batch_size * world_size)
        if problems:
            raise ValueError("\n".join(problems))
        self._tokens = mapped(data_dir, TOKENS)
        self._sequence: int = config.sequence
        super().__init__((len(self._tokens) - 1) // self._sequence, batch_size, rank, world_size, seed)

    def _read(self, rows: "NDArray[Any]") -> "Dict[str, NDArray[Any]]":
        import numpy

        begins = rows * self._sequence
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
    problems = FOLDER.vocabulary_problems(data_dir, found["vocabulary"], config.vocabulary)
    problems += FOLDER.array_problems(data_dir, TOKENS, DTYPE, (found["tokens"],))
    needs = global_batch_size * config.sequence + 1
    if found["tokens"] < needs:
        problems.append(
            f"{data_dir}: has {found['tokens']} tokens; one global batch of {global_batch_size} rows of "
            f"{config.sequence} needs {needs}. Take a smaller batch, or prepare more text."
        )
    return problems
