"""Preparing words for Word2Vec, and reading them."""

import json
from collections import Counter

import numpy
import pytest
from commands import call

from dlperf.data import __main__ as command
from dlperf.data import words as preparing
from dlperf.models import word2vec, words

TINY = word2vec.SIZES["word2vec_tiny"]
#: of the words the 4, cat and dog 2, a, ran and saw 1
TEXTS = {"a.txt": "The cat saw\u00a0the\n\n  dog\ta\nthe CAT\r\n", "sub/b.txt": "\ufeffthe dog ran"}


@pytest.fixture
def corpus(tmp_path):
    for name, content in TEXTS.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return tmp_path / "corpus"


def prepare(corpus, output, *more):
    return command.main([str(one) for one in ["words", "--corpus", corpus, "--output", output, *more]])


@pytest.fixture
def prepared(tmp_path):
    """Of 300 lines, more rows than a few batches have."""
    random = numpy.random.RandomState(5)
    (tmp_path / "long").mkdir()
    lines = [" ".join(f"w{int(one)}" for one in 40 * random.random_sample(7) ** 3) for _ in range(300)]
    (tmp_path / "long" / "a.txt").write_text("\n".join(lines))
    assert prepare(tmp_path / "long", tmp_path / "rows", "--vocabulary", 600, "--quiet") == 0
    return tmp_path / "rows"


def test_a_word_has_the_words_of_its_window_on_its_line():
    numbers = numpy.array([0, 1, 0, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9])
    lines = numpy.array([0, 0, 0, 1, 3, 3, *[4] * 7])
    windows = numpy.array([1, 2, 1, 5, 1, 5, 5, 1, 1, 2, 1, 1, 5])
    found = preparing.pairs(numbers, lines, windows)
    of_lines = [(0, 1), (1, 0), (1, 0), (0, 1)], [], [(1, 0), (0, 1)]
    last = [*[(3, one) for one in (4, 5, 6, 7, 8)], (4, 3), (4, 5), (5, 4), (5, 6), (6, 4), (6, 5), (6, 7), (6, 8)]
    last += [(7, 6), (7, 8), (8, 7), (8, 9), *[(9, one) for one in (4, 5, 6, 7, 8)]]
    assert [*zip(*found, strict=True)] == [*of_lines[0], *of_lines[2], *last]
    assert [len(one) for one in preparing.pairs(numbers[:0], lines[:0], windows[:0])] == [0, 0]


def test_words_that_are_not_in_the_vocabulary_are_left_out_before_windows(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparing, "WINDOW", 1)
    assert prepare(corpus, tmp_path / "out", "--vocabulary", 3) == 0
    out = tmp_path / "out"
    assert (out / "vocab.txt").read_text() == "the\ncat\ndog\n"
    assert numpy.load(out / "counts.npy").tolist() == [4, 2, 2]
    # "the cat the" without saw; "dog" alone without a; "the cat"; "the dog" without ran
    assert numpy.load(out / "words.npy").tolist() == [0, 1, 1, 0, 0, 1, 0, 2]
    assert numpy.load(out / "contexts.npy").tolist() == [1, 0, 0, 1, 1, 0, 2, 0]
    found = json.loads((out / "dataset.json").read_text())
    assert (found["rows"], found["vocabulary"]) == (8, 3)
    assert found["corpus"] == {"files": 2, "characters": sum(map(len, TEXTS.values())), "words": 11, "left_out": 3}
    assert "out: 8 rows of 11 words in " in capsys.readouterr().out


def test_windows_are_drawn_from_one_to_five(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(" ".join(f"w{one:04}" for one in range(5000)))
    assert prepare(tmp_path / "corpus", tmp_path / "out", "--quiet") == 0
    arrays = [numpy.load(tmp_path / "out" / f"{name}.npy") for name in ("words", "contexts")]
    away = Counter(abs(int(one) - int(other)) for one, other in zip(*arrays, strict=True))
    # a context is k words away with the probability of a window of k or more
    assert sorted(away) == [1, 2, 3, 4, 5]
    for words_away, times in away.items():
        assert times / 10**4 == pytest.approx((6 - words_away) / 5, abs=0.03)


def test_the_same_text_gives_the_same_bytes(corpus, tmp_path):
    for name, *more in (("one",), ("again",), ("other", "--seed", 2)):
        assert prepare(corpus, tmp_path / name, *more, "--quiet") == 0
    one, again, other = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "again", "other")
    )
    assert one == again
    assert one["vocab.txt"] == other["vocab.txt"]
    assert one["dataset.json"] != other["dataset.json"]


def test_a_line_of_a_whole_book_is_cut_between_words(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "BLOCK", 16)
    (tmp_path / "a.txt").write_text("one two three four five six\nseven eight nine ten\n" + "x" * 40 + " eleven")
    lines = [line.split() for line in preparing._lines(tmp_path / "a.txt")]
    first = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    assert [word for line in lines for word in line][:10] == first
    assert "".join(word for line in lines for word in line).endswith("x" * 40 + "eleven")
    assert max(map(len, lines)) < 6


