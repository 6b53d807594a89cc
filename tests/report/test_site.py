"""`dlperf site`: pages over many reports, read as a browser would, and what they are made of."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from colours import contrast
from places import ROOT

from dlperf import processes, report, site
from dlperf.archive import check, tar
from dlperf.archive.check import Checked
from dlperf.comparison import store
from dlperf.figures import standings
from dlperf.report import charts

PUBLISHED = ROOT / "report" / "published"
BERT = PUBLISHED / "2026-11-27-h200-fp16-bert"
TABLES = PUBLISHED / "dlperf-v1.0"
HOSTILE = "<b>&amp;\"'</b>\x1b[31m"


def publish(
    folder: Path, name: str, created: str, factor: float = 1.0, archive: str = "", **changes: Mapping[str, str]
) -> Path:
    """Our report of BERT on an H200 as if it had been made then, at `factor` times its rates. changes: of texts of the
    rows of a system."""
    data = json.loads((BERT / "results.json").read_text(encoding="utf-8"))
    data["created"] = created
    for record in data["records"]:
        for window in record["windows"]:
            window["seconds"] /= factor
    for job in (*data["jobs"], *(record["job"] for record in data["records"])):
        job.update(changes.get(job["adapter"], {}))
    place = folder / name
    shutil.copytree(BERT, place)
    (place / "results.json").write_text(json.dumps(data), encoding="utf-8")
    if archive:
        pack(place / f"{name}.dlperf.tar.gz", archive, (place / "results.json").read_bytes())
    return place


def pack(file: Path, word: str, results: bytes) -> None:
    """An archive as far as the site looks into it itself."""
    file.write_bytes(tar.packed("a", {"results.json": results, word: b""}))


def history(folder: Path) -> Path:
    """Three reports of one machine on two days, and DLPerf's tables."""
    folder.mkdir()
    publish(folder, "old", "2026-10-02T08:00:00+00:00", 0.8, "broken")
    publish(folder, "new", "2026-11-27T09:00:00+00:00", 1.0, "whole")
    publish(folder, "bare", "2026-11-27T07:00:00+00:00", 0.9)
    (folder / TABLES.name).mkdir()
    for name in ("figures.csv", "source.toml"):
        shutil.copy(TABLES / name, folder / TABLES.name)
    return folder


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts of what others published take seconds, and are tested apart."""
    monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")
    monkeypatch.setattr(processes, "cpus", lambda: 1)


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives that say themselves whether they verify."""

    def checked(path: Path, render: bool = True) -> Checked:
        assert not render, "it takes seconds"
        files = tar.unpacked(path)
        problems = ("launch.sh is not as MANIFEST.sha256 has it.", "More.") if "broken" in files else ()
        return Checked(problems, comparison=store.results(files["results.json"], "results.json"))

    monkeypatch.setattr(check, "check", checked)


class Read(HTMLParser):
    """A page: ids, links, the rows of its tables (class and cells), and what is wrong with its tables."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.captions: list[str] = []
        self.rows: list[tuple[str, list[str]]] = []
        self.text = ""
        self._open: list[str] | None = None
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]
        assert tag != "th" or found["scope"] in ("row", "col")
        if tag == "tr":
            self.rows.append((found.get("class", ""), []))
        if tag == "caption":
            self.captions.append("")
            self._open = self.captions
        if tag in ("td", "th"):
            self._open = self.rows[-1][1]
            self._open.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "caption"):
            self._open = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open is not None:
            self._open[-1] += data


def pages(out: Path) -> dict[str, Read]:
    """Those that are the site's own."""
    names = json.loads((out / site.MARKER).read_text())
    return {name: Read(out / name) for name in names if name.endswith(".html") and not name.startswith("reports/")}


def made(folder: Path, out: Path) -> dict[str, Read]:
    assert site.main([str(folder), "-o", str(out)]) == 0
    return pages(out)


def broken_links(out: Path, read: Mapping[str, Read]) -> Iterable[str]:
    """Links of pages that lead to no file, or no place in it."""
    for name, page in read.items():
        for link in page.links:
            file, anchor = urldefrag(link)
            target = (out / name).parent / unquote(file) if file else out / name
            there = target.is_file()
            if not there or (anchor and f'id="{anchor}"' not in target.read_text(encoding="utf-8")):
                yield f"{name}: {link}"


