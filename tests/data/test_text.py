"""Preparing text for GPT-2, and reading it."""

import json
from collections import Counter

import numpy
import pytest
from commands import call

from dlperf.data import __main__ as command
from dlperf.data import gpt
from dlperf.models import gpt as family
from dlperf.models import text

TINY = family.SIZES["gpt_tiny"]
#: one file of two documents, one of a document, of a toy language
TEXTS = {
    "a.txt": "the cat saw the dog\nthe dog saw the cat\n" * 40 + gpt.END + "\nan old bird ate a fish\n" * 40,
    "sub/b.txt": "\ufeff" + "the fish saw nothing: \u00e9t\u00e9\r\n" * 40,
}


@pytest.fixture
def corpus(tmp_path):
    for name, content in TEXTS.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return tmp_path / "corpus"


def prepare(corpus, output, *words):
    words = ["text", "--corpus", corpus, "--output", output, "--quiet", *words]
    return command.main([str(word) for word in words])


@pytest.fixture
def prepared(corpus, tmp_path):
    assert prepare(corpus, tmp_path / "out", "--vocab-size", 200) == 0
    return tmp_path / "out"


def test_tokens_are_the_text(prepared):
    from tokenizers import Tokenizer

    tokens = numpy.load(prepared / "tokens.npy")
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    ends = numpy.flatnonzero(tokens == tokenizer.token_to_id(gpt.END))
    first, second, third = (tokenizer.decode(list(part)) for part in numpy.split(tokens, ends + 1)[:3])
    assert ends[-1] == len(tokens) - 1
    one, two = TEXTS["a.txt"].split(gpt.END + "\n")
    assert [first, second] == [one, two]
    assert third == TEXTS["sub/b.txt"].removeprefix("\ufeff").replace("\r\n", "\n")
    found = json.loads((prepared / "dataset.json").read_text())
    assert found["corpus"] == {"files": 2, "documents": 3, "characters": sum(map(len, TEXTS.values()))}
    assert found["tokens"] == len(tokens) < 0.3 * len("".join(TEXTS.values()))
    assert found["vocabulary"] == tokenizer.get_vocab_size() <= 200


def test_the_same_text_gives_the_same_bytes(corpus, prepared, tmp_path):
    assert prepare(corpus, tmp_path / "again", "--vocab-size", 200) == 0
    for name in ("dataset.json", "tokenizer.json", "tokens.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (prepared / name).read_bytes()
    assert prepare(corpus, tmp_path / "given", "--tokenizer", prepared / "tokenizer.json") == 0
    assert (tmp_path / "given" / "tokens.npy").read_bytes() == (prepared / "tokens.npy").read_bytes()


def test_ranks_have_all_rows_once_in_an_order_of_the_seed(prepared):
    tokens = numpy.load(prepared / "tokens.npy").astype("int32")
    rows = Counter(tokens[start : start + 33].tobytes() for start in range(0, len(tokens) - 32, 32))
    ranks = [text.Rows(str(prepared), TINY, 2, rank, 2, seed=5) for rank in range(2)]
    seen = []
    for index in range(len(ranks[0])):
        whole = 0
        for one in ranks:
            batch = one[index]
            assert {array.dtype.str for array in batch.values()} == {"<i4"}
            assert (batch["input_ids"][:, 1:] == batch["labels"][:, :-1]).all()
            seen += [ids.tobytes() + labels[-1:].tobytes() for ids, labels in zip(*batch.values(), strict=True)]
            whole += batch["labels"].sum()
        assert ranks[0].total(index, "labels") == ranks[1].total(index, "labels") == whole
    assert Counter(seen) <= rows
    assert len(seen) > rows.total() - 4
    again, other = (text.Rows(str(prepared), TINY, 2, 0, 2, seed)[0]["input_ids"] for seed in (5, 6))
    assert again.tobytes() == ranks[0][0]["input_ids"].tobytes() != other.tobytes()
    with pytest.raises(IndexError):
        ranks[0][len(ranks[0])]


def test_what_a_model_cannot_read_is_said(prepared, tmp_path):
    (few,) = text.check(str(prepared), TINY, 10**4)
    assert f"one global batch of 10000 rows of 32 needs {32 * 10**4 + 1}. Take a smaller batch" in few
    (narrow,) = text.check(str(prepared), TINY._replace(vocabulary=20))
    assert "words; the model has 20. Prepare with --vocab-size 20." in narrow
    (prepared / "tokens.npy").write_bytes((prepared / "tokens.npy").read_bytes()[:-4])
    (cut,) = text.check(str(prepared), TINY)
    assert "tokens.npy: is damaged or cut short" in cut
    with pytest.raises(ValueError, match="cut short"):
        text.Rows(str(prepared), TINY, 1, 0, 1, 1)
    (none,) = text.check(str(tmp_path / "none"), TINY)
    assert none.endswith("does not exist; allowed: a folder of prepared text. " + text.FOLDER.prepare + ".")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vocab-size", "70000"], "--vocab-size: '70000' is not usable; allowed: a whole number from 2 to 50257"),
        (["--vocab-size", "many"], "--vocab-size: 'many' is not usable"),
        (["--vocab-size", "10"], "--vocab-size: '10' is not usable; allowed: at least "),
        (["--tokenizer", "none.json"], "there is no such file"),
        (["--tokenizer", "{corpus}/a.txt"], "it is no tokenizer.json"),
        (["--tokenizer", "{corpus}/a.txt", "--vocab-size", "300"], "Leave out one of them"),
    ],
)
def test_wrong_options_are_said(words, says, corpus, tmp_path, capsys):
    assert prepare(corpus, tmp_path / "out", *(word.format(corpus=corpus) for word in words)) == 2
    told = capsys.readouterr().err
    assert says in told, told
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_text_is_said(tmp_path, capsys):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(gpt.END + "\n")
    assert prepare(tmp_path / "corpus", tmp_path / "out") == 2
    assert "it has no text" in capsys.readouterr().err


def test_gpt_is_planned_on_text_and_bert_is_not(prepared, tmp_path):
    words = ["-f", "pytorch,jax", "-p", "fp32", "--device", "cpu", "--env", "venv", "--dry-run", "-o", tmp_path / "c"]
    planned = call("compare", "-m", "gpt_tiny", "--data", prepared, *words)
    assert planned.returncode == 0, planned.stderr
    refused = call("compare", "-m", "bert_tiny", "--data", prepared, *words)
    assert refused.returncode == 2
    assert "format is 'dlperf-text'; allowed: 'dlperf-bert-pretraining'" in refused.stderr
