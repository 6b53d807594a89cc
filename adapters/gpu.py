"""The NVIDIA GPUs that a process may use, as nvidia-smi tells, and what runs on them: standard library only.

A kernel compiled for sm_XY (compute capability X.Y) runs on cards of X.Z with Z >= Y; PTX, compute_XY, on all of X.Y
and later, where the driver compiles it: NVIDIA, CUDA C++ Programming Guide, "Binary compatibility" and what follows it.
"""

import glob
import os
import re
import subprocess
from typing import Any, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from dlperf.adapters import cpu

#: nvidia-smi hangs when a driver is stuck
TIMEOUT_SECONDS = 20.0
#: what nvidia-smi is asked; those of drivers before 510, which know no compute capability
FIELDS = ("name", "memory.total", "driver_version", "compute_cap", "uuid", "mig.mode.current", "memory.used")
OLD_FIELDS = FIELDS[:3]
#: major version of CUDA -> the least driver. NVIDIA, CUDA Compatibility, "Minor version compatibility", Linux
LEAST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580"}
#: more than the driver holds of an idle card; a process holds some hundred MiB before its first tensor
IDLE_BYTES = 256 * 2**20
#: CUDA_VISIBLE_DEVICES of one who wants no GPU
NOTHING = ("", "-1", "none", "NoDevFiles")


class Gpu(NamedTuple):
    """capability: "9.0"; empty where the driver does not tell. memory_bytes: None of a part of a card (MIG), whose
    profile is in its name. used_bytes: of it, when we looked; None where nvidia-smi does not tell, and of a part."""

    name: str
    memory_bytes: Optional[int]
    driver: str
    capability: str
    used_bytes: Optional[int] = None

    @property
    def shared(self) -> bool:
        """Whether somebody else had work on it when we looked."""
        return (self.used_bytes or 0) > IDLE_BYTES

    @property
    def about(self) -> str:
        """What distinguishes its results from another's."""
        capability = "compute capability {}".format(self.capability or "unknown")
        return f"{self.name}, {capability}, driver {self.driver}"


class Look(NamedTuple):
    """gpus: that this process may use, in CUDA's order. why: in words, where there is none. blocked: there is one,
    and something other than the user's wish keeps it from us."""

    gpus: Tuple[Gpu, ...]
    why: str = ""
    blocked: bool = False


def look() -> Look:
    """Which GPUs there are. CUDA_VISIBLE_DEVICES chooses among them."""
    device = next(iter(sorted(glob.glob("/dev/nvidia[0-9]*"))), "")
    code, text = ask("nvidia-smi", _query(FIELDS), "--format=csv,noheader,nounits")
    if code == 2:  # it does not know one of them
        code, text = ask("nvidia-smi", _query(OLD_FIELDS), "--format=csv,noheader,nounits")
    if code is None:
        step = "Install it with the driver; in a container, set NVIDIA_DRIVER_CAPABILITIES=utility,compute"
        return Look((), f"{device} is there, but {text}. {step}" if device else "", bool(device))
    if code:
        said = next(iter(text.splitlines()), "") or f"exit code {code}, and no word"
        return Look((), f"nvidia-smi fails: {said}", bool(device))
    found = [_named(index, line) for index, line in enumerate(text.splitlines()) if line.count(",") >= 2]
    return _visible([one for group in found for one in group], found)


def seen() -> str:
    """What `look` finds, in words, for a framework that finds something else."""
    found = look()
    return "nvidia-smi: " + ("; ".join(one.about for one in found.gpus) or found.why or "not on PATH")


def _query(fields: Sequence[str]) -> str:
    return "--query-gpu=" + ",".join(fields)


#: a GPU with the words by which CUDA_VISIBLE_DEVICES may name it: its number, its UUID
_Named = Tuple[Gpu, Tuple[str, ...]]
_T = TypeVar("_T")


def _named(index: int, line: str) -> List[_Named]:
    """A card, or the parts that it is divided into (MIG), of which its number means the first."""
    cells = [cell.strip() for cell in line.split(",")] + [""] * len(FIELDS)
    name, mebibytes, driver, capability, uuid, divided, used = cells[: len(FIELDS)]
    capability = capability if re.match(r"\d+\.\d+$", capability) else ""
    if divided != "Enabled":
        return [(Gpu(name, _bytes(mebibytes), driver, capability, _bytes(used)), (str(index), uuid))]
    parts = _parts(index)
    return [
        (Gpu(f"{name} {profile}", None, driver, capability), (str(index) if part == 0 else "", own))
        for part, (profile, own) in enumerate(parts)
    ]


def _bytes(mebibytes: str) -> Optional[int]:
    return int(mebibytes) * 2**20 if mebibytes.isdigit() else None


