"""Reports and sites in a browser: axe-core, and what a reader on a telephone, in the dark and at the keyboard needs."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from commands import call
from places import ROOT

pytestmark = pytest.mark.pages

PUBLISHED = ROOT / "report" / "published"
#: reports of one size, of several, of a GPU, why two rows differ, what others published, and ours beside it
REPORTS = (
    "2026-11-21-cpu-fp32/report.html",
    "2026-11-21-cpu-fp32-ranks/report.html",
    "2026-11-27-h200-fp16-bert/report.html",
    "2026-11-25-why-bert-mxnet-oneflow/why.html",
    "dlperf-v1.0/report.html",
    "2026-11-27-cpu-fp32/against.html",
)
SITE = ("index.html", "systems/pytorch.html", "published/dlperf-2020.html")
#: a page that holds another one in a frame, as narrow as a browser's window cannot be, and shows what that one tells
FRAME = """<!DOCTYPE html><title>frame</title><pre id="told"></pre>
<script>addEventListener("message", (event) => { document.getElementById("told").textContent = event.data; });</script>
<iframe src="inner.html" style="width: {width}px; height: 2000px; border: 0"></iframe>"""
AXE = """
const found = await axe.run(document, { resultTypes: ["violations"] });
return found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => one.id + ": " + one.nodes.map((node) => node.html.slice(0, 200)).join(" | "));
"""


@cache
def axe() -> str:
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None, "make test-pages installs axe-core"
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def told(page: str, script: str, folder: Path, width: int = 1400, dark: bool = False) -> object:
    """What a script returns in a page that is as wide, in one theme."""
    ask = f"""<script>addEventListener("load", async () => {{
      let said;
      try {{ said = await (async () => {{ {script} }})(); }} catch (error) {{ said = "error: " + error; }}
      parent.postMessage(JSON.stringify(said), "*");
    }});</script>"""
    (folder / "inner.html").write_text(page.replace("</body>", ask + "</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += [f"--user-data-dir={folder / 'browser'}", "--virtual-time-budget=60000", "--window-size=1600,2200"]
    flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom"]
    ended = subprocess.run(
        ["chromium", *flags, (folder / "frame.html").as_uri()], capture_output=True, text=True, timeout=300
    )
    found = re.search(r'<pre id="told">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert found is not None, ended.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    assert call("site", PUBLISHED, "-o", out).returncode == 0
    return out


@pytest.fixture(params=[*REPORTS, *SITE])
def page(request: pytest.FixtureRequest, site: Path, tmp_path: Path) -> str:
    """Its text; what it refers to lies beside the copy that is opened."""
    if request.param in REPORTS:
        return (PUBLISHED / request.param).read_text(encoding="utf-8")
    shutil.copy(site / "style.css", tmp_path)
    return re.sub(r'href="(\.\./)*style\.css"', 'href="style.css"', (site / request.param).read_text(encoding="utf-8"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing_serious(page: str, width: int, dark: bool, tmp_path: Path) -> None:
    script = f"<script>{axe()}</script></head>"
    assert told(page.replace("</head>", script, 1), AXE, tmp_path, width, dark) == []


def test_axe_finds_what_is_wrong(tmp_path: Path) -> None:
    page = (
        f"<html><head><script>{axe()}</script></head><body><p style='color: #ccc'>pale</p><img src='x'></body></html>"
    )
    found = told(page, AXE, tmp_path)
    assert isinstance(found, list)
    assert [one.partition(":")[0] for one in found] == [
        "color-contrast",
        "document-title",
        "html-has-lang",
        "image-alt",
    ]


@pytest.mark.parametrize("width", [1400, 390])
def test_a_page_is_as_wide_as_its_window_and_its_letters_can_be_read(page: str, width: int, tmp_path: Path) -> None:
    script = """
    const small = [...document.querySelectorAll("body *")].filter((one) => !one.closest("svg, script, style")
      && one.innerText && parseFloat(getComputedStyle(one).fontSize) < 12).map((one) => one.outerHTML.slice(0, 100));
    return [innerWidth, document.documentElement.scrollWidth <= innerWidth, small];
    """
    assert told(page, script, tmp_path, width) == [width, True, []]


#: targets of fingers that are too close, by WCAG 2.2, 2.5.8: a circle of 24 px around the centre of one that is smaller
#: touches another one. A link within a sentence is exempt.
TARGETS = """
const targets = [...document.querySelectorAll("a[href], button, input, summary")].filter((one) =>
  one.checkVisibility({ visibilityProperty: true }) && one.getBoundingClientRect().top >= 0
  && !(one.tagName === "A" && one.parentElement.innerText.trim() !== one.innerText.trim()));