def test_batches_are_as_synthetic_ones_are(prepared):
    for config in (TINY, TINY._replace(shared=False)):
        made, read = word2vec.batch(config, 4, 1, 0), words.Rows(str(prepared), config, 4, 0, 1, seed=5)[0]
        assert {name: (one.shape, one.dtype) for name, one in read.items()} == {
            name: (one.shape, one.dtype) for name, one in made.items()
        }
        assert all(one.flags.c_contiguous for one in read.values())
        assert (read["negatives"] == read["negatives"][0]).all() == config.shared


def test_negatives_are_drawn_by_counts_to_the_power_of_three_quarters(prepared):
    config = TINY._replace(shared=False)
    rows = words.Rows(str(prepared), config, 1000, 0, 1, seed=5)
    drawn = Counter(int(one) for index in range(len(rows)) for one in rows[index]["negatives"].flat)
    counts = numpy.load(prepared / "counts.npy") ** 0.75
    total = drawn.total()
    assert total > 30000
    for word in range(5):
        share = counts[word] / counts.sum()
        assert drawn[word] / total == pytest.approx(share, abs=4 * (share / total) ** 0.5)


def test_ranks_have_all_rows_once_and_negatives_of_their_own(prepared):
    def pairs(one):
        return Counter(zip(one["words"].tolist(), one["contexts"].tolist(), strict=True))

    whole = {name: numpy.load(prepared / f"{name}.npy") for name in ("words", "contexts")}
    for config in (TINY, TINY._replace(shared=False)):
        ranks = [words.Rows(str(prepared), config, 50, rank, 2, seed=5) for rank in range(2)]
        read = [[one[index] for one in ranks] for index in range(len(ranks[0]))]
        seen = sum((pairs(one) for both in read for one in both), start=Counter())
        assert seen <= pairs(whole)
        assert seen.total() > len(whole["words"]) - 100
        negatives = [one["negatives"].tobytes() for both in read for one in both]
        assert len({*negatives}) == len(negatives)
        assert ranks[1][3]["negatives"].tobytes() == negatives[7]
        for field in ("words", "negatives"):
            total = sum(int(one[field].sum()) for one in read[2])
            assert {one.total(2, field) for one in ranks} == {total}


def test_what_a_model_cannot_read_is_said(prepared):
    (few,) = words.check(str(prepared), TINY, 10**6)
    assert "one global batch needs 1000000. Take a smaller batch" in few
    (narrow,) = words.check(str(prepared), TINY._replace(vocabulary=20))
    assert narrow.endswith("dataset.json: vocabulary is 40 words; the model has 20. Prepare with --vocabulary 20.")
    (prepared / "counts.npy").unlink()
    with pytest.raises(ValueError, match=r"counts\.npy: is missing\. Prepare a folder with `.* --corpus DIR"):
        words.Rows(str(prepared), TINY, 1, 0, 1, 1)
    (none,) = words.check(str(prepared / "none"), TINY)
    assert none.endswith("does not exist; allowed: a folder of prepared words. " + words.FOLDER.prepare + ".")


@pytest.mark.parametrize("wrong", [-1, TINY.vocabulary])
def test_an_id_that_is_no_row_of_the_table_is_said(wrong, prepared):
    contexts = numpy.load(prepared / "contexts.npy")
    contexts[7] = wrong
    numpy.save(prepared / "contexts.npy", contexts)
    rows = words.Rows(str(prepared), TINY, len(contexts), 0, 1, 1)
    with pytest.raises(ValueError, match=rf"contexts\.npy: has {wrong}; allowed: 0 to 599, rows of the model's table"):
        rows[0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--vocabulary", "0"], "--vocabulary: '0' is not usable; allowed: a whole number from 1 to 354051, which"),
        (["--vocabulary", "354052"], "--vocabulary: '354052' is not usable"),
        (["--seed", "x"], "--seed: 'x' is not usable"),
        (["--corpus", "none"], "--corpus none: there is no such folder"),
        (["--corpus", "{corpus}/latin"], "a.txt: not UTF-8: byte 1 is 0xe4"),
        (["--corpus", "{corpus}/short"], "no line has two words of the vocabulary, which has 2. Add text."),
    ],
)
def test_wrong_options_are_said(more, says, corpus, tmp_path, capsys):
    for name, content in (("latin", "k\u00e4se".encode("latin1")), ("short", b"one\n\ntwo\n")):
        (corpus / name).mkdir()
        (corpus / name / "a.txt").write_bytes(content)
    assert prepare(corpus, tmp_path / "out", *(one.format(corpus=corpus) for one in more)) == 2
    told = capsys.readouterr().err
    assert says in told, told
    assert not (tmp_path / "out").exists()


def test_word2vec_is_planned_on_words_and_gpt_is_not(prepared, tmp_path):
    more = ["-p", "fp32", "--device", "cpu", "--env", "venv", "--dry-run", "-o", tmp_path / "c"]
    planned = call("compare", "-f", "pytorch,paddle", "-m", "word2vec_tiny", "--data", prepared, *more)
    assert planned.returncode == 0, planned.stderr
    refused = call("compare", "-f", "pytorch", "-m", "gpt_tiny", "--data", prepared, *more)
    assert refused.returncode == 2
    assert "format is 'dlperf-words'; allowed: 'dlperf-text'" in refused.stderr
