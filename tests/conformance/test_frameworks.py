"""The real command over every real framework, with tiny models."""

import json

import numpy
import pytest
from commands import records, run

from dlperf import models
from dlperf.adapters import cpu
from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.proof import judge
from dlperf.stored import proofs_from

pytestmark = pytest.mark.framework

REAL = [name for name, adapter in reader.adapters().items() if adapter.default]


@pytest.fixture(scope="module", params=[pytest.param("resnet_tiny,gpt_tiny", marks=pytest.mark.long), "bert_tiny"])
def comparison(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison") / "out"
    words = [
        "--model",
        request.param,
        "--precision",
        "fp32,amp",
        "--device",
        "cpu",
        "-r",
        1,
        "-o",
        folder,
    ]
    ended = run("compare", *words, timeout=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder, store.open_folder(folder)


@pytest.mark.parametrize("name", REAL)
def test_every_framework_has_figures_for_all_models_in_fp32(comparison, name):
    _, opened = comparison
    mine = [r for r in opened.records.values() if r.job.adapter == name and r.job.precision == "fp32"]
    assert [record.failure for record in mine] == [None] * len(mine)  # on some CPUs tuned ones are among them
    assert {one.job.model for one in mine if one.job.system == name} == {job.model for job in opened.plan.jobs}


def test_texts_count_by_their_tokens(comparison):
    _, opened = comparison
    for record in opened.records.values():
        for window in record.windows:
            assert window.samples == window.steps * record.job.batch_size * models.units(record.job.model)


def refused(adapter, families):
    """In bfloat16, in some of the families."""
    entries = [adapter.kernels_of(family, "cpu", "amp_bf16") for family in families]
    return any(cpu.refusal(one, cpu.flags()) for one in entries)


def test_amp_runs_or_says_why_not(comparison):
    """Which of them this CPU has kernels for is what the adapters' [[kernels]] tables say."""
    folder, opened = comparison
    amp = [record for record in opened.records.values() if record.job.precision == "amp_bf16"]
    assert [record.failure for record in amp] == [None] * len(amp)
    assert {record.effective["compute_dtype"] for record in amp} == {"bfloat16"}
    skips = {skip.adapter: skip for skip in opened.plan.skips}
    assert {record.job.adapter for record in amp} | set(skips) == set(REAL)
    adapters = reader.adapters()
    families = {job.family for job in opened.plan.jobs}
    lacking = {name for name in REAL if refused(adapters[name], families)}
    assert {name for name, skip in skips.items() if skip.status == "hardware"} == lacking

    report = (folder / "report.md").read_text()
    assert all(skip.why[:40] in report for skip in opened.plan.skips)


def test_every_row_has_its_proof(comparison):
    """In float64, and in its own precision: float32 by its losses, bfloat16 by its bound."""
    _, opened = comparison
    verdicts = {job.id: judge.verdict(opened.proofs[job.id]) for job in opened.plan.jobs}
    assert {word for word, _ in verdicts.values()} == {"same"}, verdicts
    assert all(len(certificates) == 2 for certificates in opened.proofs.values())


@pytest.mark.parametrize(
    ("option", "system", "key", "value"),
    [
        pytest.param(
            *("pytorch.linear=onednn", "pytorch+onednn-linear", "dense_layers", "torch.ops.mkldnn._linear_pointwise"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("oneflow.openblas=scipy", "oneflow+openblas-0.3.21", "openblas", "OpenBLAS 0.3.21"),
            marks=pytest.mark.long,
        ),
        ("paddle.mkl=avx2", "paddle+mkl-avx2", "libraries", "MKL_DEBUG_CPU_TYPE=5"),
    ],
)
def test_a_tuned_row_is_proven_and_says_what_it_has(option, system, key, value, tmp_path):
    """On any CPU, where it is asked for."""
    words = ["-f", f"{option.partition('.')[0]},jax", "-m", "bert_tiny", "-p", "fp32", "--device", "cpu", "-r", 1]
    ended = run("compare", *words, "--set", option, "-o", tmp_path / "out", timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    opened = store.open_folder(tmp_path / "out")
    found = {record.job.system: record for record in opened.records.values()}
    assert {name: record.failure for name, record in found.items()} == {system: None, "jax": None}
    assert value in found[system].effective[key]
    assert {judge.verdict(certificates)[0] for certificates in opened.proofs.values()} == {"same"}


def test_two_ranks_say_of_their_work_what_one_says(comparison, tmp_path):
    """What is read back from a program is found in that of several ranks too."""
    _, alone = comparison
    single = [one for one in alone.records.values() if one.job.precision == "fp32"]
    words = ["-m", ",".join(sorted({one.job.model for one in single})), "-p", "fp32", "--device", "cpu", "-r", 1]
    words += ["--nproc-per-node", 2, "--threads", 1, "--no-verify"]
    ended = run("compare", *words, "-o", tmp_path / "out", timeout=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    together = {(one.job.model, one.job.system): one.effective for one in records(tmp_path / "out") if one.done}
    assert {(one.job.model, name) for one in single for name in REAL} <= set(together)
    for one in single:
        of_network = models.family(one.job.model).EFFECTIVE
        two = together[one.job.model, one.job.system]
        assert {key: two[key] for key in of_network} == {key: one.effective[key] for key in of_network}


def test_rows_of_ranks_that_compress_hand_over_less(tmp_path):
    words = ["-f", "pytorch,mxnet", "-m", "resnet_tiny", "-p", "fp32", "--device", "cpu", "-r", 1, "--threads", 1]
    words += ["--nproc-per-node", 2, "--gradient-compression", "none,fp16,powersgd,2bit", "--no-verify"]
    ended = run("compare", *words, "-o", tmp_path / "out", timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    sent = {one.job.system: one.communication["gradient_bytes"] for one in records(tmp_path / "out") if one.done}
    assert set(sent) == {"mxnet", "mxnet+2bit", "pytorch", "pytorch+fp16-gradients", "pytorch+powersgd"}
    assert sent["mxnet"] == sent["pytorch"] == 2 * sent["pytorch+fp16-gradients"] == 16 * sent["mxnet+2bit"]
    assert 0 < sent["pytorch+powersgd"] < 0.5 * sent["pytorch"]


@pytest.mark.long
def test_all_six_do_the_same_work_in_the_full_networks(tmp_path):
    """ResNet-50 and BERT-base at full depth, ten steps in float64: every pair within the bars."""
    words = ["--model", "resnet50,bert", "--device", "cpu", "-o", tmp_path / "out"]
    ended = run("verify", *words, timeout=3000)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = proofs_from(json.loads((tmp_path / "out" / "certificates.json").read_text())["certificates"], older=True)
    certificates = [one for each in found.values() for one in each]
    assert {(one.trajectory.model, one.trajectory.adapter) for one in certificates} == {
        (model, name) for model in ("resnet50_check", "bert_base_check") for name in REAL
    }
    for one in certificates:
        assert {found.other for found in one.differences} == {"reference", *REAL} - {one.trajectory.adapter}
        for found in one.differences:
            assert found.loss < 1e-9
            assert found.change < 1e-7
            assert found.gradient is not None
            assert found.gradient < 1e-7
        assert one.trajectory.peak_memory_bytes < 12 * 2**30


PREPARE = {
    "bert_tiny": "bert --corpus {corpus} --vocab-size 120 --sequence 32 --masked 5",
    "gpt_tiny": "text --corpus {corpus} --vocab-size 120",
    "transformer_tiny": "translation --source {corpus}/text.txt --target {corpus}/other.txt --sequence 16",
    "word2vec_tiny": "words --corpus {corpus}",
    "simnet_bow_tiny": "queries --source {corpus}/queries.tsv --query 4 --title 6",
    "ctr_dnn": "clicks --source {corpus}/clicks.tsv",
}


@pytest.mark.parametrize("model", ["bert_tiny", *(pytest.param(one, marks=pytest.mark.long) for one in [*PREPARE][1:])])
def test_all_frameworks_train_on_prepared_rows(model, tmp_path):
    """`dlperf.data` makes the rows, `--data` trains on them: the first losses are close, so the rows are the same."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    sentences = "\n".join(
        f"the {a} {b} saw a {c}" for a in ("red", "old") for b in ("cat", "dog") for c in ("bird", "fish")
    )
    (corpus / "text.txt").write_text("\n\n".join([sentences] * 40))
    (corpus / "other.txt").write_text("\n\n".join([sentences.replace("saw a", "a")] * 40))
    random = numpy.random.RandomState(3)
    queries = [[[f"w{one}" for one in random.randint(600, size=most)] for most in (3, 6, 6)] for _ in range(2000)]
    (corpus / "queries.tsv").write_text("\n".join("\t".join(map(" ".join, texts)) for texts in queries))
    clicks = [[random.randint(2), *random.randint(99, size=39)] for _ in range(2000)]
    (corpus / "clicks.tsv").write_text("\n".join("\t".join(map(str, fields)) for fields in clicks))
    prepare = [one.format(corpus=corpus) for one in PREPARE[model].split()]
    assert run("data", *prepare, "--output", tmp_path / "rows", "--quiet").returncode == 0
    words = ["-m", model, "-p", "fp32", "--device", "cpu", "-r", 1, "--data", tmp_path / "rows"]
    ended = run("compare", *words, "-o", tmp_path / "out", timeout=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = records(tmp_path / "out")
    families = {name: adapter.families for name, adapter in reader.adapters().items()}
    training = {name for name in REAL if models.FAMILY_OF[model] in families[name]}
    assert {record.job.adapter for record in found if record.done} == training
    losses = [record.windows[0].loss for record in found]
    assert max(losses) - min(losses) < 0.2, losses
    (samples,) = {tuple(window.samples for window in record.windows) for record in found}
    assert samples
