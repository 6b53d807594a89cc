"""Imported figures are one folder: plan, records, results.csv and report take them; no line elsewhere names them."""

import csv
import re

import pytest
from commands import FAKE, call, records, run

from dlperf.catalog import reader
from dlperf.errors import UsageError
from dlperf.figures import rates

TOML = """\
title = "Toy Cluster"

[[imported]]
model = "resnet50"
device = "cuda"
precision = "amp_fp16"
batch_size = 8
nnodes = 2
nproc_per_node = 2
source = "https://example.invalid/toy, submission 3"
files = ["first.log", "second.log"]
differs = "images of 128 x 128"
effective = { layout = "NHWC", optimizer = "LARS" }
versions = { toy = "0.7" }

[imported.log]
line = 'step (?P<step>\\d+) loss (?P<loss>\\S+) (?P<seconds>\\S+) ms'
milliseconds = true

[[imported]]
model = "bert_base"
device = "cuda"
precision = "amp_fp16"
batch_size = 4
source = "A. N. Author, 2020, table 2"
rates = [410.5, 409.5, 411.5, 410.0]

[[imported]]
model = "bert_tiny"
device = "cpu"
precision = "fp32"
batch_size = 4
source = "a faster machine"
rates = [1e9]
"""
#: --protocol quick: 2 steps of warm-up, 3 windows of 2
NEEDED = 8
ASKED = ("-f", "toy", "-m", "resnet50,bert", "-p", "amp", "--device", "cuda", "--protocol", "quick")
SIZES = ("--nnodes", "1,2", "--nproc-per-node", "1,2")


