"""Preparing pairs of sentences for the Transformer, and reading them."""

import json
from collections import Counter

import numpy
import pytest
from commands import call

from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks
from dlperf.data import __main__ as command
from dlperf.models import batches, transformer, translation

TINY = transformer.SIZES["transformer_tiny"]
#: 120 pairs of a toy language, of 1 to 6 words; one with an empty line, one that is too long
SOURCE = [f"{'the cat saw ' * (number % 2)}dog {number % 10}" for number in range(120)] + ["dog", "", "the " * 20]
TARGET = [f"{'die Katze sah ' * (number % 2)}Hund {number % 10}" for number in range(120)] + ["Hund", "Katze", "Hund"]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "en").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(SOURCE).encode())
    (tmp_path / "de").write_text("\n".join(TARGET) + "\n")
    return tmp_path


def prepare(corpus, output, *words, target="de"):
    sides = ["--source", corpus / "en", "--target", corpus / target]
    return command.main([str(word) for word in ["translation", *sides, "--output", output, "--sequence", 16, *words]])


@pytest.fixture
def prepared(corpus):
    assert prepare(corpus, corpus / "out", "--quiet") == 0
    return corpus / "out"


def test_rows_are_pairs_one_behind_the_other(prepared):
    from tokenizers import Tokenizer

    arrays = {name: numpy.load(prepared / f"{name}.npy") for name in translation.FIELDS}
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    assert [tokenizer.token_to_id(one) for one in translation.SPECIAL] == [0, 1, 2]
    read = {"source": [], "labels": []}
    for name, lengths in (("source", "source_lengths"), ("labels", "lengths")):
        for row, length in zip(arrays[name], arrays[lengths], strict=True):
            assert (row[length:] == 0).all()
            assert (row[:length] != 0).all()
            assert row[length - 1] == 2
            ends = numpy.flatnonzero(row == 2)
            read[name] += [tokenizer.decode(list(part)) for part in numpy.split(row[:length], ends + 1)[:-1]]
    assert read["source"] == [*SOURCE[:121]]
    assert read["labels"] == [*TARGET[:121]]
    found = json.loads((prepared / "dataset.json").read_text())
    corpus = {"pairs": 121, "empty_pairs": 1, "long_pairs": 1}
    sums = {"source_tokens": int(arrays["source_lengths"].sum()), "target_tokens": int(arrays["lengths"].sum())}
    assert found["corpus"] == {**corpus, **sums}
    assert (found["rows"], 16) == arrays["source"].shape
    assert found["rows"] < 121 / 2
    assert found["vocabulary"] == tokenizer.get_vocab_size() <= 256


def test_the_same_text_gives_the_same_bytes(corpus, prepared):
    assert prepare(corpus, corpus / "again", "--quiet") == 0
    for file in prepared.iterdir():
        assert (corpus / "again" / file.name).read_bytes() == file.read_bytes()
    assert prepare(corpus, corpus / "given", "--tokenizer", prepared / "tokenizer.json", "--quiet") == 0
    assert (corpus / "given" / "labels.npy").read_bytes() == (prepared / "labels.npy").read_bytes()


def test_batches_are_as_synthetic_ones_are(prepared):
    made = transformer.batch(TINY, 4, 1, 0)
    read = translation.Rows(str(prepared), TINY, 4, 0, 1, seed=5)[0]
    assert {name: (one.shape, one.dtype) for name, one in read.items()} == {
        name: (one.shape, one.dtype) for name, one in made.items()
    }
    for batch in (made, read):
        inside = batch["target_weights"] == 1
        assert (batch["target"][:, 0] == 1).all()
        assert (batch["target"][:, 1:] == numpy.where(inside, batch["labels"], 0)[:, :-1])[inside[:, 1:]].all()
        assert not batch["labels"][~inside].any()
        assert not batch["target"][~inside].any()
        assert ((batch["source"] != 0).sum(1) == batch["source_lengths"]).all()


