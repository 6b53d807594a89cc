"""What instructions this process may use, and what a framework's kernels make of them: standard library only.

The names are those of /proc/cpuinfo: avx2, avx512bw, amx_bf16; on Arm asimd, bf16, sve; and its vendor's, GenuineIntel
or AuthenticAMD, by which some libraries choose kernels. On x86-64 they are asked of the
processor itself (CPUID), as the frameworks' libraries do: /proc/cpuinfo is the host's under an emulator, and it may be
hidden.
"""

import ctypes
import mmap
import platform
import sys
from typing import Any, FrozenSet, Iterable, Mapping, Optional, Sequence, Set, Tuple

#: CPUID leaf, subleaf, register (EBX 1, ECX 2, EDX 3, EAX 0) -> bit -> name. Intel's manual, volume 2A, CPUID.
BITS = {
    (1, 0, 2): {0: "pni", 9: "ssse3", 12: "fma", 19: "sse4_1", 20: "sse4_2", 23: "popcnt", 28: "avx", 29: "f16c"},
    (7, 0, 1): {5: "avx2", 16: "avx512f", 17: "avx512dq", 28: "avx512cd", 30: "avx512bw", 31: "avx512vl"},
    (7, 0, 2): {11: "avx512_vnni"},
    (7, 0, 3): {22: "amx_bf16", 23: "avx512_fp16", 24: "amx_tile", 25: "amx_int8"},
    (7, 1, 0): {4: "avx_vnni", 5: "avx512_bf16", 21: "amx_fp16", 23: "avx_ifma"},
    (7, 1, 3): {4: "avx_vnni_int8", 5: "avx_ne_convert"},
}
#: bits of XCR0 that the system must have set for the registers that these use: YMM; ZMM and masks; tiles
STATES = (("avx512", 0xE6), ("amx", 0x60000), ("avx", 0x6), ("fma", 0x6), ("f16c", 0x6))

#: void cpuid(uint32 leaf, uint32 subleaf, uint32 registers[4])
CPUID = bytes.fromhex("53 4989d0 89f8 89f1 0fa2 418900 41895804 41894808 4189500c 5b c3")
#: uint32 xgetbv(): the lower half of XCR0
XGETBV = bytes.fromhex("31c9 0f01d0 c3")
OSXSAVE = 1 << 27

#: what kernels a wheel has for a precision, best first: its own; its own that convert to float32 and back; a plain loop
#: of last resort; none
KERNELS = ("native", "emulated", "reference", "none")
#: of these, those that are worth a row
RUN = KERNELS[:2]


def flags() -> Optional[FrozenSet[str]]:
    """Names of the instruction sets that this process may use; None where nothing tells."""
    if platform.machine() in ("x86_64", "AMD64") and sys.maxsize > 2**32:
        try:
            return _asked()
        except (OSError, ValueError, AttributeError):  # a hardened system maps nothing that is written and run
            pass
    return _listed()


def _asked() -> FrozenSet[str]:
    """By CPUID, less what the system does not save when it switches processes."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CPUID.ljust(64, b"\0") + XGETBV)
    start = ctypes.c_char.from_buffer(page)
    cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(ctypes.addressof(start))
    xgetbv = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(start) + 64)

    def registers(leaf: int, subleaf: int = 0) -> Tuple[int, ...]:
        four = (ctypes.c_uint32 * 4)()
        cpuid(leaf, subleaf, ctypes.addressof(four))
        return tuple(four)

    saved = xgetbv() if registers(1)[2] & OSXSAVE else 0
    _, first, third, second = registers(0)
    found: Set[str] = {
        b"".join(part.to_bytes(4, "little") for part in (first, second, third)).decode("ascii", "replace")
    }
    for (leaf, subleaf, register), names in BITS.items():
        if leaf <= registers(0)[0] and (subleaf == 0 or subleaf <= registers(leaf)[0]):
            value = registers(leaf, subleaf)[register]
            found.update(name for bit, name in names.items() if value >> bit & 1 and _saves(saved, name))
    return frozenset(found)


def _saves(saved: int, name: str) -> bool:
    needed = next((bits for prefix, bits in STATES if name.startswith(prefix)), 0)
    return saved & needed == needed


def _listed() -> Optional[FrozenSet[str]]:
    """What /proc/cpuinfo says of the first processor."""
    vendor = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "vendor_id":
                    vendor = value.split()
                if key.strip() in ("flags", "Features"):
                    return frozenset(value.split() + vendor)
    except OSError:
        pass
    return None


def kernels(entries: Iterable[Mapping[str, Any]], found: Optional[FrozenSet[str]]) -> Optional[Mapping[str, Any]]:
    """The first of an adapter's [[kernels]] entries (see dlperf.catalog.adapter.Kernels) whose `needs` are all in
    `found`; None where nothing is known: no entry is given, or `found` is None."""
    if found is None:
        return None
    return next((entry for entry in entries if found.issuperset(entry["needs"])), None)


def refusal(
    entries: Sequence[Mapping[str, Any]], found: Optional[FrozenSet[str]], allow_reference: bool = False
) -> str:
    """Why a row must not run on a processor that has `found`; empty if it may. entries: as in `kernels`, best first."""
    entry = kernels(entries, found)
    if entry is None or entry["kernels"] in RUN or (entry["kernels"] == "reference" and allow_reference):
        return ""
    arm = "asimd" in found  # type: ignore[operator]
    better = [one for one in entries if one["kernels"] in RUN and ("asimd" in one["needs"]) == arm]
    lacking = [name for name in better[0]["needs"] if name not in found] if better else []  # type: ignore[operator]
    return entry["why"] + ("; this CPU lacks {}".format(", ".join(lacking)) if lacking else "")  # type: ignore[no-any-return]


if __name__ == "__main__":
    print(" ".join(sorted(flags() or ())))