@pytest.mark.usefixtures("archives")
def test_the_newest_table_has_its_report_and_archive(tmp_path: Path) -> None:
    index = made(history(tmp_path / "in"), tmp_path / "out")["index.html"]
    head, first, second = index.rows[:3]
    assert index.captions[0] == (
        "2026-11-27, 1 × NVIDIA H200: 1 node, 1 device, batch 64 per device; the newest of 3 such tables"
    )
    assert head[1] == [
        *("system", "sentences/s", "95 % interval", "relative to fastest", "95 % interval", "rank", "n"),
        *("proof", "archive"),
    ]
    proof = "same work: 6e-16 (fp64 of another kernel), 0.48 of its bound (fp16)"
    assert first == (
        "fastest",
        ["PyTorch+inductor", "4,233.6", "[4,227.6, 4,239.6]", "1", "–", "1", "2", proof, "verified"],
    )
    assert (second[0], second[1][:2], second[1][-1]) == ("", ["JAX", "3,841.4"], "verified")
    for link in ("reports/new/report.html#bert_base-amp-cuda", "reports/new/new.dlperf.tar.gz"):
        assert index.links.count(link) >= 2


@pytest.mark.usefixtures("archives")
def test_an_archive_that_is_missing_or_does_not_verify_makes_rows_grey(tmp_path: Path) -> None:
    page = made(history(tmp_path / "in"), tmp_path / "out")["systems/pytorch.html"]
    told = [(kind, cells[0], cells[-2], cells[-1]) for kind, cells in page.rows if "PyTorch+inductor" in cells]
    assert told == [
        ("", "2026-11-27", "new", "verified"),
        ("quiet", "2026-11-27", "bare", "no archive"),
        (
            *("quiet", "2026-10-02", "old"),
            "does not verify: launch.sh is not as MANIFEST.sha256 has it. More.",
        ),
    ]
    assert "reports/old/old.dlperf.tar.gz" in {link.removeprefix("../") for link in page.links}


