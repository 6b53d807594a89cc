"""Files that are damaged or edited, wrong command lines, and hostile text: one message, or the same figures."""

import csv
import io
import json
import re
import string
import xml.etree.ElementTree
from html.parser import HTMLParser

import pytest
import readers
from commands import call
from markdown_it import MarkdownIt
from odd import changed, fields

from dlperf import flags, report
from dlperf.report import charts

#: how many of a kind the short form tries
SHORT = 50


@pytest.mark.parametrize("name", [name for name, one in readers.READERS.items() if one.documents])
def test_changed_values(campaign, name):
    source, one = campaign.source, readers.READERS[name]
    for _ in range(SHORT * campaign.times):
        data = readers.odd(name, source)
        if source.random() < 0.25:
            data = readers.damaged(json.dumps(source.choice(one.documents)).encode(), source)
        with campaign.fault(f"changed values: {name}", data):
            one.read(data)


def test_damaged_toml(campaign):
    source = campaign.source
    for number in range(300 * campaign.times):
        whole = source.choice(readers.tomls())
        data = readers.damaged(whole, source) if number % 2 else readers.swapped(whole.decode(), source).encode()
        with campaign.fault("damaged TOML files", data):
            readers.toml(data)


def test_damaged_hostfiles_and_logs(campaign):
    source, log = campaign.source, (readers.ROOT / "tests" / "golden" / "progress.txt").read_bytes()
    for _ in range(SHORT * campaign.times):
        for kind, whole in (("hostfiles", b"one slots=2\ntwo:3 # four\n10.0.0.1\n"), ("logs", log)):
            data = readers.damaged(whole, source)
            with campaign.fault(f"changed values: {kind}", data):
                readers.READERS[kind].read(data)


# --- command lines ----------------------------------------------------------------------------------------------------

WORDS = ("x", "", " ", "-1", "0", "1e9", "9" * 20, "9" * 5000, "nan", "inf", "²", "a,b", ",", "=", "a=b", "=b", "a=",
         "..", "/", "/dev/null", "/proc/self/mem", "-", "--", "\udc80", "a\nb", "$(touch canary)", "`touch canary`",
         "\x1b[31m", "'", '"', "resnet50", "bert", "fp32", "amp", "pytorch", "fake", "cpu", "cuda", "venv", "docker",
         "auto", "max", "local", "mpi", "slurm", "kubernetes", "localhost:2", "2%", "on,off", "1,2",
         "clip_norm=off")  # fmt: skip
#: none of these does anything where it is right by chance
COMMANDS = {
    "compare": ("--dry-run",), "verify": ("--dry-run",), "scaling": (), "images": ("list",), "envs": ("list",),
    "data": ("bert", "--corpus", "/nowhere", "--output", "/nowhere/out"),
}  # fmt: skip


def words(source, name):
    """A few flags, most of which the command has, with values that most of them cannot have."""
    known = [flag.names.split() for flag in flags.FLAGS]
    made = list(COMMANDS[name])
    for _ in range(source.choice((1, 1, 2, 3))):
        given = [source.choice(source.choice(known)), source.choice(WORDS)]
        given = source.choice((given, given, given, given[:1], given[1:]))
        if source.random() < 0.05:
            given = ["--" + "".join(source.choices(string.ascii_lowercase, k=5))]
        made += given
    return made


def test_wrong_command_lines(campaign, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(40 * campaign.times):
        name = campaign.source.choice(("compare", "compare", "compare", *COMMANDS))
        line = words(campaign.source, name)
        with campaign.fault("wrong command lines", (name, line)):
            ended = call(name, *line)
            assert ended.returncode in (0, 1, 2)
            assert "Traceback" not in ended.stdout + ended.stderr
            assert ended.returncode == 0 or ended.stderr or ended.stdout, "it said nothing"
            assert not list(tmp_path.iterdir()), "it made something"


# --- reports ----------------------------------------------------------------------------------------------------------

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</svg><script>", "]]>", "<!--", "&lt;",
           "%s{}", "# heading", "- item", "1. item", "> quote", "| a | b |", "```\n", "~~~", "[x](http://example.invalid)",
           "*b*", "=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "a\nb", "\x1b[31mred", "\x00", "\u202ereversed",
           "\u2028", "$(touch canary)", "$x$", "\\frac{", "{{ 7*7 }}", "{% raw %}", "y" * 300, "\ufeff",
           "ü")  # fmt: skip


class Page(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.wrong = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.wrong += [name for name, _ in attributes if name.startswith("on")]
        self.wrong += [value for name, value in attributes if name == "href" and "example.invalid" in (value or "")]


def pages(files):
    """What a browser makes of both."""
    shown = MarkdownIt("commonmark").enable("table").render(files["report.md"])
    assert shown.count("<h1>") == 1
    return Page(files["report.html"]), Page(shown)


def harmless(files, whole):
    """whole: the pages without hostile text."""
    for page, without in zip(pages(files), whole, strict=True):
        assert not page.tags - without.tags, page.tags - without.tags
        assert not page.wrong, page.wrong
    for name, content in files.items():
        assert not set(content) & set("\x00\x1b\u202e"), f"{name}: control characters"
        if name.endswith("svg"):
            xml.etree.ElementTree.fromstring(content)
    for row in csv.reader(io.StringIO(files["results.csv"])):
        assert not [cell for cell in row if cell[:1] in tuple("=+@\t\r") or re.match(r"-(?![\d.])", cell)], row
    json.loads(files["results.json"])


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "plain"])
def test_hostile_text_in_a_report(campaign, drawn, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if not drawn:
        monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")
    source, whole = campaign.source, readers.golden()
    texts = [place for place in fields(whole) if isinstance(value(whole, place), str)]
    without = pages(report.render(readers.results(json.dumps(whole).encode())))
    for _ in range(campaign.times if drawn else 20 * campaign.times):
        data, given = (
            whole,
            {place: source.choice(HOSTILE) for place in source.sample(texts, source.choice((1, 5, 40)))},
        )
        for place, told in given.items():
            text = source.choice((told, f"x {told}", value(whole, place) + told))
            data = json.loads(changed(data, place, json.dumps(text)))
        with campaign.fault("hostile text in a report", given):
            found = readers.results(json.dumps(data).encode())
            if found:
                harmless(report.render(found), without)
            assert not list(tmp_path.iterdir())


def value(data, place):
    for key in place:
        data = data[key]
    return data