def test_what_is_counted_are_tokens_of_the_target_without_padding(prepared):
    job = Job("transformer_tiny", "cpu", "fp32", 3, input="native", data_dir=str(prepared), seed=5)
    ranks = [Ranks(rank=rank, world_size=2, local_rank=rank) for rank in range(2)]
    of_rank = [translation.Rows(str(prepared), TINY, 3, rank, 2, seed=5) for rank in range(2)]
    each = [int(sum(rows[index]["target_weights"].sum() for rows in of_rank)) for index in range(len(of_rank[0]))]
    counted = batches.counter(job, ranks[0])
    assert counted(0, 1) == each[0]
    assert counted(1, len(each) + 1) == sum(each) + each[1]
    assert counted(2, 3) == batches.counter(job, ranks[1])(2, 3)
    assert min(each) < max(each)
    assert batches.counter(job._replace(input="synthetic"), ranks[0])(7, 2) == 2 * 6 * TINY.tokens


def test_ranks_have_all_rows_once(prepared):
    rows = Counter(row.tobytes() for row in numpy.load(prepared / "labels.npy").astype("int32"))
    ranks = [translation.Rows(str(prepared), TINY, 2, rank, 2, seed=5) for rank in range(2)]
    seen = Counter(row.tobytes() for one in ranks for index in range(len(one)) for row in one[index]["labels"])
    assert seen <= rows
    assert seen.total() > rows.total() - 4


def test_what_a_model_cannot_read_is_said(prepared):
    (long,) = translation.check(str(prepared), TINY._replace(sequence=64))
    assert long.endswith("dataset.json: sequence is 16; the model needs 64. Prepare with --sequence 64.")
    (few,) = translation.check(str(prepared), TINY, 10**4)
    assert "one global batch needs 10000. Take a smaller batch" in few
    (narrow,) = translation.check(str(prepared), TINY._replace(vocabulary=20))
    assert "words; the model has 20. Prepare with --vocab-size 20." in narrow
    (prepared / "labels.npy").unlink()
    with pytest.raises(ValueError, match=r"labels\.npy: is missing\. Prepare a folder with `.* --source FILE --target"):
        translation.Rows(str(prepared), TINY, 1, 0, 1, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sequence", "32"], "--sequence: '32' is not usable; allowed: 16 or 64, which models read"),
        (["--vocab-size", "257"], "--vocab-size: '257' is not usable; allowed: a whole number from 4 to 256"),
        (["--vocab-size", "9"], "--vocab-size: '9' is not usable; allowed: at least "),
        (["--tokenizer", "none.json"], "there is no such file"),
        (["--tokenizer", "{corpus}/de"], "it is no tokenizer.json"),
        (["--tokenizer", "{corpus}/de", "--vocab-size", "200"], "Leave out one of them"),
        (["--target", "{corpus}/en"], "this is the source. Name its translation."),
        (["--target", "{corpus}/fr"], "there is no such file. Name a text file with a sentence on each line."),
        (["--target", "{corpus}"], "this is no file"),
        (["--target", "{corpus}/short"], "it has 2 lines, and --source "),
        (["--target", "{corpus}/latin"], "latin: not UTF-8: byte 1 is 0xe4"),
        (["--target", "{corpus}/long"], "no pair of sentences is left: 1 have an empty line, 122 more than 16 tokens."),
    ],
)
def test_wrong_options_are_said(words, says, corpus, capsys):
    (corpus / "short").write_text("Hund\nKatze")
    (corpus / "latin").write_bytes("k\u00e4se\n".encode("latin1") * 123)
    (corpus / "long").write_text(f"{'Katze ' * 17}\n" * 123)
    assert prepare(corpus, corpus / "out", *(word.format(corpus=corpus) for word in words)) == 2
    told = capsys.readouterr().err
    assert says in told, told
    assert not (corpus / "out").exists()


def test_what_was_made_is_told(corpus, capsys):
    assert prepare(corpus, corpus / "out") == 0
    told = capsys.readouterr().out
    assert "full, of 121 pairs of sentences; left out: 1 with an empty line, 1 too long; a vocabulary of" in told


def test_the_transformer_is_planned_on_pairs_and_gpt_is_not(prepared, tmp_path):
    words = ["-f", "pytorch,jax", "-p", "fp32", "--device", "cpu", "--env", "venv", "--dry-run", "-o", tmp_path / "c"]
    planned = call("compare", "-m", "transformer_tiny", "--data", prepared, *words)
    assert planned.returncode == 0, planned.stderr
    refused = call("compare", "-m", "gpt_tiny", "--data", prepared, *words)
    assert refused.returncode == 2
    assert "format is 'dlperf-translation'; allowed: 'dlperf-text'" in refused.stderr
