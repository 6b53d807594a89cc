"""How long `python -m dlperf.site` takes for a folder of many archives: make bench-site. They are the published ones,
each under other names and begun at another time, so that each is read, checked and shown as one of its own."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dlperf.archive import tar
from dlperf.comparison.store import MANIFEST, RESULTS

PUBLISHED = Path(__file__).parents[2] / "report" / "published"


def copied(archive: Path, place: Path, number: int) -> None:
    """A published report with its archive, begun in another minute."""
    shutil.copytree(archive.parent, place, ignore=shutil.ignore_patterns(f"*{tar.SUFFIX}"))
    files = tar.unpacked(archive)
    created = json.loads(files[RESULTS])["created"]
    other = f"2025-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}{created[10:]}"
    for name in files.keys() & {RESULTS, MANIFEST}:
        files[name] = files[name].replace(created.encode(), other.encode())
    (place / RESULTS).write_bytes(files[RESULTS])
    files.pop(tar.MANIFEST)
    (place / f"{place.name}{tar.SUFFIX}").write_bytes(tar.packed(place.name, files))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=int, default=100, metavar="N")
    parser.add_argument("--published", action="store_true", help="report/published as it is, instead")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, out = Path(folder, "in"), Path(folder, "out")
        archives = sorted(PUBLISHED.glob(f"*/*{tar.SUFFIX}"))
        for number in range(0 if asked.published else asked.archives):
            copied(archives[number % len(archives)], place / f"report-{number:03}", number)
        began = time.monotonic()
        command = [sys.executable, "-m", "dlperf.site", str(PUBLISHED if asked.published else place), "-o", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        index = (out / "index.html").read_text(encoding="utf-8")
        print(
            f"{seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU time on {len(os.sched_getaffinity(0))} "
            f"threads (load {os.getloadavg()[0]:.1f}); {index.count('>verified<')} links to archives that verify, "
            f"{index.count('does not verify')} that do not"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
