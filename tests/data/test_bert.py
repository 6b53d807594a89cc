"""Preparing BERT's input, and reading it."""

import errno
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from array import array
from pathlib import Path

import numpy
import pytest
from commands import call

from dlperf.data import __main__ as command
from dlperf.data import bert as bert_
from dlperf.data import pretraining as pretraining_
from dlperf.data import text as text_
from dlperf.data.pretraining import Corpus, Options
from dlperf.data.text import BLOCK
from dlperf.models import bert, pretraining

CONFIG = bert.SIZES["bert_base"]
SPECIAL = dict(zip(text_.SPECIAL, range(5), strict=True))
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


def toy_corpus(folder, documents=60, sentences=60, seed=1):
    """Text of a toy grammar: documents of sentences of 4 to 14 words, each word used often. Two files."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(400)]
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("one.txt", "sub/two.txt"):
        texts = []
        for _ in range(documents // 2):
            lines = [" ".join(draw.choices(words, k=draw.randint(4, 14))).capitalize() + "." for _ in range(sentences)]
            texts.append("\n".join(lines) + "\n")
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(texts), "utf-8")
    return folder


def prepare(corpus, output, *arguments):
    return command.main(["bert", "--corpus", str(corpus), "--output", str(output), "--quiet", *map(str, arguments)])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "out"
    # No documents of short rows: then a chunk of one sentence is the end of a document.
    assert prepare(corpus, output, "--vocab-size", 600, "--short-sequence-probability", 0) == 0
    return output


@pytest.fixture(scope="module")
def arrays(prepared):
    return {field: numpy.load(prepared / f"{field}.npy") for field in bert.FIELDS}


@pytest.fixture(scope="module")
def originals(arrays):
    """input_ids with the masked words put back."""
    ids = arrays["input_ids"].copy()
    row, place = arrays["masked_weights"].nonzero()
    ids[row, arrays["masked_positions"][row, place]] = arrays["masked_ids"][row, place]
    return ids


def words_of(prepared):
    return (prepared / "vocab.txt").read_text("utf-8").splitlines()


# --- what is written


def test_same_corpus_and_options_give_the_same_bytes(corpus, prepared, tmp_path):
    assert prepare(corpus, tmp_path / "again", "--vocab-size", 600, "--short-sequence-probability", 0) == 0
    names = sorted(path.name for path in prepared.iterdir())
    assert names == sorted(["dataset.json", "vocab.txt", *(f"{field}.npy" for field in bert.FIELDS)])
    assert [name for name in names if (prepared / name).read_bytes() != (tmp_path / "again" / name).read_bytes()] == []


def test_another_seed_gives_other_rows_of_the_same_vocabulary(corpus, prepared, tmp_path):
    arguments = ("--vocab-size", 600, "--short-sequence-probability", 0, "--seed", 1, "--duplicate-factor", 1)
    assert prepare(corpus, tmp_path / "other", *arguments) == 0
    assert words_of(tmp_path / "other") == words_of(prepared)
    description = json.loads((tmp_path / "other" / "dataset.json").read_text())
    assert description["digest"] != json.loads((prepared / "dataset.json").read_text())["digest"]


def test_description(prepared, arrays):
    found = pretraining.FOLDER.describe(prepared)
    assert found["rows"] == len(arrays["lengths"])
    assert found["random_next_rows"] == arrays["next_sentence_labels"].sum()
    assert found["vocabulary"] == len(words_of(prepared)) <= 600
    assert (found["sequence"], found["masked"], found["masking"], found["duplicate_factor"]) == (128, 20, 0.15, 5)
    assert (found["corpus"]["files"], found["corpus"]["documents"], found["corpus"]["sentences"]) == (2, 60, 3600)
    assert found["corpus"]["unknown_tokens"] == 0


def test_layout_of_rows(arrays, originals):
    """[CLS] words [SEP] words [SEP] [PAD]..., with types and lengths to match."""
    lengths = arrays["lengths"]
    column = numpy.arange(128)[None, :]
    assert lengths.min() >= 5
    assert lengths.max() == 128
    assert (originals[:, 0] == SPECIAL["[CLS]"]).all()
    separators = originals == SPECIAL["[SEP]"]
    assert (separators.sum(axis=1) == 2).all()
    assert (originals[numpy.arange(len(originals)), lengths - 1] == SPECIAL["[SEP]"]).all()
    assert ((originals == SPECIAL["[PAD]"]) == (column >= lengths[:, None])).all()
    first = separators.argmax(axis=1)[:, None]
    assert (arrays["token_type_ids"] == ((column > first) & (column < lengths[:, None]))).all()


def test_share_of_masked_words(arrays):
    """Exactly 15 % of the row's tokens, rounded, 1 to 20; the rest of the places is empty."""
    weights = arrays["masked_weights"]
    counts = [min(20, max(1, round(0.15 * int(length)))) for length in arrays["lengths"]]
    assert weights.sum(axis=1).tolist() == counts
    unused = weights == 0
    assert (numpy.diff(unused.astype(int), axis=1) >= 0).all(), "unused places come last"
    assert not arrays["masked_positions"][unused].any()
    assert not arrays["masked_ids"][unused].any()