def test_processes_make_the_same_site_and_find_the_same_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real archives, of which one has a changed byte in a file, and what others published."""
    folder = tmp_path / "in"
    for name in ("2026-11-27-cpu-amp", "2026-11-27-cpu-fp32"):
        shutil.copytree(PUBLISHED / name, folder / name)
    shutil.copytree(PUBLISHED / "mlperf-training-v3.1", folder / "mlperf")
    (folder / "bad").mkdir()
    (folder / "bad" / "figures.csv").write_text("no,figures\n")
    (packed,) = (folder / "2026-11-27-cpu-amp").glob(f"*{tar.SUFFIX}")
    files = tar.unpacked(packed)
    (events, *_) = (name for name in files if name.endswith("events.rank0.jsonl") and name.startswith("runs/"))
    files[events] = files[events].replace(b'"samples": ', b'"samples": 1', 1)
    packed.write_bytes(tar.packed("a", {name: data for name, data in files.items() if name != tar.MANIFEST}))
    alone = made(folder, tmp_path / "alone")
    monkeypatch.setattr(processes, "cpus", lambda: 2)
    monkeypatch.setattr(site, "MUCH", 0)
    started = []
    pool = processes.ProcessPoolExecutor
    monkeypatch.setattr(processes, "ProcessPoolExecutor", lambda *given: started.append(given[0]) or pool(*given))
    assert made(folder, tmp_path / "both").keys() == alone.keys()
    assert started == [2]
    read = [
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for out in (tmp_path / "alone", tmp_path / "both")
    ]
    page = Path("reports/mlperf/report.html")
    assert read[0].pop(page).partition(b"<svg")[0] == read[1].pop(page).partition(b"<svg")[0], "drawn for real"
    assert read[0] == read[1]
    (grey,) = {cells[-1] for kind, cells in alone["index.html"].rows if "does not verify" in cells[-1]}
    assert events.rpartition("/")[0] in grey
    assert all("quiet" in kind for kind, cells in alone["index.html"].rows if cells[-1:] == [grey])
    assert any(cells[-1] == "verified" for _, cells in alone["index.html"].rows if cells)


@pytest.mark.usefixtures("archives")
def test_an_archive_of_another_report_does_not_verify_this_one(tmp_path: Path) -> None:
    folder = history(tmp_path / "in")
    mine, other = ((folder / name / "results.json").read_bytes() for name in ("new", "old"))
    again = json.dumps({**json.loads(mine), "later": "key"}).encode()
    for results, says in (
        (mine, "verified"),
        (again, "verified"),
        (other, "does not verify: It is the archive of another comparison"),
    ):
        pack(folder / "new" / "new.dlperf.tar.gz", "whole", results)
        index = made(folder, tmp_path / "out")["index.html"]
        assert index.rows[1][1][-1].startswith(says)


@pytest.mark.usefixtures("archives")
def test_of_several_archives_the_last_counts_and_its_signature_goes_with_it(tmp_path: Path) -> None:
    folder = history(tmp_path / "in")
    new = folder / "new"
    pack(new / "new-2.dlperf.tar.gz", "broken", (new / "results.json").read_bytes())
    (new / "new.dlperf.tar.gz.sig").write_text("signed")
    index = made(folder, tmp_path / "out")["index.html"]
    assert index.rows[1][1][-1] == "verified"  # "-" stands before "."
    assert {path.name for path in (tmp_path / "out" / "reports" / "new").glob("*.tar.gz*")} == {
        "new.dlperf.tar.gz",
        "new.dlperf.tar.gz.sig",
    }


@pytest.mark.usefixtures("archives")
def test_what_a_machine_measured_stands_under_its_title(tmp_path: Path) -> None:
    page = made(history(tmp_path / "in"), tmp_path / "out")["machines/1-nvidia-h200.html"]
    titles = next(cells for _, cells in page.rows if cells[0] == "system")
    row = dict(zip(titles, next(cells for _, cells in page.rows if cells[0] == "JAX"), strict=True))
    assert row["size"] == "1 node, 1 device, batch 64 per device"
    assert re.fullmatch(r"[\d,.]+", row["sentences/s"])
    assert row["95 % interval"].startswith("[")
    assert row["proof"].startswith("same work")


@pytest.mark.usefixtures("archives")
def test_pages_are_sound_and_need_nothing_from_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    read = made(history(tmp_path / "in"), out)
    assert set(read) == {
        "index.html",
        *(f"systems/{name}.html" for name in ("jax", "mxnet", "oneflow", "paddle", "pytorch", "tensorflow")),
        *("machines/1-nvidia-h200.html", "machines/v100-sxm2-16gb-8-in-a-node.html", "published/dlperf-2020.html"),
    }
    assert not list(broken_links(out, read))
    for name, page in read.items():
        assert len(set(page.ids)) == len(page.ids), name
        assert not [link for link in page.links if re.match("[a-z]+:|/", link)], name
        assert page.tags["table"] == page.tags["caption"], name
        assert (page.links[1], page.tags["main"], page.tags["h1"], page.tags["script"]) == ("#main", 1, 1, 0), name
    assert (out / ".nojekyll").read_bytes() == b""
    assert "url(" not in (out / "style.css").read_text()
    assert (out / "reports" / "new" / "charts" / "bert_base-amp-cuda.svg").is_file()


def test_published_reports_make_a_site_without_broken_links(tmp_path: Path) -> None:
    read = made(PUBLISHED, tmp_path / "out")
    assert not list(broken_links(tmp_path / "out", read))
    listed = {cells[0]: cells[-1] for _, cells in read["index.html"].rows}
    packed = {path.parent.name for path in PUBLISHED.glob(f"*/*{tar.SUFFIX}")}
    assert packed
    for name in {path.parent.name for path in PUBLISHED.glob("*/results.json")}:
        assert listed[name] == ("verified" if name in packed else "no archive")
    assert "Why steps differ" in read["index.html"].text


def test_charts_have_the_rates_of_two_days_and_their_intervals(tmp_path: Path) -> None:
    out = tmp_path / "out"
    read = made(history(tmp_path / "in"), out)
    assert {name for name, page in read.items() if page.tags["svg"]} == {"systems/jax.html", "systems/pytorch.html"}
    for name, colour in (("jax", charts.FRAMEWORKS["jax"]), ("pytorch", charts.FRAMEWORKS["pytorch"])):
        (drawn,) = re.findall("<svg.*?</svg>", (out / f"systems/{name}.html").read_text(), re.DOTALL)
        assert f'stroke="{colour}"' in drawn
        assert "JAX" in drawn or "PyTorch+inductor" in drawn
        ((zero, *_),) = [re.findall(r'class="grid" d="M64 ([\d.]+)H', drawn)]
        points = [tuple(map(float, one.split(","))) for one in re.findall('points="(.*?)"', drawn)[0].split()]
        heights = [float(zero) - y for _, y in points]
        assert heights == pytest.approx([heights[-1] * factor for factor in (0.8, 0.9, 1.0)], abs=0.2)
        assert points[0][0] < points[1][0] <= points[2][0]
        spans = re.findall(r'<path d="M[\d.]+ ([\d.]+)V([\d.]+)m', drawn)
        for (low, high), (_, y) in zip(spans, points, strict=True):
            assert float(high) <= y <= float(low)
        assert "0.8" not in drawn, "rates are not shares"


def test_what_dlperf_published_is_marked_and_apart(tmp_path: Path) -> None:
    read = made(history(tmp_path / "in"), tmp_path / "out")
    page = read["published/dlperf-2020.html"]
    assert "published by DLPerf, not measured by dlperf" in page.text
    rows = [(kind, cells) for kind, cells in page.rows if cells[0] != "system"]
    assert len(rows) == 41
    assert rows[0] == (
        "quiet",
        [
            *("OneFlow", "397.64", "3,130.34", "6,260.30", "12,411.97"),
            "cuDNN's algorithms are searched by heuristic on several nodes only",
        ],
    )
    told = [cells for _, cells in read["systems/tensorflow.html"].rows if "NGC TensorFlow 1.x XLA" in cells]
    assert len(told) == 4 * 3
    for cells in told:
        assert (cells[0], *cells[3:7]) == ("2020-10", *"––––")
        assert cells[-1] == "published by DLPerf, not measured by dlperf"


def test_the_same_reports_give_the_same_bytes(tmp_path: Path) -> None:
    folder = history(tmp_path / "in")
    for name in ("one", "two"):
        made(folder, tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) == 34
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    before = {file: (tmp_path / "one" / file).read_bytes() for file in files}
    made(folder, tmp_path / "one")
    assert {file: (tmp_path / "one" / file).read_bytes() for file in files} == before


def test_hostile_texts_and_names_are_only_text(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    name = "a b#c?<i>%41"
    publish(folder, name, HOSTILE, archive="x", jax={"system": HOSTILE, "adapter": HOSTILE, "title": HOSTILE})
    later = publish(folder, "later", "2026-11-28T09:00:00+00:00", jax={"model": f"../../{HOSTILE}"})
    report.write(store.read(later)[0], later)
    read = made(folder, out)
    assert not list(broken_links(out, read))
    for page in read.values():
        assert not page.tags["b"]
        assert not page.tags["i"]
        assert "\x1b" not in page.text
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"machines", "reports", "systems"}
    assert "<b>&amp;\"'</b>" in read["index.html"].text


def test_work_does_not_grow_beyond_one_reading_of_each_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks take the longest: they are found of the newest table alone. Nothing is drawn by matplotlib."""
    folder, done = tmp_path / "in", Counter[str]()
    folder.mkdir()
    for number in range(30):
        publish(folder, f"report-{number:02}", f"2026-10-{number + 1:02}T00:00:00+00:00")

    def counted(where: Any, name: str) -> None:
        kept = getattr(where, name)

        def count(*given: Any) -> Any:
            done[name] += 1
            return kept(*given)

        monkeypatch.setattr(where, name, count)

    for where, name in (
        (store, "results"),
        (standings, "standings"),
        (standings, "obstacles"),
        (charts, "svg"),
        (charts, "_drawn"),
    ):
        counted(where, name)
    made(folder, tmp_path / "out")
    assert done == {"results": 30, "standings": 1, "obstacles": 91}, "which `once` keeps"


