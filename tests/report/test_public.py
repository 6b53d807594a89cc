"""What others see of a comparison: texts from outside are harmless wherever they stand, and name no one."""

from __future__ import annotations

import csv
import dataclasses
import getpass
import io
import json
import re
import socket
import xml.etree.ElementTree
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import places
import pytest
from markdown_it import MarkdownIt

from dlperf import cache, markdown, report
from dlperf.adapters import gpu
from dlperf.errors import clean
from dlperf.report import charts, public
from dlperf.schema import Comparison, Failure
from dlperf.stored import comparison_from

GOLDEN = places.GOLDEN / "report" / "results.json"

#: at the end of a text, and at its start
WITHIN = (
    "<script>alert(1)</script>", "\" onload='alert(1)", "</pre></style><img src=x onerror=x>", "| a | b",
    "\n\n# heading\n",
    "\n- point\n1. one\n> said", "```\n~~~", "[x](http://a.invalid)", "![x](x.png)", "\x1b[31mred\x1b]0;title\x07",
    "\x00\x08\x9b1m\x7f", "\ud800", "\u202eabc\u2066", "\ufffe\uffff", "]]>--><!--",
    "{{ 7 * 7 }}{% raw %}", "$x$ \\frac{",
    "&lt;script&gt;", "\r\n\t", "' \"", "%s{0}", "e\u0301\U0001f600",
)  # fmt: skip
AT_START = ("# ", "- ", "+ ", "1. ", "7) ", "> ", "    ", "=", "@", "\t", "\r", "---", "* ", "|")
#: texts of which only some are stored
CLOSED = ("kind", "model", "of", "verdict", "source", "created", "started", "family", "device", "precision")
#: mappings that anyone may put names into
OPEN = ("effective", "versions", "options", "seconds", "stages", "about", "environment")


class Tags(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, *(name for name, _ in attrs)))


def comparison() -> Comparison:
    return comparison_from(json.loads(GOLDEN.read_text(encoding="utf-8")))


def everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """With all texts changed that are free to be anything."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(everywhere(part, change) for part in value)
    if isinstance(value, Mapping):
        return {key: everywhere(part, change) for key, part in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    new = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    made = {name: old if name in CLOSED else everywhere(old, change) for name, old in new.items()}
    for name in OPEN:
        if isinstance(made.get(name), Mapping):
            made[name] |= {change(key): part for key, part in made[name].items()}
    if "proofs" in made:
        made["proofs"] = {change(key).replace("/", ""): part for key, part in made["proofs"].items()}
    if "id" in made:
        made["id"] = made["id"].replace("/", "")
    if "folder" in made:  # a record's is its run's
        made["folder"] = f"runs/{made['job'].id}/{made['repeat']}"
    return type(value)(**made)


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    return report.render(comparison())


@pytest.mark.parametrize("text", [*WITHIN, *AT_START, "".join(WITHIN)[:200]])
def test_no_text_in_any_field_breaks_a_page(text: str, usual: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    if text in (*WITHIN, *AT_START):  # charts take longer than all the rest
        monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")
    files = report.render(everywhere(comparison(), lambda old: text + old if text in AT_START else old + text))
    undrawn = re.compile(r"<svg.*?</svg>", re.DOTALL)
    assert Tags(undrawn.sub("", files["report.html"])).found <= Tags(undrawn.sub("", usual["report.html"])).found
    read = MarkdownIt("commonmark").enable("table").render
    shown, before = Tags(read(files["report.md"])).found, Tags(read(usual["report.md"])).found
    assert shown <= before
    assert read(files["report.md"]).count("<h1") == 1
    header, *lines = csv.reader(io.StringIO(files["results.csv"]))
    assert {len(line) for line in lines} == {len(header)}
    assert not [cell for line in lines for cell in line if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    for name, content in files.items():
        assert not set(content) & set("\x00\x08\x1b\x7f\x9b\u202e\u2066\ufffe\uffff\r\ud800"), name
        if name.endswith(".svg"):
            xml.etree.ElementTree.fromstring(content)
    assert report.render(comparison_from(json.loads(files["results.json"]))) == files


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/root/x and /home/ann/x, /Users/ann/y", "~/x and /home/<user>/x, /Users/<user>/y"),
        ("ssh ann@box2.lan failed", "ssh <user>@<host> failed"),
        ("git+https://ann:secret@git.lan/x", "git+https://<user>@git.lan/x"),
        ("fetch https://mirror.lan:8081/pypi/simple/jax/", "fetch https://<index>/pypi/simple/jax/"),
        ("fetch https://ann:x@mirror.lan/simple/jax/", "fetch https://<user>@<index>/simple/jax/"),
        ("fetch https://pypi.org/simple/jax/", "fetch https://pypi.org/simple/jax/"),
        ("dns error: wheels.lan", "dns error: <index>"),
        ("/scratch/store/dlperf/envs/x, /data/old/run/y by bob", "<cache>/envs/x, <comparison>/y by bob"),
        ("/scratch/bob/x on node7", "/scratch/<user>/x on host1"),
        ("a@b", "<user>@<host>"),
        ("x @ y, jax@0.4, @decorated", "x @ y, jax@0.4, @decorated"),
    ],
)
def test_what_the_machine_that_measured_was_called_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    """Its user, folders and hosts were others than here, and are kept with the comparison."""
    then = {"cache": "/scratch/store/dlperf", "comparison": "/data/old/run", "user": "bob", "host": "node7"}
    monkeypatch.setattr(public.store, "manifest", lambda folder: {"names": {**then, "indexes": "wheels.lan"}})
    comparison = Comparison({}, {}, "", "", 0, (), (), ())
    _, said = public.redaction(comparison, tmp_path)
    assert said(text) == shown


def test_a_report_names_no_host_user_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But in `~`, `<comparison>` and the like; the record itself is as it was."""
    monkeypatch.setattr(public, "_user", lambda: "ann")
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("DLPERF_CACHE", "/scratch/ann/cache")
    monkeypatch.setattr(socket, "gethostname", lambda: "login7.example.org")
    folder = tmp_path / "it's here"
    told = (
        f"{folder}/runs/x: {folder / 'code'}, '/home/ann/data', -I/home/ann/include, file:///home/ann/x, /home/bob/y, "
        f"/scratch/ann/z, {cache.folder()}/envs, on login7: node1 (node1.example.org) lost node2. ann@node1's; "
        "https://github.com/ann/x; /usr/lib/annotations, banana, node10, /opt/home2, /data/photos."
    )
    first = comparison()
    record = dataclasses.replace(first.records[0], hosts=("node1", "node2"), command=told)
    failed = next(record for record in first.records if record.failure)
    failure = dataclasses.replace(failed.failure, message=told, lines=(told,))  # type: ignore[type-var]
    made = dataclasses.replace(
        first,
        spec={**first.spec, "hosts": ["10.0.0.1", "10.0.0.2"], "data": "/data/photos"},
        records=(record, dataclasses.replace(failed, failure=failure)),
        commands={"pytorch cpu": told},
    )
    shown = public.unnamed(made, folder)
    expected = (
        "<comparison>/runs/x: <comparison>/code, '~/data', -I~/include, file://~/x, /home/<user>/y, "
        "/scratch/<user>/z, <cache>/envs, on host3: host1 (host1) lost host2. <user>@host1's; "
        "https://github.com/ann/x; /usr/lib/annotations, banana, node10, /opt/home2, <data>."
    )
    assert shown.records[0].command == shown.commands["pytorch cpu"] == expected
    assert shown.records[1].failure == Failure(failure.kind, expected, (expected,))
    assert shown.records[0].hosts == ("host1", "host2")
    assert shown.spec["hosts"] == ["host1", "host2"]
    assert made.records[0].command == told
    assert public.unnamed(shown, folder).records[0].command == expected
    report.write(made, folder)
    for file in folder.rglob("*.*"):
        assert not any(name in file.read_text() for name in ("node1.", "/home/ann", str(tmp_path), "login7")), file


def test_a_report_of_this_machine_names_it_nowhere(tmp_path: Path) -> None:
    first = comparison()
    told = f"{Path.home()}/x {Path.cwd()}/y on {socket.gethostname()}"
    record = dataclasses.replace(first.records[0], hosts=(socket.gethostname(),), command=told)
    shown = public.unnamed(dataclasses.replace(first, records=(record,)), tmp_path).records[0]
    assert shown.hosts == ("host1",)
    assert str(Path.home()) not in shown.command
    assert socket.gethostname() not in shown.command.split()
    assert getpass.getuser() == "root" or getpass.getuser() not in shown.command


def test_what_was_seen_of_gpus_keeps_its_type() -> None:
    """As in the spec of `dlperf verify`, whose report is written before the spec is stored."""
    card = gpu.Gpu("NVIDIA\x1b[2J H200", 2**37, "580.159.04", "9.0")
    shown = public.cleaned(dataclasses.replace(comparison(), spec={"gpus": (card,)})).spec["gpus"]
    assert shown == (card._replace(name=clean(card.name)),)
    assert "\x1b" not in shown[0].name


def test_a_working_folder_that_is_gone_or_no_home_costs_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert public.unnamed(comparison(), tmp_path).records


@pytest.mark.parametrize(
    ("text", "expected"),
    [("# x", r"\# x"), ("- x", r"\- x"), ("+", r"\+"), ("1. x", r"1\. x"), ("12) x", r"12\) x"), ("-1.5", "-1.5"),
     ("    x", "x"), ("1.5 x", "1.5 x"), ("+compile", "+compile"), ("===", r"\==="), ("#2", "#2")],
)  # fmt: skip
def test_no_text_begins_a_heading_a_list_or_a_rule(text: str, expected: str) -> None:
    assert markdown.escape(text) == expected
