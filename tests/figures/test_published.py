"""Figures that others published, as data: what is in report/published/*/figures.csv, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from places import ROOT

from dlperf.figures import published
from dlperf.figures.dlperf2020 import read_published

FOLDER = ROOT / "report" / "published"
SOURCES = sorted(FOLDER.glob("*/figures.csv"))
HEAD = (
    "table,row,column,printed,quantity,unit,estimator,model,system,framework,version,precision,options,nodes,devices,"
    "device,batch,batch_of,steps,origin,path,line,doubt\n"
)
CELL = 't,1n8d,OneFlow,"2,846.93",throughput,img/s,unknown,resnet50,OneFlow,oneflow,0.2.0,fp32,dali=on,1,8,V100,128,'
CELL += "device,,table,README.md,7,\n"


def figures(path: Path) -> list[published.Figure]:
    return published.read(path.read_text(encoding="utf-8").splitlines(keepends=True))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.parent.name)
def test_a_source_is_whole(path: Path) -> None:
    """And names nothing that only its makers could see."""
    told = path.with_name("source.toml").read_text(encoding="utf-8")
    source = tomllib.loads(told)
    assert source["id"] == path.parent.name
    assert all(source[key] for key in ("title", "publisher", "url", "about"))
    assert {one.table for one in figures(path)} == {one["id"] for one in source["table"]}
    assert not [word for word in ("facts file", "seed", "read_file") if word in told + path.read_text(encoding="utf-8")]


def test_dlperfs_tables_are_rows_by_number_of_devices() -> None:
    """A column that one table repeats of another is one row."""
    cells = [one for one in figures(FOLDER / "dlperf-v1.0" / "figures.csv") if one.quantity == "throughput"]
    values = [one.value for one in cells if one.origin == "table"]
    rates = [rate for row in read_published(cells) for rate in row.rates.values()]
    assert (len(values), len(rates)) == (168, 164)
    assert set(rates) == set(values)


def test_a_cell_is_read_with_the_digits_that_it_has() -> None:
    [one] = published.read([HEAD, CELL])
    assert (one.printed, one.value, one.devices, one.options) == ("2,846.93", 2846.93, 8, {"dali": "on"})


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        *(("1234", 1234.0), ("97 %", 97.0), ("3.02x", 3.02), ("x1.60", 1.6), ("~5 hours", 5.0), ("1024 img/s", 1024.0)),
        *(("-", None), ("", None), ("OOM", None), ("NaN", None), ("1.15.2", None), ("1 node 8 devices", None)),
    ],
)
def test_what_is_no_number_has_no_value(printed: str, value: float | None) -> None:
    [one] = published.read([HEAD, CELL.replace('"2,846.93"', printed)])
    assert one.value == value


def test_a_table_is_built_again_from_its_cells() -> None:
    other = CELL.replace("OneFlow,", "MXNet,", 1).replace('"2,846.93"', "-")
    second = CELL.replace('"2,846.93",throughput', "97%,efficiency")
    last = CELL.replace("1n8d", "2n16d")
    assert published.tables(published.read([HEAD, CELL, second, other, last])) == {
        "t": (["OneFlow", "MXNet"], {"1n8d": ["2,846.93 (97%)", "-"], "2n16d": ["2,846.93", ""]})
    }


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",throughput,", ",speed,", "line 2: quantity is 'speed'; allowed: throughput, speedup, efficiency, "),
        (",unknown,resnet50", ",guess,resnet50", "line 2: estimator is 'guess'; allowed: "),
        (",table,README", ",image,README", "line 2: origin is 'image'; allowed: table, text, chart, log, or nothing"),
        (",1,8,V100", ",1,-8,V100", "line 2: devices is '-8'; allowed: a whole number from 1, or nothing"),
        ("dali=on", "dali", "line 2: options has 'dali'; allowed: NAME=VALUE, with spaces between"),
        (",README.md,7,", "", "line 2: it has other than 23 columns"),
        ("README.md", "README.md,more", "line 2: it has other than 23 columns"),
    ],
)
def test_what_is_not_as_it_is_written_names_line_and_column(old: str, new: str, says: str) -> None:
    assert old in CELL
    with pytest.raises(ValueError, match=says.replace("'", ".")):
        published.read([HEAD, CELL.replace(old, new)])


def test_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="line 1: its columns are 't,row'; allowed: table,row,column,printed,"):
        published.read(["t,row\n", CELL])


def test_a_cell_stands_once() -> None:
    with pytest.raises(ValueError, match="line 3: t / 1n8d / OneFlow / throughput stands there twice"):
        published.read([HEAD, CELL, CELL])
