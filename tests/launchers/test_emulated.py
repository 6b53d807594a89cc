"""Nodes that are emulated: what ranks see there, and what comes of links that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlperf import compare, launchers
from dlperf.adapters import emulated
from dlperf.runs import bundle

pytestmark = pytest.mark.cluster

#: what a rank writes down of where it is
TELL = """
import json, os
rank = os.environ["RANK"]
seen = {"network": os.readlink("/proc/self/ns/net"), "link": float(os.environ["DLPERF_LINK"])}
seen["latency"] = float(os.environ["DLPERF_LATENCY"])
seen.update({name: os.environ[name] for name in ("LOCAL_RANK", "WORLD_SIZE", "DLPERF_HOSTS")})
json.dump(seen, open(f"told{rank}.json", "w"))
"""


def emulate(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    bundle.copy_code(folder / "code", [])
    environ = {**os.environ, "PYTHONPATH": str(folder / "code")}
    nodes = ["unshare", "--net", sys.executable, "-m", "dlperf.adapters.emulated", *words]
    return subprocess.run(nodes, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)


def test_ranks_are_on_nodes_of_their_own_whose_link_is_as_fast_as_asked(tmp_path):
    ended = emulate(tmp_path, "2", "0.2", "0", "2", sys.executable, "-c", TELL)
    assert ended.returncode == 0, ended.stderr
    told = [json.loads((tmp_path / f"told{rank}.json").read_text()) for rank in range(4)]
    networks = [one["network"] for one in told]
    assert networks[0] == networks[1] != networks[2] == networks[3]
    assert os.readlink("/proc/self/ns/net") not in networks
    assert {one["DLPERF_HOSTS"] for one in told} == {"10.77.0.1,10.77.0.2"}
    assert [one["LOCAL_RANK"] for one in told] == ["0", "1", "0", "1"]
    assert 0 < told[0]["link"] <= 0.22


def test_a_link_that_is_not_as_fast_as_asked_is_said_before_ranks_start(tmp_path):
    ended = emulate(tmp_path, "2", "1000", "0", "1", sys.executable, "-c", TELL)
    assert ended.returncode == 1
    assert not (tmp_path / "told0.json").exists()
    assert "Gb/s where 1000 were asked for" in ended.stderr
    assert launchers.find("emulated").cause.search(ended.stderr)


def test_what_a_node_sends_is_late_or_the_kernel_cannot_do_it(tmp_path):
    tried = subprocess.run(["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    ended = emulate(tmp_path, "2", "0.1", "50", "1", sys.executable, "-c", TELL)
    if tried.returncode:
        assert ended.returncode == 1
        assert "A latency needs the kernel's sch_netem" in launchers.find("emulated").cause.search(ended.stderr).group()
        return
    assert ended.returncode == 0, ended.stderr
    assert 50 <= json.loads((tmp_path / "told0.json").read_text())["latency"] <= 55.1


def test_a_message_that_is_later_than_asked_is_said(monkeypatch, capfd):
    monkeypatch.setattr(emulated, "made", lambda count, gigabits, ms: [0] * count)
    monkeypatch.setattr(emulated, "best", lambda *_: 1.0)
    monkeypatch.setattr(emulated, "measured", lambda *_: 6.0)
    assert emulated.main(["2", "1", "5", "1", "true"]) == 1
    assert "a message takes 6 ms where 5 were asked for" in capfd.readouterr().err


def test_a_rank_that_fails_ends_the_others(tmp_path):
    failing = 'import os, time; os._exit(3) if os.environ["RANK"] == "1" else time.sleep(1000)'
    ended = emulate(tmp_path, "2", "0", "0", "1", sys.executable, "-c", failing)
    assert ended.returncode == 3
    assert "rank 1 on" in ended.stderr


def test_a_comparison_over_two_links_shows_them(tmp_path):
    words = ["-f", "fake", "-m", "resnet_tiny", "--device", "cpu", "--env", "current", "--bandwidth", "0.2,0.5"]
    words += ["-r", "1", "--no-verify", "-q", "-y", "-o"]
    assert compare.main([*words, str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.md").read_text()
    assert "### Links" in page
    assert "2 nodes, 2 devices, links of 0.2 Gb/s" in page
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = [record["communication"]["link_gigabits"] for record in results["records"]]
    assert all(link <= 1.1 * asked for link, asked in zip(sorted(found), (0.2, 0.5), strict=True))
    assert all(window["conditions"]["network_sent_bytes"] >= 0 for r in results["records"] for window in r["windows"])