# What is wrong


def refused(folder: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that says why there is no site."""
    capsys.readouterr()
    assert site.main([str(folder), "-o", str(out)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err.splitlines()[-1]


def test_a_folder_without_a_report_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in" / "other").mkdir(parents=True)
    assert "no report in it can be read" in refused(tmp_path / "in", tmp_path / "out", capsys)
    assert "cannot be read: No such file" in refused(tmp_path / "nowhere", tmp_path / "out", capsys)
    assert "cannot be read: Not a directory" in refused(TABLES / "figures.csv", tmp_path / "out", capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 2}', '{"schema": 1}', "\xff", ""])
def test_results_that_do_not_read_are_named_and_the_others_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    folder = history(tmp_path / "in")
    (folder / "old" / "results.json").write_bytes(content.encode("latin-1"))
    index = made(folder, tmp_path / "out")["index.html"]
    assert f"{folder / 'old'} is not in the site: results.json: " in capsys.readouterr().err
    (told,) = re.findall("old: results.json: (.+)", index.text)
    assert "not what dlperf wrote" in told or "reads schema 1" in told
    assert str(tmp_path) not in index.text
    assert not (tmp_path / "out" / "reports" / "old").exists()
    shutil.rmtree(folder / "new")
    shutil.rmtree(folder / "bare")
    assert "no report in it can be read" in refused(folder, tmp_path / "more", capsys)


def test_two_reports_of_one_name_or_one_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = history(tmp_path / "in")
    shutil.copytree(folder / "new", folder / "other")
    index = made(folder, tmp_path / "out")["index.html"]
    assert "other: its results.json is that of new, so it would count twice. Remove one." in index.text
    assert "the newest of 3 such tables" in index.captions[0]
    publish(folder, "NEW", "2026-11-29T09:00:00+00:00")
    assert "two reports have one name, but for capitals: NEW and new" in refused(folder, tmp_path / "out", capsys)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: "", "line 1: its columns are ''"),
        (lambda told: told.partition("\n")[0], "not DLPerf's tables as dlperf has them (ValueError: it has no rates)"),
        (lambda told: told.replace("OneFlow", "Caffe"), "system is 'Caffe', which names no framework"),
        (lambda told: told.replace("397.64", "-"), "a rate is -"),
    ],
)
def test_tables_that_are_not_dlperfs_are_named(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    folder = history(tmp_path / "in")
    file = folder / TABLES.name / "figures.csv"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    read = made(folder, tmp_path / "out")
    assert "published/dlperf-2020.html" not in read
    assert f"dlperf-v1.0: {says}" in re.sub(
        r"(?<=: )not DLPerf's tables.*?Error: (?!it has)", "", read["index.html"].text
    )


def test_what_others_published_has_a_page_and_is_listed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    index = made(history(tmp_path / "in"), out)["index.html"]
    assert "reports/dlperf-v1.0/report.html" in index.links
    assert "DLPerf Benchmark Test Report V1.0: OneFlow Inc., 2020-10" in index.text
    page = Read(out / "reports" / "dlperf-v1.0" / "report.html")
    assert [link for link in page.links if "://" not in link and link[0] != "#"] == ["figures.csv", "figures.json"]
    assert {f"#{name}" for name in page.ids} >= {link for link in page.links if link[0] == "#"}
    assert {path.name for path in (out / "reports" / "dlperf-v1.0").iterdir()} == {
        *("figures.csv", "figures.json", "report.html", "source.toml")
    }


def test_links_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, secret = history(tmp_path / "in"), tmp_path / "secret"
    secret.mkdir()
    (secret / "x.svg").write_text("secret")
    (folder / "link").symlink_to(folder / "new")
    (folder / "bare" / "notes.md").symlink_to(secret / "x.svg")
    shutil.rmtree(folder / "bare" / "charts")
    (folder / "bare" / "charts").symlink_to(secret)
    index = made(folder, tmp_path / "out")["index.html"]
    assert "link: it is a link, and none is followed" in index.text
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.read_bytes() == b"secret"]


def test_a_report_without_its_page_leads_to_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = history(tmp_path / "in")
    (folder / "new" / "report.html").unlink()
    read = made(folder, tmp_path / "out")
    assert not list(broken_links(tmp_path / "out", read))
    assert "reports/new/results.json" in read["index.html"].links
    assert f"{folder / 'new'} has no report.html; `python -m dlperf.report" in capsys.readouterr().err


def test_files_of_others_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = history(tmp_path / "in"), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    assert "holds files that dlperf.site did not write" in refused(folder, out, capsys)
    assert "this is a file" in refused(folder, out / "mine", capsys)
    assert "holds files" in refused(folder, folder, capsys)
    assert [path.name for path in out.iterdir()] == ["mine"]
    (out / "mine").unlink()
    made(folder, out)
    (out / "CNAME").write_text("example.invalid")
    (out / "reports" / "bare" / "mine").write_text("mine")
    shutil.rmtree(folder / "bare")
    shutil.rmtree(folder / "old")
    made(folder, out)
    assert (out / "CNAME").read_text() == "example.invalid"
    assert [path.name for path in (out / "reports" / "bare").iterdir()] == ["mine"]
    assert not (out / "reports" / "old").exists()
    shutil.rmtree(out / "reports")
    (out / "reports" / "later").mkdir(parents=True)
    (out / "reports" / "later" / "report.html").write_text("mine")
    publish(folder, "later", "2026-11-29T09:00:00+00:00")
    assert "reports/later/report.html in it was not written by dlperf.site" in refused(folder, out, capsys)
    assert (out / "reports" / "later" / "report.html").read_text() == "mine"


def test_a_list_that_is_not_ours_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = history(tmp_path / "in"), tmp_path / "out"
    made(folder, out)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "mine").write_text("mine")
    (out / "away").symlink_to(tmp_path / "away")
    marker = out / site.MARKER
    listed = json.loads(marker.read_text())
    marker.write_text(json.dumps([*listed, "../mine", str(tmp_path / "mine"), ""]))
    made(folder, out)
    assert (tmp_path / "mine").read_text() == "mine"
    marker.write_text(json.dumps([*listed, "away/mine"]))
    assert "away/mine in it is behind a link" in refused(folder, out, capsys)
    assert (tmp_path / "away" / "mine").read_text() == "mine"
    for content in ("{", "3", "[3]"):
        marker.write_text(content)
        assert f"its {site.MARKER} is damaged" in refused(folder, out, capsys)


def test_a_site_that_was_written_in_part_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out, copied = history(tmp_path / "in"), tmp_path / "out", shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if target.name == "results.csv":
            raise OSError(28, "No space left on device", str(target))
        copied(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        assert site.main([str(folder), "-o", str(out)]) == 1
    assert capsys.readouterr().err.endswith("results.csv: No space left on device.\n")
    assert not list(broken_links(out, made(folder, out)))


# How it looks


def test_texts_stand_out_from_what_they_are_on(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    publish(folder, "new", "2026-11-27T09:00:00+00:00")
    made(folder, tmp_path / "out")
    style = (tmp_path / "out" / "style.css").read_text()
    dark = "\n".join(re.findall(r"prefers-color-scheme: dark\) \{\n(.*?)\n\}", style, re.DOTALL))
    light = re.sub(r"@media.*?\n\}", "", style, flags=re.DOTALL)
    for part, ground in ((light, "#ffffff"), (dark, "#161616")):
        found = set(re.findall(r"(?:(?<![-\w])(?:color|fill)|--ink|--quiet): (#[0-9a-f]+)", part))
        assert len(found) >= 3
        for colour in found:
            assert contrast(colour, ground) >= 4.5, colour


def test_what_its_entry_could_not_lead_to_and_a_folder_in_place_of_results_are_named(tmp_path):
    (tmp_path / "why").mkdir()
    (tmp_path / "why" / "why.json").write_text('{"title": "a", "summary": "b"}')
    (tmp_path / "odd" / "results.json").mkdir(parents=True)
    found = site._found(tmp_path, tmp_path / "out")
    assert not found.explained
    assert found.unread.keys() == {"odd", "why"}
    assert "Is a directory" in found.unread["odd"]
    assert found.unread["why"] == "it has no why.html, which its entry leads to: `python -m dlperf.why` makes both."
