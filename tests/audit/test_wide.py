"""Plain tables and files that lack columns: what is made of them, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from dlperf.audit import reading, tables
from dlperf.audit.rules import audit
from dlperf.errors import UsageError


def figures(tmp_path: Path, text: str, name: str = "t.csv") -> list[tuple[object, ...]]:
    (tmp_path / name).write_text(text)
    cells = reading.file(tmp_path / name).cells
    return [
        (one.quantity, one.printed, one.nodes, one.devices, one.batch, one.precision)
        for one in (cell.figure for cell in cells)
    ]


def test_a_plain_table_in_csv(tmp_path: Path) -> None:
    text = 'nodes,gpus,batch size,OneFlow FP32 img/s,speedup\n1,1,128,397.64,1\n4,32,128,"12,411.97",31.21\n'
    assert figures(tmp_path, text) == [
        ("throughput", "397.64", 1, 1, "128", "fp32"),
        ("speedup", "1", 1, 1, "128", ""),
        ("throughput", "12,411.97", 4, 32, "128", "fp32"),
        ("speedup", "31.21", 4, 32, "128", ""),
    ]


@pytest.mark.parametrize("label", ["4n8g", "4 nodes x 8 GPUs", "4n_8g", "4n32d"])
def test_sizes_in_labels(tmp_path: Path, label: str) -> None:
    assert figures(tmp_path, f"case,img/s\n{label},100\n") == [("throughput", "100", 4, 32, "", "")]


def test_devices_as_columns_and_as_the_first_one(tmp_path: Path) -> None:
    assert [one[3] for one in figures(tmp_path, "system,1,8\nA,100,700\n")] == [1, 8]
    assert [one[3] for one in figures(tmp_path, "GPUs,rate\n1,100\n8,700\n")] == [1, 8]
    assert [one[3] for one in figures(tmp_path, "nodes,GPUs / node,rate\n2,8,100\n")] == [16]


def test_a_page_in_markdown(tmp_path: Path) -> None:
    text = """\
# ResNet-50 on 8x V100 16GB
Some words | that are no table.

#### AMP, batch size = 256

| node num | device num | [A](../a) | [B<br>bsz=224](../b) | memory (MB) |
| -------- | ---------- | --------- | --------: | --- |
| 1        | 1          | **1472.72** | 945.18 | 12000 |
| 2 | 16 | 17920.40 |
"""
    path = tmp_path / "page.md"
    path.write_text(text)
    cells = [one.figure for one in reading.file(path).cells]
    assert [(one.column, one.printed, one.batch, one.line) for one in cells] == [
        ("A", "1472.72", "256", 8),
        ("B bsz=224", "945.18", "224", 8),
        ("memory (MB)", "12000", "256", 8),
        ("A", "17920.40", "256", 9),
        ("B bsz=224", "", "224", 9),
        ("memory (MB)", "", "256", 9),
    ]
    assert {(one.model, one.device, one.precision) for one in cells} == {("resnet50", "V100 16GB", "amp")}
    assert [one.quantity for one in cells[:3]] == ["throughput", "throughput", "other"]


@pytest.mark.parametrize(
    ("title", "head", "quantity"),
    [
        ("ResNet-50", "A", "throughput"),
        ("ResNet-50, minutes to train", "A", "time_to_train"),
        ("ResNet-50, time to train", "img/s", "throughput"),
        ("ResNet-50", "A (ms)", "other"),
        ("Throughput, higher is better", "A", "throughput"),
    ],
)
def test_times_are_no_rates(tmp_path: Path, title: str, head: str, quantity: str) -> None:
    text = f"# {title}\n\n| GPUs | {head} |\n|---|---|\n| 8 | 28.7 |\n| 16 | 15.1 |\n"
    assert [one[0] for one in figures(tmp_path, text, "t.md")] == [quantity] * 2


def test_a_number_for_each_precision(tmp_path: Path) -> None:
    text = """\
