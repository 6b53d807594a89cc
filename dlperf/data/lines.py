"""What rows for tables are made of: files of lines with tabs between fields, and vocabularies of the words in them."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlperf import models
from dlperf.data.folder import Advance
from dlperf.data.text import BLOCK, corpus_problems, text_files
from dlperf.errors import Problem, UsageError, shown, whole_number
from dlperf.words import count

#: a longer line, in bytes, is no line of such a file
LONGEST = 1 << 20


class Line(NamedTuple):
    """number: from 1."""

    file: Path
    number: int
    fields: list[bytes]

    def wrong(self, says: str) -> UsageError:
        return UsageError([Problem("--source", f"{shown(str(self.file))}:{self.number}", says=says)])


def source_files(source: Path) -> list[Path]:
    """A file, or all *.txt of a folder."""
    return text_files(source) if source.is_dir() else [source]


def source_problems(source: Path) -> list[Problem]:
    """Why nothing can be read there, as can be seen without reading it."""
    if source.is_dir():
        return corpus_problems(source, "--source")
    if not source.is_file():  # a pipe would be waited for
        what = "this is no file" if source.exists() else "there is no such file or folder"
        return [Problem("--source", source, says=f"{what}. Name a file of lines, or a folder of such files, *.txt.")]
    return [] if source.stat().st_size else [Problem("--source", source, says="it is empty.")]


def lines(files: Sequence[Path], fields: int, form: str, advance: Advance) -> Iterator[Line]:
    """All lines. UsageError, with file and line, for the first that has not so many fields. form: what these are, in
    words."""
    for file in files:
        number = done = 0
        with file.open("rb") as stream:
            while text := stream.readline(LONGEST):
                number, done = number + 1, done + len(text)
                line = Line(file, number, text.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n").split(b"\t"))
                if len(text) == LONGEST and not text.endswith(b"\n"):
                    raise line.wrong(f"it is longer than {LONGEST:,} bytes. Is this a file of lines?")
                if len(line.fields) != fields:
                    allowed = f"allowed: {fields}: {form}, with a tab between two"
                    raise line.wrong(f"it has {count(len(line.fields), 'field')}; {allowed}.")
                yield line
                if done >= BLOCK:
                    advance(done)
                    done = 0


def sizes(input: str) -> list[Any]:
    """The configs of all models that read folders of a kind, in the order of models."""
    return [models.config(name) for name in models.NAMES if input == models.family(name).INPUT]


def vocabulary_of(
    asked: str | None, vocabularies: Sequence[int], whose: str, least: int = 1
) -> tuple[int, list[Problem]]:
    """How large a vocabulary may get, and what is wrong with what was asked. vocabularies: of the models that may read
    the folder; the first is the default. whose: these models', in words."""
    most = max(vocabularies)
    if asked is None:
        return vocabularies[0], []
    size = whole_number(asked, least, most)
    if size is None:
        return least, [Problem("--vocabulary", asked, f"a whole number from {least} to {most}, which {whose} has")]
    return size, []


def most_frequent(counts: Counter[str], most: int) -> list[str]:
    """So many words of a text, the most frequent first; of equally frequent ones by their letters."""
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]
