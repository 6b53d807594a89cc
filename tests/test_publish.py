"""A comparison is published whole, with report, archive and an entry of the list; or nothing is written."""

import json
import shutil

import pytest
from commands import FAKE, call

from dlperf import archive, publish
from dlperf.archive import tar
from dlperf.comparison import store
from dlperf.report import gate


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A small comparison: of a framework that sleeps, so nothing of it is proven."""
    out = tmp_path_factory.mktemp("publish") / "mine"
    assert call("compare", *FAKE, "-r", 1, "-o", out).returncode == 0
    return out


@pytest.fixture
def fit(monkeypatch):
    """Whatever it is, it meets the conditions."""
    monkeypatch.setattr(gate, "unmet", lambda comparison, changed=(): [])


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_does_not_meet_the_conditions_is_not_published(comparison, tmp_path):
    said = call("publish", comparison, tmp_path / "published")
    assert (said.returncode, said.stdout) == (1, "")
    *reasons, last = said.stderr.splitlines()
    assert last == (
        f"{comparison} is not published: it does not meet these conditions. --anyway publishes it, and says so in it."
    )
    assert "  proof: Fake, bert_tiny, fp32, 1 node, 1 device, batch 4 per device: no proof: " in said.stderr
    assert any(one.startswith("  protocol: A run times 6 steps, and a row has ") for one in reasons)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fit")
def test_report_archive_and_entry_are_there_and_fit_together(comparison, tmp_path):
    folder = tmp_path / "published"
    said = call("publish", comparison, folder)
    assert said.returncode == 0, said.stderr
    assert said.stdout == (
        f"Published: {folder}/mine/report.md and {folder}/mine/mine.dlperf.tar.gz, listed in {folder}/README.md\n"
    )
    made = files(folder)
    assert made.keys() == {
        "README.md",
        *(f"mine/{name}" for name in ("report.md", "report.html", "results.csv", "results.json")),
        "mine/charts/bert_tiny-fp32-cpu.svg",
        "mine/mine.dlperf.tar.gz",
    }
    assert archive.verify(folder / "mine" / "mine.dlperf.tar.gz") == []
    packed = tar.unpacked(folder / "mine" / "mine.dlperf.tar.gz")
    for name, data in made.items():
        inside = name.removeprefix("mine/")
        assert inside not in packed or packed[inside] == data
    assert made["README.md"].decode().startswith("# Published reports\n\n## [mine](mine/report.md)\n\nTraining ")
    assert "Published although" not in made["mine/report.md"].decode()
    for name in ("gpt2.md", "charts/old.svg", "old.dlperf.tar.gz", "against.md", "mine.dlperf.tar.gz.sig"):
        (folder / "mine" / name).write_text("x")
    said = call("publish", comparison, folder)  # the same comparison again
    assert said.returncode == 0
    assert said.stdout.count("Removed: ") == 3
    kept = {"mine/against.md": b"x", "mine/mine.dlperf.tar.gz.sig": b"x"}  # of the same bytes
    assert files(folder) == {**made, **kept}


def test_published_anyway_it_says_so_and_renders_to_the_same_bytes(comparison, tmp_path):
    said = call("publish", comparison, tmp_path, "--anyway", "--name", "other")
    assert said.returncode == 0, said.stderr
    mark = f"**Published although {gate.CONDITIONS['protocol']}, "
    assert mark in (tmp_path / "other" / "report.md").read_text()
    listed = (tmp_path / "README.md").read_text()
    assert "\n## Without all conditions\n\n" in listed
    assert f" no GPU. But {gate.CONDITIONS['protocol']}, " in listed
    assert call("publish", comparison, tmp_path, "--anyway", "--name", "another").returncode == 0
    assert (tmp_path / "README.md").read_text().count("## Without all conditions") == 1
    assert call("report", tmp_path / "other", tmp_path / "another", "-o", tmp_path / "listed").returncode == 0
    assert (tmp_path / "listed" / "README.md").read_text().count(mark) == 2
    assert archive.verify(tmp_path / "other" / "other.dlperf.tar.gz") == []
    assert call("report", tmp_path / "other" / "results.json", "-o", tmp_path / "again").returncode == 0
    for name in ("report.md", "report.html", "results.json", "results.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert store.open_folder(comparison).comparison.unmet == ()


def test_what_only_its_folder_told_stays_in_the_list(comparison, tmp_path, monkeypatch):
    """That records were changed is told by the folder of a comparison, and no more by what is published of it."""
    said = gate.Unmet("records", "A record was changed.")
    monkeypatch.setattr(gate, "unmet", lambda comparison, changed=None: [said] if changed is not None else [])
    assert call("publish", comparison, tmp_path, "--anyway", "--name", "one").returncode == 0
    assert call("publish", comparison, tmp_path, "--anyway", "--name", "two").returncode == 0
    listed = (tmp_path / "README.md").read_text()
    assert listed.count(f" But {gate.CONDITIONS['records']}.\n") == 2
    assert "\n## [" not in listed


@pytest.mark.usefixtures("fit")
def test_the_list_keeps_its_head_and_what_else_is_listed(comparison, tmp_path):
    (tmp_path / "README.md").write_text("# Ours\n\nRead this.\n")
    assert call("publish", comparison, tmp_path, "--name", "a").returncode == 0
    (tmp_path / "why").mkdir()
    (tmp_path / "why" / "why.json").write_text(json.dumps({"title": "Why", "summary": "since", "a": {}}))
    assert call("publish", comparison, tmp_path, "--name", "b").returncode == 0
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("# Ours\n\nRead this.\n\n## [b](b/report.md)\n")
    assert page.count("\n## [a](a/report.md)\n") == 1
    assert page.endswith("- **[Why](why/why.md)**: since\n")


@pytest.mark.usefixtures("fit")
def test_a_wrong_request_is_one_message_and_writes_nothing(comparison, tmp_path, monkeypatch):
    folder = tmp_path / "published"
    assert call("publish", comparison, folder).returncode == 0
    other = shutil.copytree(comparison, tmp_path / "other")
    told = json.loads((other / "comparison.json").read_text())
    (other / "comparison.json").write_text(json.dumps({**told, "created": "2026-01-01T00:00:00+00:00"}))
    (folder / "else").mkdir()
    (tmp_path / "file").write_text("")
    before = files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words, says in (
        ((other, folder, "--name", "mine"), f"NAME {folder}/mine: another comparison is there. Choose another --name."),
        ((other, folder, "--name", "else"), f"NAME {folder}/else: something else is there. Choose another --name."),
        ((comparison, folder, "--name", "../x"), "--name: '../x' is not usable; allowed: letters, digits and"),
        ((comparison, folder, "--name", ".x"), "--name: '.x' is not usable; allowed: letters, digits and"),
        ((comparison, folder, "--name", "README.md"), "--name: 'README.md' is not usable; allowed: letters, digits"),
        ((comparison, tmp_path / "file"), f"DIR {tmp_path}/file: this is no folder. Choose another."),
        ((comparison, comparison.parent), f"DIR {comparison.parent}: this is the comparison's own folder"),
        ((folder / "mine", tmp_path / "x"), f"RUN {folder}/mine: this is no folder with comparison.json."),
    ):
        said = call("publish", *words)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith(says)
        assert len(said.stderr.splitlines()) == 1
        assert files(tmp_path) == before


@pytest.mark.usefixtures("fit")
def test_a_list_that_would_lose_what_cannot_be_read_is_not_written(comparison, tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("results.json", "why.json"):
        (tmp_path / "old" / name).write_text("[")
        said = call("publish", comparison, tmp_path)
        assert said.returncode == 2
        assert said.stderr.startswith(f"{tmp_path}/old/{name}: not what dlperf wrote (")
        assert files(tmp_path) == {f"old/{name}": b"["}
        (tmp_path / "old" / name).unlink()


@pytest.mark.usefixtures("fit")
def test_what_makes_no_archive_is_not_published(comparison, tmp_path):
    broken = shutil.copytree(comparison, tmp_path / "mine")
    next(broken.glob("runs/*/0/events.rank0.jsonl")).unlink()
    said = call("publish", broken, tmp_path / "published")
    assert said.returncode == 1
    assert "makes no archive that verifies" in said.stderr
    assert files(tmp_path / "published") == {}


def test_records_that_were_edited_are_a_condition(comparison, tmp_path):
    edited = shutil.copytree(comparison, tmp_path / "mine")
    path = edited / "records.jsonl"
    path.write_text(path.read_text().replace('"repeat": 0', '"repeat": 1', 1))
    said = call("publish", edited, tmp_path / "published")
    assert said.returncode == 1
    assert "  records: " in said.stderr
    assert publish.LIST not in files(tmp_path)