def test_masked_positions_are_words(arrays, originals):
    weights, positions = arrays["masked_weights"] > 0, arrays["masked_positions"]
    row, place = weights.nonzero()
    assert (originals[row, positions[row, place]] >= len(SPECIAL)).all()
    ascending = numpy.diff(positions, axis=1) > 0
    assert ascending[weights[:, 1:]].all()


def test_masks_fall_anywhere(arrays, originals):
    """In a row of k words with n masked, the number among its first h is hypergeometric."""
    words = originals >= len(SPECIAL)
    k = words.sum(axis=1)
    n = arrays["masked_weights"].sum(axis=1)
    first = words & (numpy.arange(128)[None, :] < 40)
    h = first.sum(axis=1)
    found = ((arrays["masked_positions"] < 40) & (arrays["masked_weights"] > 0)).sum()
    deviation = numpy.sqrt((n * (h / k) * (1 - h / k) * (k - n) / (k - 1)).sum())
    assert abs(found - (n * h / k).sum()) < 5 * deviation


def test_masked_words_become_mask_random_or_stay(prepared, arrays):
    """80 %, 10 %, 10 %, within 5 standard deviations; a random word is the same one once in a vocabulary."""
    row, place = arrays["masked_weights"].nonzero()
    now = arrays["input_ids"][row, arrays["masked_positions"][row, place]]
    before = arrays["masked_ids"][row, place]
    same = 0.1 / (len(words_of(prepared)) - len(SPECIAL))
    total = len(now)
    assert total > 30_000
    shares = {
        0.8: now == SPECIAL["[MASK]"],
        0.1 + same: now == before,
        0.1 - same: (now != before) & (now != SPECIAL["[MASK]"]),
    }
    for share, found in shares.items():
        assert abs(found.sum() - share * total) < 5 * (share * (1 - share) * total) ** 0.5
    assert set(now) & {SPECIAL["[PAD]"], SPECIAL["[CLS]"], SPECIAL["[SEP]"]} == set(), "never a special token"


def test_half_of_the_second_texts_are_random(arrays):
    """But a chunk of one sentence, at most one at the end of each pass over a document, always has a random one."""
    labels = arrays["next_sentence_labels"]
    total, forced = len(labels), 60 * 5
    slack = 5 * (0.25 * total) ** 0.5
    assert set(labels) == {0, 1}
    assert (total - forced) / 2 - slack < labels.sum() < total / 2 + forced / 2 + slack


