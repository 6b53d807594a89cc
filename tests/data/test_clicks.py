"""Preparing clicks for CTR-DNN, and reading them."""

import json
import zlib

import numpy
import pytest
from commands import call

from dlperf.data import __main__ as command
from dlperf.data import clicks as preparing
from dlperf.models import clicks, ctr_dnn

SMALL = ctr_dnn.SIZES["ctr_dnn_check"]
#: two lines as Criteo has them: one is full, one has empty numbers and categories, the last one too
NUMBERS = [["20", "-3", "0", "25", "64000", "1000", "1", "0", "50", "1", "10", "5", "-50"], ["", "0", *[""] * 11]]
CATEGORIES = [[f"{place:08x}" for place in range(26)], ["68fd1e64", *[""] * 24, "3a171ecb"]]
LINES = ["\t".join([label, *NUMBERS[one], *CATEGORIES[one]]) for one, label in enumerate("10")]


def prepare(source, output, *more):
    return command.main([str(one) for one in ["clicks", "--source", source, "--output", output, *more]])


@pytest.fixture
def prepared(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(LINES * 10) + "\n")
    assert prepare(tmp_path / "train.txt", tmp_path / "rows", "--vocabulary", 20000, "--quiet") == 0
    return tmp_path / "rows"


def test_numbers_are_scaled_and_categories_hashed(tmp_path, capsys):
    source = tmp_path / "train.txt"
    source.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    assert prepare(source, tmp_path / "rows") == 0
    rows = {name: numpy.load(tmp_path / "rows" / f"{name}.npy") for name in clicks.FIELDS}
    assert rows["clicked"].tolist() == [1, 0]
    expected = [[1, 0, 0, 0.5, 1, 2, 0.01, 0, 0.1, 0.1, 1, 0.5, -1], [0, 3 / 603, *[0] * 11]]
    assert rows["numbers"].tolist() == numpy.float32(expected).tolist()
    hashed = [26 + zlib.crc32(f"{place}:{place:08x}".encode()) % (1000001 - 26) for place in range(26)]
    first, last = (26 + zlib.crc32(one) % (1000001 - 26) for one in (b"0:68fd1e64", b"25:3a171ecb"))
    assert rows["categories"].tolist() == [hashed, [first, *range(1, 25), last]]
    # of another process and machine, too
    assert (first, last) == (402719, 469602)
    found = json.loads((tmp_path / "rows" / "dataset.json").read_text())
    assert [found[key] for key in ("rows", "numbers", "slots", "vocabulary")] == [2, 13, 26, 1000001]
    assert found["corpus"] == {"files": 1, "clicked": 1, "empty_categories": 24, "used": 28}
    told = capsys.readouterr().out
    assert "rows: 2 rows in " in told
    assert "50% clicked; 46% of the categories are empty, the others are in 28 of 1,000,001 rows of the table." in told


def test_the_same_text_in_another_place_is_another_category():
    found = {preparing.row(slot, b"68fd1e64", 1000001) for slot in range(26)}
    assert len(found) == 26
    for vocabulary in (27, 600):
        rows = [preparing.row(slot, b"%x" % one, vocabulary) for slot in range(26) for one in range(99)]
        assert (min(rows), max(rows)) == (26, vocabulary - 1)


def test_a_folder_is_read_in_the_order_of_its_files(prepared, tmp_path):
    (tmp_path / "days" / "more").mkdir(parents=True)
    for name, lines in (("b.txt", LINES * 6), ("more/c.txt", LINES), ("a.txt", LINES * 3)):
        (tmp_path / "days" / name).write_text("\n".join(lines))
    assert prepare(tmp_path / "days", tmp_path / "again", "--vocabulary", 20000, "--quiet") == 0
    for name in clicks.FIELDS:
        assert (tmp_path / "again" / f"{name}.npy").read_bytes() == (prepared / f"{name}.npy").read_bytes()


def test_batches_are_as_synthetic_ones_are(prepared):
    made, read = ctr_dnn.batch(SMALL, 4, 1, 0), clicks.Rows(str(prepared), SMALL, 4, 1, 2, seed=5)[0]
    assert {name: (one.shape, one.dtype) for name, one in read.items()} == {
        name: (one.shape, one.dtype) for name, one in made.items()
    }
    assert all(one.flags.c_contiguous for one in read.values())
    seen = [clicks.Rows(str(prepared), SMALL, 4, rank, 2, seed=5) for rank in range(2)]
    assert {len(one) for one in seen} == {2}
    clicked = [one[index]["clicked"] for one in seen for index in range(2)]
    assert 6 <= numpy.concatenate(clicked).sum() <= 10


