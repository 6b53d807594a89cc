"""`--batch-size max`: the largest batch that a GPU's memory holds."""

import gpus
import pytest
from commands import call, records

from dlperf.comparison import largest
from dlperf.schema import Failure

ROW = (
    "--frameworks",
    "slept",
    "--env",
    "current",
    "--model",
    "bert_tiny",
    "--device",
    "cuda",
    "--no-verify",
    "--aa",
    0,
)
OFTEN = ("--protocol", "quick", "--repeats", 1, "--warmup-steps", 1, "--windows", 1, "--steps-per-window", 1)


@pytest.mark.parametrize(
    ("start", "memory", "tried", "found"),
    [
        (64, 700, [64, 128, 256, 512, 1024, 768, 640, 704, 672], 672),
        (64, 64, [64, 128, 96, 80, 72], 64),
        (64, 40, [64, 32, 48, 40], 40),
        (8, 3, [8, 4, 2], 2),
        (8, 1, [8, 4, 2, 1], 1),
        (4, 0, [4, 2, 1], 4),
        (20000, 10**9, [20000, 40000], 40000),
    ],
)
def test_the_search_comes_within_a_sixteenth_in_multiples_of_eight(start, memory, tried, found):
    seen = []

    def probe(size):
        seen.append(size)
        return Failure("out_of_memory", "") if size > memory else None

    assert largest.search(start, probe)[0] == found
    assert seen == tried


def test_another_failure_ends_the_search_and_is_told():
    def probe(size):
        return Failure("crash", "index too large") if size > 256 else None

    size, told = largest.search(64, probe)
    assert (size, told) == (256, "batch 256 is the largest that runs (4 probes); 512 fails: crash: index too large")
    assert largest.search(64, lambda size: Failure("crash", "x")) == (64, "batch 64 fails: crash: x")


@pytest.fixture
def slept(tmp_path, monkeypatch):
    """The framework that sleeps, on two GPUs."""
    gpus.install(tmp_path / "bin", monkeypatch, gpus.H200, gpus.H200.replace("GPU-11", "GPU-22"))
    gpus.adapter(tmp_path / "adapters", monkeypatch, sampled=False)


@pytest.mark.slow
def test_the_row_has_the_largest_batch_that_runs_and_resumes_with_it(tmp_path, slept):
    out = tmp_path / "out"
    words = ["--batch-size", "max", "--set", "memory=30", "--nproc-per-node", 2, "--aa", 1]
    assert call("compare", *ROW, *OFTEN, *words, "-o", out).returncode == 0
    made = records(out)
    assert [(one.job.batch_size, one.windows[0].samples) for one in made] == [(24, 48), (24, 48)], "the row, and again"
    assert "max" in made[0].job.id
    probes = sorted(int(folder.name) for folder in out.glob("probes/*/*"))
    page = (out / "report.md").read_text()
    assert f"batch 24 is the largest that runs ({len(probes)} probes); 32 runs out of memory" in page

    kept = (out / "records.jsonl").read_text().splitlines()[0]
    (out / "records.jsonl").write_text(kept + "\n")
    assert call("compare", "--resume", out).returncode == 0
    assert [one.job.batch_size for one in records(out)] == [24, 24]
    assert sorted(int(folder.name) for folder in out.glob("probes/*/*")) == probes, "none is made again"


def test_a_dry_run_says_that_it_will_probe(tmp_path, slept):
    printed = call("compare", *ROW, "--batch-size", "max", "--dry-run", "-o", tmp_path / "out").stdout
    assert "a process for each batch size that is tried: bert_tiny-fp32-slept-bmax from 32 on" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--device", "cpu"],
            "--batch-size max: it is found by running out of a GPU's memory; on a CPU other programs",
        ),
        (["--global-batch-size", 64], "--batch-size max: --global-batch-size 64 is given too"),
        (["--frameworks", "slept,ngc-pytorch"], "--batch-size max: dlperf cannot look for that of ngc-pytorch"),
    ],
)
def test_where_nobody_can_look_for_it_one_message_says_so(tmp_path, slept, words, says):
    ended = call("compare", *ROW, "--batch-size", "max", *words, "--dry-run", "-o", tmp_path / "out")
    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.count("--batch-size max") == 1