def test_rows_are_text_of_the_corpus(corpus, prepared, arrays, originals):
    """Masked words put back and pieces joined, each part stands in the corpus: one document for a true pair."""
    words = words_of(prepared)
    documents = [
        "".join(document.lower().split())
        for file in sorted(corpus.rglob("*.txt"))
        for document in file.read_text("utf-8").replace(".", " . ").split("\n\n")
    ]
    assert len(documents) == 60
    for row in range(0, len(originals), 25):
        ids = originals[row, : arrays["lengths"][row]]
        types = arrays["token_type_ids"][row, : len(ids)]
        parts = [
            "".join(words[number].removeprefix("##") for number in ids[types == part] if number >= len(SPECIAL))
            for part in (0, 1)
        ]
        homes = [{index for index, document in enumerate(documents) if part in document} for part in parts]
        assert homes[0]
        assert homes[1]
        if arrays["next_sentence_labels"][row] == 0:
            assert homes[0] & homes[1]


def test_rows_are_shuffled(arrays):
    """Neighbours in the corpus would be of one length or short together; lengths of neighbours are uncorrelated."""
    labels = arrays["next_sentence_labels"].astype(float)
    lengths = arrays["lengths"].astype(float)
    for values in (labels, lengths):
        correlation = numpy.corrcoef(values[:-1], values[1:])[0, 1]
        assert abs(correlation) < 5 / len(values) ** 0.5


def test_words_are_found_again(prepared):
    """Every word of the vocabulary's alphabet has pieces; special tokens in a text are words like others."""
    tokenizer = text_.tokenizer(words_of(prepared))
    assert "[UNK]" not in tokenizer.encode("Bàdefi, GLOMP.".replace(",", "")).tokens
    assert not set(tokenizer.encode("[MASK] [SEP]").tokens) & {"[MASK]", "[SEP]"}


def test_a_given_vocabulary_is_used(corpus, tmp_path):
    words = ["[unused0]", "[CLS]", "ba", "[MASK]", "[SEP]", "[UNK]", ".", "[PAD]"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), "utf-8")
    arguments = ("--vocab", tmp_path / "vocab.txt", "--sequence", 32, "--masked", 5)
    assert prepare(corpus, tmp_path / "out", *arguments) == 0
    assert words_of(tmp_path / "out") == words
    ids = numpy.load(tmp_path / "out" / "input_ids.npy")
    assert ids.shape[1] == 32
    assert (ids[:, 0] == 1).all()
    assert ids[:, -1].max() == 7
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["corpus"]["unknown_tokens"] > 0


def test_one_document_is_enough(tmp_path):
    toy_corpus(tmp_path / "text", documents=2, sentences=80)
    (tmp_path / "text" / "sub" / "two.txt").unlink()
    assert prepare(tmp_path / "text", tmp_path / "out", "--vocab-size", 600) == 0
    labels = numpy.load(tmp_path / "out" / "next_sentence_labels.npy")
    assert set(labels) == {0, 1}


def test_two_sentences_are_enough(tmp_path):
    (tmp_path / "a.txt").write_text("The cat sees a dog.\nThe dog does not see the cat.\n")
    assert prepare(tmp_path, tmp_path.parent / f"{tmp_path.name}.out", "--duplicate-factor", 2) == 0
    labels = numpy.load(tmp_path.parent / f"{tmp_path.name}.out" / "next_sentence_labels.npy")
    assert labels.tolist() == [0, 0], "there is no other text"


# --- its parts


def flat_corpus(documents):
    """A corpus of documents given as lists of sentence lengths."""
    sentences = [0, *itertools.accumulate(itertools.chain.from_iterable(documents))]
    ends = [0, *itertools.accumulate(map(len, documents))]
    return Corpus(numpy.arange(sentences[-1]), array("q", sentences), array("q", ends))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_pairs(count):
    """First parts and true second parts cover a document in order; a random part is from elsewhere."""
    draw = random.Random(count)
    corpus = flat_corpus([[draw.randint(1, 40) for _ in range(50)] for _ in range(count)])
    options = Options(Path(), Path(), short_sequence_probability=0.5)
    for document in [*range(count)] * 40:
        first, last = (corpus.sentences[corpus.documents[document + side]] for side in (0, 1))
        position = first
        for pair in pretraining_.document_pairs(corpus, document, options, draw.random):
            end_a, end_b = pair.start_a + pair.length_a, pair.start_b + pair.length_b
            assert pair.length_a > 0
            assert pair.length_b > 0
            assert pair.start_a == position
            assert {pair.start_a, end_a, pair.start_b, end_b} <= set(corpus.sentences)
            if not pair.random:
                assert pair.start_b == end_a
                assert end_b <= last
            elif count > 1:
                assert end_b <= first or pair.start_b >= last
            else:
                assert end_b <= pair.start_a or pair.start_b > end_a
            position = end_a if pair.random else end_b
        assert position == last


