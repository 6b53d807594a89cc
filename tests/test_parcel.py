"""A comparison's folder through a log, whole, in part, cut, or damaged."""

import random

import pytest

from dlperf import parcel

SMALL = {
    "allocation/jobs.jsonl": b"{}\n",
    "comparison.json": b"{}",
    "records.jsonl": b"1\n2\n",
    "charts/a b.svg": b"<svg/>",
    "report.md": b"# r\n",
}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "there"
    for name, content in {**SMALL, "lock": b"", "allocation/x.log": b"x", "runs/a/0/job.json": b"{}"}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    return made


def noise(size):
    """What cannot be packed."""
    return random.Random(7).randbytes(size)


def back(log, tmp_path):
    """What is wanting, and the files that came."""
    here = tmp_path / "here"
    here.mkdir()
    _, results = parcel.split(log)
    wanting = parcel.unpack(results, here)
    return wanting, {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_was_behind_what_was_printed(folder, tmp_path):
    log = f"Report: x\n{parcel.printed(folder)}"
    assert parcel.split(log)[0] == "Report: x\n"
    assert back(log, tmp_path) == ("", {**SMALL, "runs/a/0/job.json": b"{}"})


def test_lines_are_shorter_than_what_runtimes_split(folder):
    (folder / "records.jsonl").write_bytes(noise(100_000))
    lines = parcel.printed(folder).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= parcel.LINE


def test_runs_of_a_large_one_stay(folder, tmp_path):
    (folder / "runs" / "large").write_bytes(noise(parcel.MOST))
    wanting, files = back(parcel.printed(folder), tmp_path)
    assert (wanting, files) == ("Its runs/, code/ did not come back", SMALL)


def test_one_that_is_too_large_stays(folder, tmp_path):
    (folder / "records.jsonl").write_bytes(noise(parcel.MOST))
    wanting, files = back(parcel.printed(folder), tmp_path)
    assert wanting.startswith("Its results are too large for a log, with 4,19")
    assert not files


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: text[: len(text) // 2], "did not come back"),
        (lambda text: text[len(text) // 2 :], "came back damaged (ValueError: 0 of "),
        (lambda text: text[:100] + text[104:], "came back damaged"),
        (lambda text: text[:100] + ("B" if text[100] != "B" else "C") + text[101:], "came back damaged"),
        (lambda text: text.replace("\n", "\n!", 1), "came back damaged"),
        (lambda text: "", "did not come back"),
    ],
)
def test_damage_is_told_and_nothing_is_written(folder, tmp_path, damage, says):
    (folder / "records.jsonl").write_bytes(noise(1000))
    wanting, files = back(damage(parcel.printed(folder)), tmp_path)
    assert says in wanting
    assert not files


def test_a_folder_without_a_comparison_sends_nothing(tmp_path):
    assert parcel.printed(tmp_path) == ""