const boxes = targets.map((one) => one.getBoundingClientRect());
const small = (box) => box.width < 24 || box.height < 24;
const beyond = (at, low, high) => Math.max(low - at, 0, at - high);
const away = (x, y, box) => Math.hypot(beyond(x, box.left, box.right), beyond(y, box.top, box.bottom));
const close = targets.filter((one, i) => small(boxes[i]) && boxes.some((box, j) => {
  const x = (boxes[i].left + boxes[i].right) / 2, y = (boxes[i].top + boxes[i].bottom) / 2;
  const apart = Math.hypot(x - (box.left + box.right) / 2, y - (box.top + box.bottom) / 2);
  return i !== j && (away(x, y, box) < 12 || (small(box) && apart < 24));
}));
return close.map((one) => one.outerHTML.slice(0, 100));
"""


def test_targets_are_large_enough_for_a_finger(page: str, tmp_path: Path) -> None:
    assert told(page, TARGETS, tmp_path, 390) == []


def test_targets_that_are_too_close_are_found(tmp_path: Path) -> None:
    page = "<html><body><ul style='font-size: 12px; line-height: 14px'><li><a href='#a'>a</a><li><a href='#b'>b</a>"
    assert told(f"{page}</ul></body></html>", TARGETS, tmp_path, 390) == [
        '<a href="#a">a</a>',
        '<a href="#b">b</a>',
    ]


def test_a_telephone_shows_system_rate_and_what_it_is_of_the_fastest(tmp_path: Path) -> None:
    page = (PUBLISHED / REPORTS[0]).read_text(encoding="utf-8")
    script = """
    const table = document.querySelector("h2[id] ~ .scroll table");
    return [...table.tHead.rows[0].cells].filter((one) => one.offsetWidth).map((one) => one.textContent);
    """
    narrow, wide = told(page, script, tmp_path, 390), told(page, script, tmp_path, 1400)
    assert narrow == ["system", "median (img/s)", "relative to fastest", "note"]
    assert isinstance(wide, list)
    assert len(wide) == 9


def test_bars_fit_a_telephone_and_are_there_once(page: str, tmp_path: Path) -> None:
    script = """
    const bars = [...document.querySelectorAll("figure .narrow, figure .wide svg")].filter((one) => one.clientWidth);
    const letters = (one) => Math.min(...[...one.querySelectorAll("text")].map((text) =>
      parseFloat(getComputedStyle(text).fontSize) * one.clientWidth / one.viewBox.baseVal.width));
    return bars.map((one) => [one.classList.contains("narrow"), one.clientWidth <= innerWidth, letters(one) >= 12]);
    """
    narrow, wide = told(page, script, tmp_path, 390), told(page, script, tmp_path, 1400)
    assert isinstance(narrow, list)
    assert isinstance(wide, list)
    assert len(narrow) == len(wide) == page.count('<svg class="narrow"')
    assert all(one == [True, True, True] for one in narrow)
    assert not any(one[0] for one in wide)


def test_a_click_on_a_title_sorts_and_a_third_one_puts_back(tmp_path: Path) -> None:
    page = (PUBLISHED / REPORTS[0]).read_text(encoding="utf-8")
    script = """
    const table = document.querySelector("h2[id] ~ .scroll table"), head = table.tHead.rows[0].cells[2];
    const rates = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[2].textContent));
    const found = [rates()];
    for (let click = 0; click < 3; click++) {
      head.querySelector("button").click();
      found.push([head.getAttribute("aria-sort"), rates()]);
    }
    return found;
    """
    found = told(page, script, tmp_path)
    assert isinstance(found, list)
    before, *after = found
    assert before == sorted(before, reverse=True)
    assert len(before) == 6
    assert after == [["ascending", sorted(before)], ["descending", before], [None, before]]


def test_a_long_table_shows_the_rows_that_have_a_word(tmp_path: Path) -> None:
    page = (PUBLISHED / "2026-11-23-cpu-aa" / "report.html").read_text(encoding="utf-8")
    script = """
    const input = document.querySelector(".filter input"), table = input.closest("label").nextElementSibling;
    const shown = () => [...table.querySelectorAll("tbody tr")].filter((row) => row.offsetHeight).length;
    const all = shown();
    input.value = "oneflow";
    input.dispatchEvent(new Event("input"));
    const some = shown();
    input.value = "no such word";
    input.dispatchEvent(new Event("input"));
    return [all, some, shown()];
    """
    found = told(page, script, tmp_path)
    assert isinstance(found, list)
    every, some, none = found
    assert every > some > none == 0


def test_a_systems_name_leads_to_its_command(tmp_path: Path) -> None:
    page = (PUBLISHED / REPORTS[0]).read_text(encoding="utf-8")
    script = """
    const links = [...document.querySelectorAll("h2[id] ~ .scroll th a")];
    return links.map((link) => document.querySelector(link.getAttribute("href")).closest("details").innerText
      && document.querySelector(link.getAttribute("href")).parentElement.querySelector("pre").textContent);
    """
    found = told(page, script, tmp_path)
    assert isinstance(found, list)
    assert len(found) >= 12
    assert all("dlperf.adapters.worker" in command for command in found)