def test_truncation_is_word_by_word():
    """The closed form against the loop it stands for."""

    def loop(length_a, length_b, room):
        while length_a + length_b > room:
            if length_a > length_b:
                length_a -= 1
            else:
                length_b -= 1
        return length_a, length_b

    cases = list(itertools.product(range(1, 40), range(1, 40)))
    length_a, length_b = numpy.array(cases).T
    for room in (5, 6, 29):
        generator = numpy.random.RandomState(0)
        start_a, keep_a, start_b, keep_b = pretraining_.truncate(
            (0 * length_a, length_a, 0 * length_b, length_b), room, generator
        )
        assert list(zip(keep_a, keep_b, strict=True)) == [loop(*case, room) for case in cases]
        for start, keep, length in ((start_a, keep_a, length_a), (start_b, keep_b, length_b)):
            cut = length - keep
            assert (start >= 0).all()
            assert (start <= cut).all()
            assert abs(start.sum() - cut.sum() / 2) < 5 * (cut.sum() / 4) ** 0.5


def test_masking_of_very_short_rows_leaves_special_tokens_alone():
    options = Options(Path(), Path(), sequence=8, masked=5, masking=0.9)
    lengths = numpy.array([5, 8])
    maskable = numpy.array([[0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1, 1, 0]], bool)
    ids = numpy.where(maskable, 7, 2).astype("int32")
    numbers = {**SPECIAL, "a": 5, "b": 6, "c": 7}
    positions, originals, used = pretraining_.mask(
        ids, lengths, maskable, numbers, options, numpy.random.RandomState(0)
    )
    assert positions.tolist() == [[1, 3, 0, 0, 0], [1, 2, 4, 5, 6]]
    assert originals.tolist() == [[7, 7, 0, 0, 0], [7] * 5]
    assert used.sum(axis=1).tolist() == [2, 5]
    assert (ids[~maskable] == 2).all()


def test_lines_are_sentences_and_paragraphs_are_split(tmp_path):
    long = "It rains. " * 60 + 'She said: "Go!" He went. ' + "word " * 250
    (tmp_path / "a.txt").write_bytes(f"\ufeffOne. Still one.\r\nTwo\n\n \n{long}\nlast".encode())
    found = list(text_.sentences(tmp_path / "a.txt"))
    assert found[:5] == ["One. Still one.", "Two", "", "", "It rains."]
    assert found.count("It rains.") == 60
    assert found[64:66] == ['She said: "Go!"', "He went."]
    assert [len(text) for text in found[66:69]] == [499, 499, 249]
    assert found[69:] == ["last", ""]