def log(milliseconds):
    steps = enumerate(milliseconds)
    return "welcome\n" + "".join(f"step {step} loss 6.{step} {each} ms\n" for step, each in steps)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Steps of 40 ms and of 50 ms in the windows, slower ones before."""
    folder = tmp_path / "adapters" / "toy"
    folder.mkdir(parents=True)
    (folder / "adapter.toml").write_text(TOML)
    (folder / "first.log").write_text(log([900, 700] + [40] * 10))
    (folder / "second.log").write_text(log([900, 700] + [50] * 6))
    monkeypatch.setenv("DLPERF_ADAPTERS", str(folder.parent))
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def table(out):
    with open(out / "results.csv") as file:
        return {(row["model"], row["adapter"], row["repeat"]): row for row in csv.DictReader(file)}


def test_it_becomes_rows_with_their_source_in_a_table_of_their_own(toy, out):
    ended = run("compare", *ASKED, *SIZES, "-o", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {(record.job.model, record.repeat): record for record in records(out)}
    assert {of: rates.throughput(record) for of, record in found.items()} == {
        ("resnet50", 0): pytest.approx(32 / 0.04),
        ("resnet50", 1): pytest.approx(32 / 0.05),
        **{("bert_base", repeat): pytest.approx(rate) for repeat, rate in enumerate((410.5, 409.5, 411.5, 410.0))},
    }
    first = found["resnet50", 0]
    assert (first.job.kind, first.job.world_size, first.command, first.seconds) == ("imported", 4, "", 0.0)
    assert (first.environment["kind"], first.versions) == ("none", {"toy": "0.7"})
    assert (out / first.folder / "first.log").read_text() == (toy / "first.log").read_text()
    row = table(out)["resnet50", "toy", "0"]
    assert (row["origin"], row["proof"], row["launcher"]) == ("imported", "", "")
    assert row["figures_from"] == f"{first.folder}/first.log:4-9"
    for name, heading in [("report.md", "### Imported figures"), ("report.html", "<h3>Imported figures</h3>")]:
        page = (out / name).read_text()
        for said in (heading, "submission 3", "table 2", "images of 128 x 128", "LARS", "not of 1 x 2"):
            assert said in page, (name, said)
        assert "relative to fastest" not in page
    assert "is not finished" not in page


def test_beside_native_rows_it_is_not_ranked(toy, out):
    ended = call("compare", *FAKE, "--frameworks", "fake,toy", "-b", 4, "-r", 1, "-o", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {row["origin"] for row in table(out).values()} == {"native", "imported"}
    (row,) = (line for line in ended.stdout.splitlines() if line.startswith("Toy Cluster "))
    assert row.split()[-2:] == ["1,000,000,000", "–"], "as the report has it"
    ranking, _, apart = (out / "report.md").read_text().partition("### Imported figures")
    tables = re.findall(r"\| relative to fastest \|.*?\n\n", ranking, re.DOTALL)
    assert len(tables) == 2, "in brief, and in full"
    assert not [table for table in tables if "| Toy Cluster |" in table]
    assert "| Toy Cluster |" in apart
    assert "a faster machine" in apart


def test_the_plan_says_that_nothing_is_run(toy, out):
    ended = call("compare", *ASKED, *SIZES, "--dry-run=full", "-o", out)
    assert sum(line.endswith(": nothing is run") for line in ended.stdout.splitlines()) == 6, ended.stderr
    assert "launch.sh" not in ended.stdout
    assert not out.exists()


def test_a_log_without_figures_is_a_failed_run_that_says_why(toy, out):
    files = {
        "binary.log": b"\xff\x00\n",
        "short.log": log([40] * (NEEDED - 1)).encode(),
        "still.log": log([0] * NEEDED).encode(),
    }
    for name, content in files.items():
        (toy / name).write_bytes(content)
    names = ["first.log", "missing.log", *files]
    (toy / "adapter.toml").write_text(TOML.replace('["first.log", "second.log"]', str(names)))
    ended = call("compare", *ASKED, "--nnodes", 2, "--nproc-per-node", 2, "-o", out)
    assert ended.returncode == 0, ended.stderr
    found = {names[record.repeat]: record.failure for record in records(out)}
    assert found.pop("first.log") is None
    assert {failure.kind for failure in found.values()} == {"no_figures"}
    assert found["missing.log"].message.endswith("missing.log cannot be read: No such file or directory")
    assert found["binary.log"].message.startswith("no line of binary.log is of the form")
    assert found["short.log"].message.endswith(f"(short.log:8); the protocol needs {NEEDED}")
    assert found["still.log"].message == "no time passes in still.log:4-5"
    assert "4 of 5 runs failed" in (out / "report.md").read_text()


def wrong(toy, toml):
    """What is said of each key."""
    (toy / "adapter.toml").write_text(toml)
    with pytest.raises(UsageError) as caught:
        reader.read(toy)
    return {problem.field.rpartition(": ")[2]: str(problem) for problem in caught.value.problems}


def test_all_that_is_wrong_with_its_file_is_named(toy):
    start, of = 'title = "x"\n[[imported]]\n', 'precision = "fp32"\nbatch_size = 8\nsource = "x"\n'
    said = wrong(toy, 'distribution = "toy"\n' + start + 'model = 5\nsauce = "x"\nfiles = []\nrates = [0]\n')
    missing = ("device", "precision", "batch_size", "source")
    named = {f"imported[0].{name}" for name in ("model", "sauce", "files", "rates[0]", *missing)}
    assert {"distribution", *named} <= set(said), said
    of_size = 'model = "resnet50"\ndevice = "cuda"\nrates = [1]\n' + of
    said = wrong(
        toy,
        start + 'model = "resnet5"\ndevice = "tpu"\nfiles = "a.log"\nrates = [1]\n' + of
        + '[imported.log]\nline = "step"\n' + 2 * ("[[imported]]\n" + of_size),
    )  # fmt: skip
    named = {f"imported[0].{name}" for name in ("model", "device", "files", "log.line")}
    assert {"imported[2]", *named} == set(said), said
    assert said["imported[0].files"].endswith("give files and a table log, or else rates.")
    assert "another one is of the same model and size" in said["imported[2]"]
    assert wrong(toy, 'title = "x"\n[imported]\nmodel = "resnet50"\n')["imported"].endswith("allowed: a list.")


def test_there_is_nothing_to_verify(toy):
    ended = call("verify", "-f", "toy", "--device", "cuda")
    assert ended.returncode == 2
    assert "--frameworks toy: they hand out no tensors" in ended.stderr
