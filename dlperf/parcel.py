"""Brings a comparison's folder back through a job's log, where the machine that submitted it does not see the folder.

`python -m dlperf.parcel FOLDER` prints it: an archive in base64 between two lines, the second of which says how many
bytes it has. Of a folder that is larger than MOST, runs/ and code/ stay where they are.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dlperf.archive import tar
from dlperf.errors import reason
from dlperf.launchers.jobs import PLACE, TOLD

BEGIN, END = "-----BEGIN DLPERF RESULTS-----", "-----END DLPERF RESULTS-----"
#: bytes of an archive. Kubelets keep 10 MiB of a log, and base64 makes a third more of it
MOST = 4 * 2**20
#: letters of a line: runtimes split longer ones at 16 KiB, and note the time of each
LINE = 8000
#: what of the job's own comes, too
OF_JOB = f"{PLACE}/{TOLD}"
#: what a report, and a comparison that goes on, can be without
LARGE = ("runs", "code", "proofs", "source", "probes", "look")
WHOLE, PART = "whole", "part"


def printed(folder: Path) -> str:
    """What goes into the log; without a comparison nothing."""
    if not (folder / "comparison.json").is_file():
        return ""
    kind, data = WHOLE, _packed(folder, ())
    if data is None or len(data) > MOST:
        kind, data = PART, _packed(folder, LARGE)
    if data is None or len(data) > MOST:
        return f"{BEGIN}\n{END} {0 if data is None else len(data)} bytes, too large\n"
    text = base64.b64encode(data).decode()
    lines = [text[start : start + LINE] for start in range(0, len(text), LINE)]
    return "\n".join([BEGIN, *lines, f"{END} {len(data)} bytes, {kind}\n"])


def _packed(folder: Path, without: tuple[str, ...]) -> bytes | None:
    """None where it is more than an archive may have."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        wanted = name.as_posix() == OF_JOB or name.parts[0] not in (PLACE, "lock", *without)
        if wanted and path.is_file() and not path.is_symlink():
            files[name.as_posix()] = path.read_bytes()
    try:
        return tar.packed("comparison", files)
    except ValueError:
        return None


def split(text: str) -> tuple[str, str]:
    """A log without the results in it, and these; empty where there are none yet."""
    before, found, results = text.partition(f"{BEGIN}\n")
    if not found and (end := text.rfind(END)) >= 0:  # the log was cut: its older part is gone
        return "", text[end:]
    return before, results


def unpack(results: str, folder: Path) -> str:
    """Write what came back into a folder. What is wanting of it, in a sentence; empty if all is there."""
    match = re.search(rf"^(.*?){END} (\d+) bytes, ({WHOLE}|{PART}|too large)$", results, re.DOTALL | re.MULTILINE)
    if match is None:
        return "Its results did not come back"
    if match[3] == "too large":
        return f"Its results are too large for a log, with {int(match[2]):,} bytes"
    try:
        data = base64.b64decode("".join(match[1].split()), validate=True)
        if len(data) != int(match[2]):
            raise ValueError(f"{len(data):,} of {int(match[2]):,} bytes are there")
        with TemporaryDirectory() as place:
            (Path(place) / "packed").write_bytes(data)
            files = tar.unpacked(Path(place) / "packed")
    except (binascii.Error, tar.Refused, ValueError) as error:
        return f"Its results came back damaged ({reason(error)})"
    for name, content in files.items():
        if name != tar.MANIFEST and (name == OF_JOB or not name.startswith(f"{PLACE}/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return f"Its {', '.join(f'{one}/' for one in LARGE[:2])} did not come back" if match[3] == PART else ""


if __name__ == "__main__":
    sys.stdout.write(printed(Path(sys.argv[1])))