def test_a_corpus_in_one_line(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the cat sees a dog " * 60_000)
    assert prepare(tmp_path / "text", tmp_path / "out", "--duplicate-factor", 1) == 0


# --- reading


def reader(prepared, batch_size=8, rank=0, world_size=1, seed=0):
    return pretraining.Rows(prepared, CONFIG, batch_size, rank, world_size, seed)


def test_batches_are_views_of_the_memory_map(prepared, arrays):
    rows = reader(prepared, 32)
    batch = rows[3]
    synthetic = bert.batch(CONFIG, 32, 0, 0)
    assert {field: (a.shape, a.dtype) for field, a in batch.items()} == {
        field: (a.shape, a.dtype) for field, a in synthetic.items()
    }
    for field, array_ in batch.items():
        assert type(array_) is numpy.ndarray
        assert array_.flags.c_contiguous
        assert not array_.flags.writeable
        assert numpy.shares_memory(array_, rows[3][field])
        base = array_
        while not isinstance(base, numpy.memmap):
            base = base.base


@pytest.mark.parametrize("seed", [0, 7])
def test_ranks_share_the_rows(prepared, arrays, seed):
    """Over one epoch the ranks see each row at most once, and all rows but an incomplete last global batch."""
    ranks = [reader(prepared, 7, rank, 3, seed) for rank in range(3)]
    count = len(arrays["lengths"]) // 21
    assert [len(rows) for rows in ranks] == [count] * 3
    together = [numpy.concatenate([rows[index]["input_ids"] for rows in ranks]) for index in range(count)]
    expected = arrays["input_ids"][: count * 21].reshape(count, 21, 128)
    first = next(index for index in range(count) if (expected[index] == together[0]).all())
    assert (numpy.roll(expected, -first, axis=0) == together).all()


def test_the_seed_chooses_the_first_batch(prepared):
    first = [reader(prepared, seed=seed)[0]["input_ids"] for seed in (0, 0, 7)]
    assert (first[0] == first[1]).all()
    assert not (first[0] == first[2]).all()


def test_rows_end(prepared):
    rows = reader(prepared)
    assert sum(1 for _ in rows) == len(rows)
    with pytest.raises(IndexError):
        rows[len(rows)]


@pytest.fixture
def copy(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "copy"))


def test_a_good_folder_has_no_problems(prepared):
    assert pretraining.check(str(prepared), CONFIG, 64) == []


def rewrite(folder, **changes):
    file = folder / "dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def save(folder, **arrays):
    for field, values in arrays.items():
        numpy.save(folder / f"{field}.npy", values)


