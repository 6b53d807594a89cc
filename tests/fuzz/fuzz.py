"""Inputs that libFuzzer makes, for all that reads others' logs and tables: whatever it is given, nothing comes out but
dlperf's own errors. `make fuzz`; by hand `python tests/fuzz/fuzz.py logs|tables FOLDER [-runs=N -max_len=N ...]`.

FOLDER keeps what reached new lines, and begins with a log of each format and a table of each kind."""

import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / "helpers")]
with atheris.instrument_imports(include=["dlperf.importlogs", "dlperf.audit", "dlperf.figures", "dlperf.upstream"]):
    from dlperf.audit import reading, rules
    from dlperf.errors import UsageError
    from dlperf.importlogs import read
    from dlperf.importlogs.formats import formats
    from dlperf.importlogs.recognise import Refused

FORMS = formats()
SIZE = {"nodes": "1", "devices_per_node": "8", "batch": "32", "precision": "fp32"}
SUFFIXES = (".csv", ".md", ".html", ".json", ".log", ".tsv", ".jsonl", "")
PLACE = Path(tempfile.mkdtemp(prefix="dlperf-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
LOG = PLACE / "fuzz.log"


def logs(data: bytes) -> None:
    """The first byte says whether flags tell the size."""
    LOG.write_bytes(data[1:])
    with suppress(Refused):
        read.read(LOG, "fuzz.log", FORMS, None, SIZE if data[:1] < b"\x80" else {})


def tables(data: bytes) -> None:
    """The first byte is the file's kind."""
    path = PLACE / f"fuzz{SUFFIXES[data[0] % len(SUFFIXES)] if data else ''}"
    path.write_bytes(data[1:])
    with suppress(UsageError):
        rules.audit(reading.file(path))


def seeds(what: str) -> list[bytes]:
    if what == "logs":
        from invented_logs import CASES

        return [b"\0" + "\n".join(lines)[:4000].encode() for lines, *_ in CASES.values()]
    told = (TESTS / "audit" / "planted.txt").read_text(encoding="utf-8")
    found = []
    for block in told.split("=== ")[1:]:
        head, _, text = block.partition("\n")
        suffix = Path(head.split("|")[2].strip()).suffix
        text = re.sub(r"«([^|»]*)\|[^»]*»", r"\1", text)
        found.append(bytes([SUFFIXES.index(suffix) if suffix in SUFFIXES else 0]) + text[:4000].encode())
    return found


def main() -> None:
    what, folder, *given = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(what)):
        Path(folder, f"seed-{number}").write_bytes(data)
    atheris.Setup([sys.argv[0], folder, *given], {"logs": logs, "tables": tables}[what])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
