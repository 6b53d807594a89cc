"""The GPUs that environments have kernels for, read from their wheels: `make capabilities`, or with names of adapters.

Downloads the frameworks' wheels of each CUDA lock, one at a time, and says where adapter.toml differs: exit code 1.
Given a shared library's path, prints what it has. NVIDIA has not published the format of a fat binary; what is read
here agrees with cuobjdump.
"""

import mmap
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.locks import logical_lines

#: begins a module, which has its code for several architectures: magic, version, size of this header, size of the rest
MODULE, MAGIC = struct.Struct("<IHHQ"), 0xBA55ED50
#: begins each of these: kind, -, size of this header, size of the code, -, architecture, -, flags
CODE = struct.Struct("<HHIQ12xI8xQ")
#: of code for one architecture, or its family, alone: sm_90a, sm_103f
SPECIFIC = 0x300000
KINDS = {1: "compute", 2: "sm"}
#: of modules. Some are of libraries that are linked in, and PyTorch's linear algebra has fewer than its other modules
SHARE = 0.8


def section(data: mmap.mmap, wanted: bytes) -> tuple[int, int]:
    """Where an ELF file's section begins and ends; (0, 0) if it has none of that name."""
    if data[:5] != b"\x7fELF\x02":
        return 0, 0
    (table,), (size, count, names) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * number) for number in range(count)]
    for header in headers:
        name = headers[names][4] + header[0]
        if data[name : data.find(b"\0", name)] == wanted:
            return header[4], header[4] + header[5]
    return 0, 0


def modules(path: Path) -> Iterator[set[str]]:
    """What each module of a shared library's fat binaries is for: {"sm_80", "compute_90"}."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at, end = section(data, b".nv_fatbin")
        while at + MODULE.size <= end:
            magic, _, header, size = MODULE.unpack_from(data, at)
            if magic != MAGIC:
                at += 8  # between modules
                continue
            yield set(_codes(data, at + header, at + header + size))
            at += header + size


def _codes(data: mmap.mmap, at: int, end: int) -> Iterator[str]:
    while at < end:
        kind, _, header, size, architecture, flags = CODE.unpack_from(data, at)
        if kind in KINDS and not flags & SPECIFIC:
            yield f"{KINDS[kind]}_{architecture}"
        at += header + size


def summary(found: Iterable[set[str]]) -> list[str]:
    """What nearly all modules have: kernels, then PTX, the oldest first."""
    each = list(found)
    counts = Counter(name for one in each for name in one)
    common = [name for name, count in counts.items() if count >= SHARE * len(each)]
    return sorted(common, key=lambda name: (name.startswith("compute"), int(name.rpartition("_")[2])))


def packages(adapter: Adapter, lock: Path) -> Iterator[tuple[str, str]]:
    """Name and line of those that bring the framework's own kernels."""
    for _, line in logical_lines(lock):
        name = re.split(r"[\[=]", line)[0]
        if any(name == one or name.startswith(f"{one}-cuda") for one in adapter.distribution):
            yield name, line


def of_wheel(line: str, python: str, folder: Path) -> Iterator[set[str]]:
    """Modules of the wheel that a lock's line means."""
    (folder / "lock.txt").write_text(line + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    subprocess.run([*pip, "--python-version", python, "-d", folder, "-r", folder / "lock.txt"], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(r"\.so(\.[\d.]+)?$", name):
                library = Path(archive.extract(name, folder))
                yield from modules(library)
                library.unlink()


def check(adapter: Adapter, key: str) -> bool:
    """Whether adapter.toml says what the wheels have."""
    spec, found = adapter.environments[key], []
    for _, line in packages(adapter, spec.lock):
        with tempfile.TemporaryDirectory() as folder:
            found += of_wheel(line, spec.python[0], Path(folder))
    read = summary(found)
    same = read == list(spec.capabilities)
    print(f"{adapter.name} {key}: {len(found)} modules: {', '.join(read)}{'' if same else ': NOT as in adapter.toml'}")
    return same


def main(words: list[str]) -> int:
    libraries = [Path(word) for word in words if "/" in word]
    for library in libraries:
        print(f"{library}: {', '.join(summary(modules(library)))}")
    known = {} if libraries else reader.adapters()
    chosen = [one for one in known.values() if one.name in words or (not words and one.default)]
    return 0 if all([check(one, key) for one in chosen for key in one.environments if key == "cuda"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