DAMAGE = {
    "missing": (lambda folder: shutil.rmtree(folder), "does not exist"),
    "a file": (lambda folder: (shutil.rmtree(folder), folder.write_text("x")), "is not a folder"),
    "no description": (lambda folder: (folder / "dataset.json").unlink(), "has no dataset.json"),
    "not JSON": (lambda folder: (folder / "dataset.json").write_text("{"), "cannot be read as JSON"),
    "binary": (lambda folder: (folder / "dataset.json").write_bytes(b"\xff\x00"), "cannot be read as JSON"),
    "a list": (lambda folder: (folder / "dataset.json").write_text("[1]"), "format is None"),
    "another format": (lambda folder: rewrite(folder, format="images"), "format is 'images'"),
    "another version": (lambda folder: rewrite(folder, version=2), "version is 2; this dlperf reads 1"),
    "odd rows": (lambda folder: rewrite(folder, rows=-1, masked="x"), "rows is -1, masked is 'x'"),
    "no array": (lambda folder: (folder / "lengths.npy").unlink(), "lengths.npy: is missing"),
    "cut": (lambda folder: os.truncate(folder / "input_ids.npy", 100_000), "input_ids.npy: is damaged or cut short"),
    "empty": (lambda folder: os.truncate(folder / "lengths.npy", 0), "lengths.npy: is damaged or cut short"),
    "no npy": (lambda folder: (folder / "lengths.npy").write_text("hello\n" * 99), "lengths.npy: is damaged"),
    "objects": (lambda folder: save(folder, lengths=numpy.array([{}])), "lengths.npy: is damaged"),
    "other dtype": (lambda folder: save(folder, lengths=numpy.zeros(3)), "holds ('float64', (3,))"),
    "other order": (
        lambda folder: save(folder, input_ids=numpy.asfortranarray(numpy.load(folder / "input_ids.npy"))),
        "in Fortran order",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_foreign_or_damaged_folder(copy, damage):
    act, message = DAMAGE[damage]
    act(copy)
    (problem,) = pretraining.check(str(copy), CONFIG, 8)
    assert message in problem
    assert "python -m dlperf.data bert" in problem
    with pytest.raises(ValueError, match=r"python -m dlperf\.data bert"):
        reader(copy)


def test_all_that_does_not_fit_the_model_at_once(prepared):
    found = pretraining.FOLDER.describe(prepared)
    problems = pretraining.check(str(prepared), bert.SIZES["bert_tiny"], 10**6)
    assert [problem.partition(": ")[2] for problem in problems] == [
        "sequence is 128; the model needs 32. Prepare with --sequence 32.",
        "masked is 20; the model needs 5. Prepare with --masked 5.",
        f"vocabulary is {found['vocabulary']} words; the model has 256. Prepare with --vocab-size 256.",
        f"has {found['rows']} rows; one global batch needs 1000000. Take a smaller batch, or prepare more text.",
    ]


# --- bad input, failures


def complaints(capsys, *arguments):
    assert prepare(*arguments) == 2
    return capsys.readouterr().err.splitlines()


def test_all_wrong_options_at_once(corpus, tmp_path, capsys):
    wrong = {
        "--vocab-size": "-5",
        "--sequence": "7",
        "--masked": "zero",
        "--masking": "1",
        "--short-sequence-probability": "nan",
        "--duplicate-factor": "0",
        "--seed": "-1",
    }
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    arguments = [*itertools.chain.from_iterable(wrong.items()), "--vocab", tmp_path / "none"]
    lines = complaints(capsys, tmp_path / "nowhere", tmp_path / "used", *arguments)
    fields = [line.partition(":")[0].split()[0] for line in lines]
    # --vocab is missing, and --vocab-size beside it is wrong too
    assert fields == [*wrong, "--vocab", "--vocab-size", "--corpus", "--output"]
    assert lines[1] == ("--sequence: '7' is not usable; allowed: a whole number from 8 to 512. The default is 128.")


def test_more_masked_words_than_a_row_has(corpus, tmp_path, capsys):
    (line,) = complaints(capsys, corpus, tmp_path / "out", "--sequence", 16)
    assert line.startswith("--masked: '20' is not usable; allowed: 1 to 13")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "it has no *.txt. Rename your text files."),
        (b"", "all its text files (1) are empty."),
        (b" \n\n\t\n", "it has fewer than two sentences. Add text."),
        (b"Only one sentence.\n", "it has fewer than two sentences. Add text."),
        ("Schön.\n".encode("latin1"), "not UTF-8: byte 3 is 0xf6"),
        (b"a" * (BLOCK - 1) + "ä".encode() + b"\xff", f"byte {BLOCK + 1} is 0xff"),
        (b"a" * (BLOCK - 1) + b"\xe2\x82", f"byte {BLOCK - 1} is 0xe2"),
    ],
)
def test_a_corpus_that_will_not_do(tmp_path, capsys, text, message):
    (tmp_path / "text").mkdir()
    if text is not None:
        (tmp_path / "text" / "a.txt").write_bytes(text)
    (line,) = complaints(capsys, tmp_path / "text", tmp_path / "out")
    assert line.startswith(f"--corpus {tmp_path / 'text'}")
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_every_file_that_is_not_text_is_named(tmp_path, capsys):
    (tmp_path / "text").mkdir()
    for name in ("b", "a"):
        (tmp_path / "text" / f"{name}.txt").write_bytes(b"\x80")
    lines = complaints(capsys, tmp_path / "text", tmp_path / "out")
    assert ["a.txt" in lines[0], "b.txt" in lines[1], len(lines)] == [True, True, 2]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("file", "this is a file"),
        ("file/below", "/file is not a folder."),
        ("text/out", "it is inside --corpus. Choose a folder outside."),
        (".", "this folder is not empty. Remove it, or choose another."),
    ],
)
def test_an_output_that_will_not_do(tmp_path, capsys, output, message):
    toy_corpus(tmp_path / "text", 2, 2)
    (tmp_path / "file").touch()
    (line,) = complaints(capsys, tmp_path / "text", tmp_path / output)
    assert line.startswith(f"--output {tmp_path / output}: ")
    assert message in line