| GPUs | Batch size / GPU: mixed precision, FP32 | Throughput - mixed precision | Throughput - FP32 |
|---|---|---|---|
| 1 | 312,176 | 100 | 50 |
"""
    assert [one[4] for one in figures(tmp_path, text, "t.md")] == ["312", "176"]


def test_the_figures_of_a_file_may_lack_columns(tmp_path: Path) -> None:
    text = 'printed,row,column\n"1,234.5",1n8g,OneFlow AMP\n1.00,1n8g,OneFlow speedup\n'
    assert figures(tmp_path, text) == [
        ("throughput", "1,234.5", 1, 8, "", "amp"),
        ("speedup", "1.00", 1, 8, "", ""),
    ]


SHORT = "row,column,printed,devices,unit\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table is in it"),
        ("a,b\n", "no table is in it"),
        ("a,b\nx,y\n", "no numbers beside their labels"),
        ("a,b\n1,2\n1,2,3\n", "line 3: it has 3 columns, the first line 2"),
        ('a,b\n"1,2\n', "unexpected end of data"),
        (SHORT + "1,a,400,x,img/s\n", "line 2: devices is 'x'; allowed: a whole number from 1, or nothing"),
        (SHORT + "1,a,400\n", "line 2: it has other than 5 columns"),
        ("row,column,printed,speed\n1,a,400,1\n", "line 1: its columns are 'row,column,printed,speed'; allowed: "),
        ("row,column,printed,row\n1,a,400,1\n", "line 1: its columns are 'row,column,printed,row'; allowed: "),
        ("row,column,printed,quantity\n1,a,400,speed\n", "line 2: quantity is 'speed'; allowed: throughput, "),
    ],
)
def test_what_cannot_be_read_names_line_and_column(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as told:
        reading.file(path)
    assert says in str(told.value)
    assert str(path) in str(told.value)


def test_binary_and_gigantic_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n\xff\xfe\n")
    with pytest.raises(UsageError, match="it is no text in UTF-8"):
        reading.file(path)
    monkeypatch.setattr(reading, "MOST", 3)
    with pytest.raises(UsageError, match="at most 3 are read"):
        reading.file(path)


@pytest.mark.parametrize(
    "text",
    [
        "GPUs,img/s\n0,400\n8,0\n",
        "GPUs,img/s\n1,1e999\n8,99999999999999999999999999999999999\n",
        "GPUs,img/s,speedup\n1,0.0,1\n8,0.0,8\n",
        "GPUs,img/s,efficiency\n1,400,\x1b[31m\n8,3200,=1+1\n",
        "row,column,printed,batch\n1,a,5,\n8,a,9,0\n",
        "GPUs,batch,img/s,ms/step\n8,0,400,0\n",
        "GPUs,img/s\n" + "1,400\n" * 300,
        "a|b\n|--|\n| x |\n",
    ],
)
def test_odd_numbers_make_no_traceback(tmp_path: Path, text: str) -> None:
    for name in ("t.csv", "t.md"):
        (tmp_path / name).write_text(text)
        with suppress(UsageError):
            audit(reading.file(tmp_path / name))


def test_a_table_that_goes_on_with_rows_of_other_lengths(tmp_path: Path) -> None:
    assert len(figures(tmp_path, "gpus,img/s\n1,100\n\n8,700\n16,1400\n")) == 3
    with pytest.raises(UsageError, match="line 5: it has 1 columns, the first line 2"):
        figures(tmp_path, "gpus,img/s\n1,100\n\n8,700\n16\n")


def test_latencies_by_batch_are_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for name, rows in (("step", (1, 2, 3, 4, 5)), ("batch", (1, 2, 4, 8, 16))):
        rates = (95.7, 189.2, 281.2, 431.2, 505.3)
        path.write_text(f"{name},img/s\n" + "".join(f"{a},{b}\n" for a, b in zip(rows, rates, strict=True)))
        found = [one.rule for one in audit(reading.file(path))]
        assert ("warm-up in a log" in found) == (name == "step")


def test_a_simple_table_of_restructuredtext() -> None:
    text = """\
Scaling
=======

====== ==================
GPUs   Images/s
       (global)
====== ==================
1      1290.4
8      9734.8
====== ==================
"""
    (table,) = tables.tables(text, ".rst")
    assert (table.head, table.rows) == (["GPUs", "Images/s (global)"], [(8, ["1", "1290.4"]), (9, ["8", "9734.8"])])


def test_a_list_table_of_restructuredtext() -> None:
    text = """\
.. list-table:: Scaling
   :header-rows: 1

   * - GPUs
     - Images/s,
       global
   * - 1
     - 1290.4
   * - 8
     - 9734.8

Below.
"""
    (table,) = tables.tables(text, ".rst")
    assert (table.head, table.rows) == (["GPUs", "Images/s, global"], [(6, ["1", "1290.4"]), (7, ["8", "9734.8"])])


def test_steps_before_those_that_are_timed_may_be_long(tmp_path: Path) -> None:
    steps_ = [{"type": "step", "step": at, "step_time_s": 5.5 if at < 3 else 0.6} for at in range(1, 12)]
    found = []
    for first in (1, 3):
        lines = [*steps_, {"type": "summary", "first_step": first, "last_step": 11, "samples_per_s": 200.0}]
        (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, lines)))
        found.append([one.rule for one in audit(reading.file(tmp_path / "w.jsonl"))])
    assert found == [["long step in a table"], []]