def _parts(index: int) -> List[Tuple[str, str]]:
    """Profile and UUID of each part of a divided card: ("MIG 1g.10gb", "MIG-...")."""
    listed = re.split(r"^GPU (\d+):", ask("nvidia-smi", "-L")[1], flags=re.MULTILINE)
    of_card = dict(zip(listed[1::2], listed[2::2])).get(str(index), "")
    return re.findall(r"^\s+(MIG \S+)\s+Device\s+\d+:\s+\(UUID: (\S+)\)", of_card, flags=re.MULTILINE)


def _visible(found: List[_Named], cards: Sequence[Sequence[_Named]]) -> Look:
    """Those that CUDA_VISIBLE_DEVICES leaves: it is read up to the first word that means no GPU. A process sees one
    part of a divided card, and nothing else."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not found:
        why = "nvidia-smi lists {}".format("GPUs in MIG mode that have no instance" if cards else "no GPU")
        return Look((), why + ("; make one (nvidia-smi mig -cgi), or switch it off" if cards else ""), bool(cards))
    left = [gpu for gpu, _ in found] if asked is None else chosen(found, asked.split(","))
    if not left:
        numbers = " to ".join(sorted({"0", str(len(cards) - 1)}))
        why = "CUDA_VISIBLE_DEVICES={} names none of this machine's GPUs ({}). Unset it, or name one: {}"
        return Look((), why.format(asked, found[0][0].name, numbers), (asked or "").strip() not in NOTHING)
    return Look(tuple(left[:1] if " MIG " in left[0].name else left))


def chosen(found: Sequence[Tuple[_T, Tuple[str, ...]]], words: Sequence[str]) -> List[_T]:
    """Those that the words of CUDA_VISIBLE_DEVICES name, up to the first that names none. found: each with its number
    and its UUID."""
    left: List[_T] = []
    for word in (word.strip() for word in words):
        fits = [one for one, (number, uuid) in found if word and (word == number or _begins(uuid, word))]
        if len(fits) != 1:
            break
        left += fits
    return left


def _begins(uuid: str, word: str) -> bool:
    return word[:4] in ("GPU-", "MIG-") and uuid.startswith(word)


def ask(*command: str) -> Tuple[Optional[int], str]:
    """Exit code and output of a command, without its colours; None and what is wrong where it is missing or takes more
    than TIMEOUT_SECONDS."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None, f"{command[0]} is not on PATH"
    assert process.stdout is not None
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        # Not waited for: a process stuck in the driver does not even die of SIGKILL.
        process.kill()
        process.stdout.close()
        return None, f"{command[0]} does not answer within {TIMEOUT_SECONDS:g} s"
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output.decode(errors="replace"))
    return process.returncode, text.strip("\n")


#: "0" keeps cuBLAS and cuDNN from TF32, whatever a framework asks of them
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def allow_tf32(allowed: bool) -> None:
    """Whether this process's NVIDIA libraries may take TF32 for float32, which they read when they are loaded."""
    os.environ.pop(TF32_OVERRIDE, None)
    if not allowed:
        os.environ[TF32_OVERRIDE] = "0"


def tf32_allowed() -> bool:
    return os.environ.get(TF32_OVERRIDE) != "0"


# What runs


def runs(gpus: Sequence[Gpu]) -> Optional[FrozenSet[str]]:
    """What all of these run: sm_XY, kernels; compute_XY, PTX. None where one's compute capability is unknown."""
    if not gpus or not all(gpu.capability for gpu in gpus):
        return None
    return frozenset.intersection(*(_runs(*map(int, gpu.capability.split("."))) for gpu in gpus))


def _runs(major: int, minor: int) -> FrozenSet[str]:
    kernels = {f"sm_{major}{one}" for one in range(minor + 1)}
    older = {f"compute_{one}{other}" for one in range(1, major) for other in range(10)}
    return frozenset(kernels | older | {f"compute_{major}{one}" for one in range(minor + 1)})


def refusal(entries: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu], cuda: Optional[int] = None) -> str:
    """Why a row must not run on these GPUs; empty if it may. entries: as in `cpu.kernels`. cuda: the major version that
    its libraries are of."""
    least = LEAST_DRIVER.get(cuda or 0, "")
    if least and gpus and _numbers(gpus[0].driver) and _numbers(gpus[0].driver) < _numbers(least):
        return f"CUDA {cuda} needs driver {least} or newer; this machine has {gpus[0].driver}"
    entry = cpu.kernels(entries, runs(gpus))
    if entry is None or entry["kernels"] in cpu.RUN:
        return ""
    cards = {gpu.name: "sm_" + gpu.capability.replace(".", "") for gpu in gpus}
    return "{}; {}".format(entry["why"], " and ".join(f"{name} is {kind}" for name, kind in cards.items()))


def _numbers(version: str) -> Tuple[int, ...]:
    """ "525.60.13" as numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