def test_an_output_without_permission(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    (line,) = complaints(capsys, corpus, tmp_path / "out")
    assert f"you do not have permission to write to {tmp_path}." in line


def test_an_output_that_cannot_be_made(corpus, capsys):
    (line,) = complaints(capsys, corpus, Path("/proc/dlperf/out"))
    # /proc lets nobody make a folder, but root has the permission
    why = "cannot be made: No such file or directory." if os.access("/proc", os.W_OK) else "you do not have permission"
    assert line.startswith(f"--output /proc/dlperf/out: {why}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"the\n\xff", "not UTF-8: byte 4 is 0xff."),
        (b"[PAD]\n[UNK]\nthe\n", "it lacks [CLS] [SEP] [MASK]."),
        ("\n".join([*text_.SPECIAL, "the", "the"]).encode(), "'the' is there 2 times"),
        ("\n".join(text_.SPECIAL).encode(), "it has no word besides [PAD] [UNK] [CLS] [SEP] [MASK]."),
    ],
)
def test_a_vocabulary_that_will_not_do(corpus, tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    (line,) = complaints(capsys, corpus, tmp_path / "out", "--vocab", tmp_path / "vocab.txt")
    assert line.startswith(f"--vocab {tmp_path / 'vocab.txt'}: ")
    assert message in line


def test_a_vocabulary_smaller_than_the_alphabet(corpus, tmp_path, capsys):
    (line,) = complaints(capsys, corpus, tmp_path / "out", "--vocab-size", 20)
    # 12 consonants, 5 vowels, the full stop; all but that one also inside words; 5 special tokens
    assert line == "--vocab-size: '20' is not usable; allowed: at least 40, for the 18 characters of this corpus."
    assert prepare(corpus, tmp_path / "out", "--vocab-size", 40) == 0


def in_process(corpus, output, before):
    """Prepares in a process of its own, after some lines of code."""
    modules = "import sys; from dlperf.data import __main__ as command, bert, pretraining"
    code = f"{modules}\n{before}\nsys.exit(command.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "bert", "--corpus", str(corpus), "--output", str(output)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


KILLED = """
import os
make = bert.rows
def rows(*arguments):
    yield next(make(*arguments))
    os.kill(os.getpid(), 9)
bert.rows = rows
pretraining.CHUNK = 64
"""


def test_an_interrupted_preparation_leaves_nothing(corpus, tmp_path, monkeypatch):
    make = bert_.rows

    def rows(*arguments):
        yield next(make(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(bert_, "rows", rows)
    monkeypatch.setattr(pretraining_, "CHUNK", 64)
    done = call("data", "bert", "--corpus", corpus, "--output", tmp_path / "out")
    assert done.returncode == 130
    assert "nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_killed_preparation_leaves_nothing_that_looks_complete(corpus, tmp_path):
    done = in_process(corpus, tmp_path / "out", KILLED)
    assert done.returncode == -9
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.*/data")
    assert "has no dataset.json" in pretraining.check(str(left), CONFIG)[0]
    assert prepare(corpus, tmp_path / "out") == 0


def test_a_disk_that_is_full(corpus, tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))"
    done = in_process(corpus, tmp_path / "out", limit)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"{tmp_path / 'out'}: File too large. Nothing was kept."
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_progress_without_a_terminal(corpus, tmp_path):
    done = call("data", "bert", "--corpus", corpus, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    stages = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert stages == ["read", "vocabulary", "tokens", "pairs", "rows"]
    assert "rows/s" in done.stdout


def test_quiet_is_quiet(corpus, tmp_path, capfd):
    assert prepare(corpus, tmp_path / "out") == 0
    assert capfd.readouterr() == ("", "")


def test_an_empty_output_folder_is_filled(corpus, tmp_path):
    (tmp_path / "out").mkdir()
    assert prepare(corpus, tmp_path / "out", "--duplicate-factor", 1) == 0
    assert pretraining.check(str(tmp_path / "out"), CONFIG) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "it is no file, or a link that leads nowhere. Remove it."),
        (lambda path: path.symlink_to("nowhere"), "it is no file"),
        (lambda path: path.symlink_to(path.name), "it is no file"),
    ],
    ids=["fifo", "dangling", "loop"],
)
def test_what_is_called_text_and_is_no_file_is_named(tmp_path, capsys, make, said):
    toy_corpus(tmp_path / "text", 2, 2)
    make(tmp_path / "text" / "sub" / "a\nb.txt")
    (line,) = complaints(capsys, tmp_path / "text", tmp_path / "out")
    assert line.startswith(f"--corpus {tmp_path / 'text'}/sub/a\\nb.txt: {said}")


