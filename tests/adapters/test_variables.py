"""Variables of the user's shell do not change what a worker computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import FAKE, call

from dlperf.adapters import variables
from dlperf.comparison.store import open_folder


def test_what_a_worker_is_not_to_see() -> None:
    shell = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "XLA_FLAGS": "--x",
        "OMP_NUM_THREADS": "2",
        "MKL_DEBUG": "1",
        "SLURM_NTASKS": "1",
    }
    assert variables.foreign({**shell, "DLPERF_SET": "OMP_NUM_THREADS PYTHONPATH"}) == ["MKL_DEBUG", "XLA_FLAGS"]
    assert variables.foreign(shell) == []  # in a container they are the image's


def test_what_reaches_it_and_may_matter_is_told() -> None:
    shell = {"PATH": "/bin", "LD_PRELOAD": "/x.so", "NCCL_SOCKET_IFNAME": "eth0", "DLPERF_DROPPED": "A B"}
    assert variables.told(shell) == {"LD_PRELOAD": "/x.so", "NCCL_SOCKET_IFNAME": "eth0"}
    assert variables.dropped(shell) == ["A", "B"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_they_do_not_reach_a_worker(tmp_path: Path, ranks: int) -> None:
    more = ("-p", "fp32", "-r", 1, "--nproc-per-node", ranks, "-o", tmp_path / "out")
    mine = {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16", "PYTHONHASHSEED": "7", "CUDA_VISIBLE_DEVICES": "0"}
    ended = call("compare", *FAKE, *more, **mine)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (record,) = open_folder(tmp_path / "out").records.values()
    for rank in range(ranks):
        lines = (tmp_path / "out" / record.folder / f"events.rank{rank}.jsonl").read_text().splitlines()
        start = json.loads(lines[0])
        assert {"ONEDNN_DEFAULT_FPMATH_MODE", "PYTHONHASHSEED"} <= set(start["dropped"])
        assert not {"CUDA_VISIBLE_DEVICES", "PATH", "OMP_NUM_THREADS", "RANK"} & set(start["dropped"])
    (note,) = (line for line in ended.stdout.splitlines() if "ONEDNN_DEFAULT_FPMATH_MODE" in line)
    assert note.startswith("Variables of your shell that workers do not get: ")