def test_what_a_model_cannot_read_is_said(prepared, tmp_path):
    (few,) = clicks.check(str(prepared), SMALL, 1000)
    assert "has 20 rows; one global batch needs 1000. Take a smaller batch" in few
    (narrow,) = clicks.check(str(prepared), SMALL._replace(vocabulary=600))
    assert "vocabulary is 20000 rows of the table; the model has 600. Prepare with --vocabulary 600." in narrow
    *_, other = clicks.check(str(prepared), ctr_dnn.SIZES["ctr_dnn_tiny"])
    assert other.endswith("clicks have 13 numbers and 26 categories; the model has 3 and 5. Compare ctr_dnn.")
    (missing,) = clicks.check(str(tmp_path), SMALL)
    assert f"has no dataset.json; allowed: a folder of prepared clicks. {clicks.FOLDER.prepare}." in missing
    categories = numpy.load(prepared / "categories.npy")
    categories[3, 5] = 20000
    numpy.save(prepared / "categories.npy", categories)
    with pytest.raises(ValueError, match=r"categories\.npy: has 20000; allowed: 0 to 19999"):
        clicks.Rows(str(prepared), SMALL, 20, 0, 1, 1)[0]


def changed(place, text):
    fields = LINES[0].split("\t")
    fields[place : place + 1] = [] if text is None else [text]
    return "\t".join(fields)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("\t".join(LINES[0].split("\t")[:38]), "it has 38 fields; allowed: 40: a label, 13 whole numbers and 26"),
        (changed(0, None), "it has 39 fields; allowed: 40"),
        (LINES[0] + "\t", "it has 41 fields; allowed: 40"),
        ("", "it has 1 field; allowed: 40"),
        (changed(0, "2"), "its label is '2'; allowed: 0 or 1."),
        (changed(0, ""), "its label is ''; allowed: 0 or 1."),
        (changed(2, "1.5"), "its number 2 is '1.5'; allowed: a whole number of up to 18 digits, or nothing."),
        (changed(13, "1_0"), "its number 13 is '1_0'"),
        (changed(13, "9" * 400), "its number 13 is '999"),
        (changed(20, "a" * 2**20), "it is longer than 1,048,576 bytes. Is this a file of lines?"),
    ],
)
def test_a_line_that_is_wrong_is_named(line, says, tmp_path, capsys):
    source = tmp_path / "train.txt"
    source.write_text("\n".join([LINES[0], LINES[1], line, "wrong, too"]) + "\n")
    assert prepare(source, tmp_path / "rows") == 2
    told = capsys.readouterr().err
    assert f"--source {source}:3: {says}" in told, told
    assert "train.txt:4" not in told
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--vocabulary", "26"], "--vocabulary: '26' is not usable; allowed: a whole number from 27 to 1000001, which"),
        (["--vocabulary", "1000002"], "--vocabulary: '1000002' is not usable"),
        (["--source", "none"], "--source none: there is no such file or folder"),
        (["--source", "{folder}/empty.txt"], "empty.txt: it is empty."),
        (["--source", "{folder}/none"], "it has no *.txt. Rename your text files."),
        (["--source", "/dev/null"], "this is no file"),
    ],
)
def test_wrong_options_are_said(more, says, tmp_path, capsys):
    (tmp_path / "train.txt").write_text(LINES[0])
    (tmp_path / "empty.txt").touch()
    (tmp_path / "none").mkdir()
    words = [one.format(folder=tmp_path) for one in more]
    assert prepare(tmp_path / "train.txt", tmp_path / "rows", *words) == 2
    told = capsys.readouterr().err
    assert says in told, told
    assert not (tmp_path / "rows").exists()


def test_ctr_dnn_is_planned_on_clicks_and_word2vec_is_not(prepared, tmp_path):
    words = ["-f", "pytorch", "-p", "fp32", "--device", "cpu", "-b", 4, "--env", "venv", "--dry-run", "-o", tmp_path]
    planned = call("compare", "-m", "ctr_dnn", "--data", prepared, *words)
    assert planned.returncode == 0, planned.stderr
    refused = call("compare", "-m", "word2vec_tiny", "--data", prepared, *words)
    assert refused.returncode == 2
    assert "format is 'dlperf-clicks'; allowed: 'dlperf-words'" in refused.stderr