def test_links_between_folders_and_odd_names_are_no_obstacle(tmp_path):
    toy_corpus(tmp_path / "text", 4, 40)
    (tmp_path / "text" / "one.txt").rename(tmp_path / "text" / "-\udcff\n'.txt")
    (tmp_path / "text" / "sub" / "up").symlink_to("..")
    (tmp_path / "text" / "loop").symlink_to("loop")
    (tmp_path / "text" / "folder.txt").mkdir()
    assert prepare(tmp_path / "text", tmp_path / "out", "--duplicate-factor", 1) == 0
    assert pretraining.FOLDER.describe(str(tmp_path / "out"))["corpus"]["files"] == 2
    assert pretraining.check(str(tmp_path / "out"), CONFIG) == []


def test_a_folder_of_texts_that_cannot_be_read_is_named(corpus, tmp_path, capsys, monkeypatch):
    """root may read everything, so that the system is asked for less."""
    scandir = os.scandir

    def refusing(path):
        if os.fspath(path).endswith("sub"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    (line,) = complaints(capsys, corpus, tmp_path / "out")
    assert line == f"--corpus {corpus / 'sub'}: cannot be read: Permission denied."


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_vocabulary_that_is_no_file_is_not_waited_for(corpus, tmp_path, capsys, make):
    make(tmp_path / "vocab")
    (line,) = complaints(capsys, corpus, tmp_path / "out", "--vocab", tmp_path / "vocab")
    assert line.startswith(f"--vocab {tmp_path / 'vocab'}: this is no file.")


@pytest.mark.parametrize(
    "text",
    [b"\0" * 10_000 + b"\n", b"x" * 3 * BLOCK, bytes(97 + i * i % 23 for i in range(300_000)), b"\r" * 9],
    ids=["NUL", "a word", "letters", "returns"],
)
def test_lines_that_no_text_has(tmp_path, text):
    toy_corpus(tmp_path / "text", 2, 20)
    (tmp_path / "text" / "odd.txt").write_bytes(b"One.\n" + text + b" Two.\n\n")
    assert prepare(tmp_path / "text", tmp_path / "out", "--duplicate-factor", 1) == 0
    assert pretraining.check(str(tmp_path / "out"), CONFIG) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--sequence", 200),
            "--sequence 200: no model reads rows of so many tokens with --masked 20; allowed: 32 with",
        ),
        (("--masked", 19), "allowed: 32 with --masked 5, 128 with --masked 20 or 512 with --masked 80."),
        (
            ("--vocab-size", 30523),
            "--vocab-size: '30523' is not usable; allowed: at most 30522, the vocabulary of models",
        ),
        (
            ("--sequence", 32, "--masked", 5, "--vocab-size", 257),
            "--vocab-size: '257' is not usable; allowed: at most 256",
        ),
        (("--sequence", 32, "--masked", 5, "--vocab", "VOCAB"), "VOCAB: it has 257 words; allowed: at most 256"),
    ],
)
def test_rows_that_no_model_reads_are_not_made(corpus, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("VOCAB").write_text("\n".join([*text_.SPECIAL, *map(str, range(252))]), "utf-8")
    (line,) = complaints(capsys, corpus, tmp_path / "out", *arguments)
    assert message in line


@pytest.mark.parametrize("model", ["bert_tiny", "bert_base"])
def test_the_default_vocabulary_fits_the_model(tmp_path, model):
    config = bert.SIZES[model]
    (tmp_path / "text").mkdir()
    lines = [" ".join(f"{a}{b}{c}" for c in "abcdefgh") for a in "ijklmnop" for b in "qrstuvwx"]
    (tmp_path / "text" / "a.txt").write_text("\n".join(lines * 2))
    assert prepare(tmp_path / "text", tmp_path / "out", "--sequence", config.sequence, "--masked", config.masked) == 0
    assert pretraining.check(str(tmp_path / "out"), config, 2) == []
