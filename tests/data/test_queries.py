"""Preparing queries for Simnet-BOW, and reading them."""

import json

import numpy
import pytest
from commands import call

from dlperf.data import __main__ as command
from dlperf.models import queries, simnet_bow

TINY = simnet_bow.SIZES["simnet_bow_tiny"]
LINES = [
    "Red shoes\tred shoes for men\tblue  hat",
    "hat\ta hat\u00a0a hat a hat red\tshoes",
    "\tred\tblue",
    "rare\tred\tblue",
]
#: their words, the most frequent first
ORDER = ["hat", "red", "a", "blue", "shoes", "for", "men", "rare"]


def prepare(source, output, *more):
    sizes = ["--query", "4", "--title", "6"]
    return command.main([str(one) for one in ["queries", "--source", source, "--output", output, *sizes, *more]])


@pytest.fixture
def source(tmp_path):
    (tmp_path / "log.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    return tmp_path / "log.txt"


@pytest.fixture
def prepared(tmp_path):
    random = numpy.random.RandomState(5)
    lines = [
        "\t".join(" ".join(f"w{random.randint(90)}" for _ in range(most)) for most in (3, 6, 4)) for _ in range(50)
    ]
    (tmp_path / "many.txt").write_text("\n".join(lines))
    assert prepare(tmp_path / "many.txt", tmp_path / "rows", "--quiet") == 0
    return tmp_path / "rows"


def test_words_are_numbered_by_how_frequent_they_are(source, tmp_path, capsys):
    assert prepare(source, tmp_path / "rows", "--vocabulary", 7) == 0
    rows = tmp_path / "rows"
    counts = dict(zip(ORDER, [5, 5, 3, 3, 3, 1, 1, 1], strict=True))
    expected = sorted(counts, key=lambda word: (-counts[word], word))[:7]
    assert (rows / "vocab.txt").read_text().split() == expected
    number = {word: place for place, word in enumerate(expected)}

    def padded(words, most):
        return [number[one] for one in words.split()] + [-1] * (most - len(words.split()))

    found = {name: numpy.load(rows / f"{name}.npy").tolist() for name in queries.FIELDS}
    # the third line has no query, the fourth one of a word that is not in the vocabulary
    assert found["query"] == [padded("red shoes", 4), padded("hat", 4)]
    assert found["title"] == [padded("red shoes for men", 6), padded("a hat a hat a hat", 6)]
    assert found["other"] == [padded("blue hat", 6), padded("shoes", 6)]
    described = json.loads((rows / "dataset.json").read_text())
    assert [described[key] for key in ("rows", "query", "title", "vocabulary")] == [2, 4, 6, 7]
    assert described["corpus"] == {"files": 1, "words": sum(counts.values()), "empty": 2, "cut": 1}
    told = capsys.readouterr().out
    assert "left out: 2 lines with a text of which no word is left; cut: 1 text; a vocabulary of 7." in told


def test_the_same_lines_give_the_same_bytes(source, tmp_path):
    for name in ("one", "again"):
        assert prepare(source, tmp_path / name, "--quiet") == 0
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_batches_are_as_synthetic_ones_are(prepared):
    made, read = simnet_bow.batch(TINY, 4, 1, 0), queries.Rows(str(prepared), TINY, 4, 1, 2, seed=5)[0]
    assert {name: (one.shape, one.dtype) for name, one in read.items()} == {
        name: (one.shape, one.dtype) for name, one in made.items()
    }
    for one in read.values():
        assert one.flags.c_contiguous
        assert (numpy.sort(one < 0, axis=1) == (one < 0)).all()  # padding is behind words
        assert (one[:, 0] >= 0).all()


def test_what_a_model_cannot_read_is_said(prepared):
    (long,) = queries.check(str(prepared), TINY._replace(title=16))
    assert long.endswith("dataset.json: title is 6; the model needs 16. Prepare with --title 16.")
    (few,) = queries.check(str(prepared), TINY, 51)
    assert "has 50 rows; one global batch needs 51. Take a smaller batch" in few
    (narrow,) = queries.check(str(prepared), TINY._replace(vocabulary=9))
    assert "words; the model has 9. Prepare with --vocabulary 9." in narrow
    titles = numpy.load(prepared / "title.npy")
    titles[3, 2] = -2
    numpy.save(prepared / "title.npy", titles)
    with pytest.raises(ValueError, match=r"title\.npy: has -2; allowed: -1 to 599, rows of the model's table"):
        queries.Rows(str(prepared), TINY, 50, 0, 1, 1)[0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--query", "5"], "--query 5: no model reads such rows with --title 6; allowed: 4 with --title 6 or 8 with"),
        (["--title", "16"], "--query 4: no model reads such rows with --title 16"),
        (["--vocabulary", "601"], "--vocabulary: '601' is not usable; allowed: a whole number from 1 to 600, which"),
        (["--source", "none"], "--source none: there is no such file or folder"),
        (
            ["--source", "{folder}/two.txt"],
            "two.txt:2: it has 2 fields; allowed: 3: a query, the title that was",
        ),
        (["--source", "{folder}/latin.txt"], "latin.txt:1: it is not UTF-8. Convert the file: iconv"),
        (["--source", "{folder}/blank.txt"], "no line is left: in each a text has no word of the vocabulary."),
    ],
)
def test_what_is_wrong_is_said(more, says, source, tmp_path, capsys):
    (tmp_path / "two.txt").write_text("a\tb\tc\na\tb\n")
    (tmp_path / "latin.txt").write_bytes("k\u00e4se\tb\tc\n".encode("latin1"))
    (tmp_path / "blank.txt").write_text("a\t\tc\n")
    assert prepare(source, tmp_path / "rows", *(one.format(folder=tmp_path) for one in more)) == 2
    told = capsys.readouterr().err
    assert says in told, told
    assert not (tmp_path / "rows").exists()


def test_simnet_bow_is_planned_on_queries_and_word2vec_is_not(prepared, tmp_path):
    words = ["-f", "pytorch", "-p", "fp32", "--device", "cpu", "-b", 4, "--env", "venv", "--dry-run", "-o", tmp_path]
    planned = call("compare", "-m", "simnet_bow_tiny", "--data", prepared, *words)
    assert planned.returncode == 0, planned.stderr
    refused = call("compare", "-m", "word2vec_tiny", "--data", prepared, *words)
    assert refused.returncode == 2
    assert "format is 'dlperf-queries'; allowed: 'dlperf-words'" in refused.stderr
