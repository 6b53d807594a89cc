"""How long `python -m dlperf.importlogs` takes for trees of 100 MB, by format, and how much memory: make bench-logs."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2020, 9, 15)


def stamp(seconds: float, mark: str = ".") -> str:
    return (START + timedelta(seconds=seconds)).strftime(f"%Y-%m-%d %H:%M:%S{mark}%f")


def paddle_clas(at: int) -> str:
    costs = "batch_cost: 0.30000s, reader_cost: 0.10000s, ips: 106.66667 images/sec, eta: 1 day, 2:03:01"
    return (
        f"[2021/06/01 12:00:00] root INFO: [Train][Epoch 1/120][Iter: {at * 10}/5000005]lr: 0.1, loss: 7.0, {costs}\n"
    )


def tensorflow1(at: int) -> str:
    return f"DLL {stamp(at * 0.3)} - (0, {at + 200}) total_ips : 3413.3333333 \n"


def mxnet(at: int) -> str:
    """Of 32 ranks."""
    step, rank = divmod(at, 32)
    told = f"Epoch[0] Batch [{step}-{step}]\tSpeed: 392.20 samples/sec\tLR: 0.001"
    return f"[1,{rank}]<stderr>:{stamp(step * 0.3, ',')[:-3]}:INFO: {told}\n"


def lightning(at: int) -> str:
    seconds = at // 5
    clock = f"{seconds // 60:02d}:{seconds % 60:02d}"
    return f"Epoch 0:  10%|█         | {at + 1}/90000000 [{clock}<03:00,  5.00it/s, v_num=0, loss=1.2]\r"


#: a line of each, and the bytes of a log
FORMATS: dict[str, tuple[Callable[[int], str], int]] = {
    "ngc-tensorflow1-benchmark": (tensorflow1, 5_000_000),
    "ngc-mxnet": (mxnet, 400_000),
    "paddle-clas": (paddle_clas, 5_000_000),
    "lightning": (lightning, 5_000_000),
}


def tree(place: Path, line: Callable[[int], str], each: int, size: int) -> None:
    for run in range(1, size // each + 1):
        log = place / "4n8g" / f"r50_b32_fp32_{run}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        lines, written, at = [], 0, 0
        while written < each:
            lines.append(line(at))
            written, at = written + len(lines[-1].encode()), at + 1
        log.write_text("".join(lines) + "\n" * run)  # copies would count once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000_000, help="bytes of each tree")
    size = parser.parse_args().size
    with tempfile.TemporaryDirectory() as folder:
        for name, (line, each) in FORMATS.items():
            tree(Path(folder, name), line, each, size)
            tree(Path(folder, "a mix of them", name), line, each, size // len(FORMATS))
        for name in (*FORMATS, "a mix of them"):
            words = [sys.executable, "-m", "dlperf.importlogs", str(Path(folder, name))]
            began = time.monotonic()
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            print(f"{name}: {time.monotonic() - began:.1f} s, {peak} MiB at the most so far", flush=True)


if __name__ == "__main__":
    main()
