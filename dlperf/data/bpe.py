"""Vocabularies of byte pairs, as GPT-2 has them: any text has tokens, none is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.errors import Problem, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def train(texts: Iterable[list[str]], alphabet: set[int], size: int, special: Sequence[str]) -> Tokenizer:
    """A tokenizer with at most so many tokens. alphabet: the bytes that the texts have. special: the first tokens,
    which no text has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    least = len(alphabet) + len(special)
    if size < least:
        allowed = f"at least {least}, for {' '.join(special)} and the {len(alphabet)} bytes of this corpus"
        raise UsageError([Problem("--vocab-size", size, allowed)])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, special_tokens=[*special])
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def bytes_of(characters: Iterable[str]) -> set[int]:
    return {byte for character in characters for byte in character.encode()}


def read(file: Path, most: int, special: Sequence[str], whose: str) -> tuple[Tokenizer | None, list[Problem]]:
    """A tokenizer.json with at most so many tokens, these among them. whose: the model's, in words."""
    from tokenizers import Tokenizer

    if not file.is_file():  # a pipe would be waited for
        return None, [Problem("--tokenizer", file, says=f"there is no such file. Name a tokenizer.json of {whose}.")]
    try:
        found = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises this very class
        why = (str(error).splitlines() or [""])[0][:200]
        return None, [Problem("--tokenizer", file, says=f"it is no tokenizer.json: {why}.")]
    missing, says = [one for one in special if found.token_to_id(one) is None], ""
    if missing:
        says = f"it lacks {' '.join(missing)}. Give one of {whose}."
    elif found.get_vocab_size() > most:
        says = f"it has {found.get_vocab_size()} tokens; allowed: at most {most}, the vocabulary of {whose}."
    return (None, [Problem("--tokenizer", file, says=says)]) if says else (found, [])
