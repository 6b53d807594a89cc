"""Plain text: sentences, and the vocabulary of their words and word pieces."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dlperf.data.folder import Advance
from dlperf.errors import Problem, UsageError, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: characters that a trained vocabulary knows, the most frequent first; words with others become [UNK]
ALPHABET = 1000
#: a longer line is a paragraph, to be split into sentences; a longer sentence is cut
LONG_LINE = 500
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'”’)])\s+|(?<=[。！？])")
#: bytes or characters read at once
BLOCK = 1 << 20


def text_files(corpus: Path) -> list[Path]:
    """All *.txt of a folder and its subfolders, in the order of their relative names, the same on every machine. Links
    to folders are not followed. OSError where a folder cannot be read, which pathlib would pass over."""

    def fail(error: OSError) -> NoReturn:
        raise error

    walked = os.walk(corpus, onerror=fail)
    found = (Path(folder, name) for folder, _, names in walked for name in names if name.endswith(".txt"))
    return sorted(found, key=lambda path: path.parts)


def corpus_problems(corpus: Path, flag: str = "--corpus") -> list[Problem]:
    """Why a folder is no corpus, as can be seen without reading its files. flag: that names it."""
    if not corpus.is_dir():
        what = "this is a file" if corpus.exists() else "there is no such folder"
        return [Problem(flag, corpus, says=f"{what}. Name a folder of text files, *.txt.")]
    try:
        files = text_files(corpus)
    except OSError as error:
        return [Problem(flag, shown(str(error.filename)), says=f"cannot be read: {error.strerror}.")]
    odd = [shown(str(file)) for file in files if not file.is_file()]
    if odd:
        says = "it is no file, or a link that leads nowhere. Remove it."
        return [Problem(flag, file, says=says) for file in odd]
    says = ""
    if not files:
        says = "it has no *.txt. Rename your text files."
    elif not any(file.stat().st_size for file in files):
        says = f"all its text files ({len(files)}) are empty."
    return [Problem(flag, corpus, says=says)] if says else []


def scan(files: Sequence[Path], advance: Advance, flag: str = "--corpus") -> Counter[str]:
    """How often each character occurs. UsageError with every file that cannot be read or is not UTF-8; flag: that
    names them."""
    characters: Counter[str] = Counter()
    problems = []
    for file in files:
        try:
            for text in _decoded(file, advance):
                characters.update(text)
        except _NotText as error:
            says = f"not UTF-8: byte {error.position} is 0x{error.value:02x}. Convert it: iconv -f latin1 -t utf-8."
            problems.append(Problem(flag, shown(str(file)), says=says))
        except OSError as error:
            problems.append(Problem(flag, shown(str(file)), says=f"cannot be read: {error.strerror}."))
    if problems:
        raise UsageError(problems)
    return characters


class _NotText(ValueError):
    """A file is not UTF-8: the first byte that cannot be, counted from 0, and its value."""

    def __init__(self, position: int, value: int):
        super().__init__(position, value)
        self.position, self.value = position, value


def _decoded(file: Path, advance: Advance) -> Iterator[str]:
    """The text of a file in blocks; _NotText if it is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    with file.open("rb") as stream:
        while True:
            block = stream.read(BLOCK)
            pending, _ = decoder.getstate()
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise _NotText(position - len(pending) + error.start, error.object[error.start]) from None
            if not block:
                return
            position += len(block)
            advance(len(block))


def sentences(file: Path) -> Iterator[str]:
    """The sentences of a file, and an empty string after each document."""
    with file.open(encoding="utf-8-sig") as stream:
        # A limit, as some corpora are one single line; the word there may be cut.
        for line in iter(lambda: stream.readline(BLOCK), ""):
            text = line.strip()
            yield from split(text) if text else [""]
    yield ""


def split(text: str) -> list[str]:
    """One line of text as sentences; a line of usual length is one already."""
    if len(text) <= LONG_LINE:
        return [text]
    found: list[str] = []
    for sentence in filter(None, SENTENCE_END.split(text)):
        found += _cut(sentence)
    return found


def _cut(sentence: str) -> Iterator[str]:
    """Pieces of at most LONG_LINE characters, cut at blanks where there are some."""
    start = 0
    while len(sentence) - start > LONG_LINE:
        end = sentence.rfind(" ", start + 1, start + LONG_LINE + 1)
        end = end if end > 0 else start + LONG_LINE
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:].strip()


def read_vocabulary(file: Path) -> tuple[list[str], list[Problem]]:
    if file.exists() and not file.is_file():  # a pipe would be waited for
        return [], [Problem("--vocab", file, says="this is no file. Give BERT's vocab.txt, with one word per line.")]
    try:
        words = file.read_text("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        return [], [
            Problem("--vocab", file, says=f"not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}.")
        ]
    except OSError as error:
        return [], [Problem("--vocab", file, says=f"cannot be read: {error.strerror}.")]
    missing = [token for token in SPECIAL if token not in words]
    word, times = Counter(words).most_common(1)[0]
    says = ""
    if missing:
        says = f"it lacks {' '.join(missing)}. Give BERT's vocab.txt, with one word per line."
    elif times > 1:
        says = f"{word!r} is there {times} times. Keep one."
    elif len(words) == len(SPECIAL):
        says = f"it has no word besides {' '.join(SPECIAL)}."
    return ([], [Problem("--vocab", file, says=says)]) if says else (words, [])


def tokenizer(words: Sequence[str]) -> Tokenizer:
    """BERT's uncased tokenizer. It knows no special tokens: "[MASK]" in a text is three words, as for Google's."""
    from tokenizers import Tokenizer, models

    vocabulary = {word: number for number, word in enumerate(words)}
    return _with_rules(Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")))


def _with_rules(tokenizer: Tokenizer) -> Tokenizer:
    from tokenizers import normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train(texts: Iterable[list[str]], characters: Counter[str], size: int) -> list[str]:
    """The words of a WordPiece vocabulary for these texts, at most `size`, special tokens first.

    `characters` are those of the texts. The library numbers the pieces inside words in the order of a hash table,
    which changes with each run and decides ties, so we hand it the alphabet, sorted, as if it were special tokens.
    """
    from tokenizers import Tokenizer, models, trainers

    trained = _with_rules(Tokenizer(models.WordPiece(unk_token="[UNK]")))
    start, inside = _alphabet(trained, characters)
    first = [*SPECIAL, *start, *("##" + character for character in inside)]
    if size < len(first):
        allowed = f"at least {len(first)}, for the {len(start)} characters of this corpus"
        raise UsageError([Problem("--vocab-size", size, allowed)])
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=first,
        initial_alphabet=start,
        limit_alphabet=len(start),
    )
    trained.train_from_iterator(texts, trainer)
    numbers = trained.get_vocab()
    return sorted(numbers, key=numbers.__getitem__)


def _alphabet(rules: Tokenizer, characters: Counter[str]) -> tuple[list[str], list[str]]:
    """The most frequent characters of normalized text, sorted; and those that can stand inside a word."""
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        # "É" becomes "e"; a Chinese one gets blanks around it; some become several
        for normal in rules.normalizer.normalize_str(character).split():
            counts.update(dict.fromkeys(normal, count))
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[:ALPHABET]
    start = sorted(frequent)
    return start, [character for character in start if _inside_word(rules, character)]


def _inside_word(rules: Tokenizer, character: str) -> bool:
    text = rules.normalizer.normalize_str("a" + character)
    return len(rules.pre_tokenizer.pre_tokenize_str(text)) == 1
