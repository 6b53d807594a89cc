"""Samples the GPUs of a run by NVML: `python -m dlperf.adapters.nvml FILE COUNT WORKER [PYTHON...]`.

A process of its own, since a call of NVML waits for the driver as long as that takes; it ends with WORKER, the process
that starts it. It needs the standard library and pynvml (the package nvidia-ml-py); where this interpreter lacks that,
it becomes the next of PYTHON. COUNT: devices that this node's ranks have, the first of those that CUDA_VISIBLE_DEVICES
leaves. FILE gets a JSON object per line, first one of

    {"gpus": ["NVIDIA H200"], "python": ...}
    {"not_sampled": "pynvml is not installed in /usr/bin/python3"}

and then, every INTERVAL seconds, {"time": seconds since 1970, "gpus": [{...}, ...]} with the READINGS of each card. One
that a card does not give is left out.
"""

import contextlib
import importlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, TextIO, Tuple

from dlperf.adapters import gpu
from dlperf.adapters.spawn import die_with_parent

INTERVAL = 0.1
#: samples between two looks at what takes NVML longer, and changes seldom
SELDOM = 10


class Card(NamedTuple):
    """own: its handle; of a part of a card (MIG) the part's, whose clocks and power are those of the whole card."""

    name: str
    own: Any
    whole: Any

    @property
    def divided(self) -> bool:
        return self.own is not self.whole


#: what is read at each sample: MHz, W, J since the driver was loaded, degrees, bits of nvmlClocksEventReasons, bytes
READINGS = {
    "sm_mhz": lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card.whole, nvml.NVML_CLOCK_SM),
    "memory_mhz": lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card.whole, nvml.NVML_CLOCK_MEM),
    "watts": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card.whole) / 1e3,
    "joules": lambda nvml, card: nvml.nvmlDeviceGetTotalEnergyConsumption(card.whole) / 1e3,
    "celsius": lambda nvml, card: nvml.nvmlDeviceGetTemperature(card.whole, nvml.NVML_TEMPERATURE_GPU),
    "throttle": lambda nvml, card: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card.whole),
    "memory_bytes": lambda nvml, card: nvml.nvmlDeviceGetMemoryInfo(card.own).used,
}  # type: Mapping[str, Callable[[Any, Card], float]]
#: those of a divided card are of others' work too
NOT_OF_A_PART = ("watts", "joules")


def _others(nvml: Any, card: Card) -> int:
    """Processes of other runs, and of other people, that compute on a card."""
    pids = [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(card.own)]
    if not _sees_all_processes():
        raise LookupError("ids of other processes mean nothing in a container")
    return sum(map(_foreign, pids))


def _ecc_errors(nvml: Any, card: Card) -> int:
    """Corrected and uncorrected ones since the driver was loaded."""
    kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    return sum(nvml.nvmlDeviceGetTotalEccErrors(card.whole, kind, nvml.NVML_VOLATILE_ECC) for kind in kinds)


#: what is read once in SELDOM samples
SLOW_READINGS = {"others": _others, "ecc_errors": _ecc_errors}  # type: Mapping[str, Callable[[Any, Card], float]]
#: the first PID namespace of a Linux: include/linux/proc_ns.h, PROC_PID_INIT_INO
FIRST_NAMESPACE = "pid:[4026531836]"


def _sees_all_processes() -> bool:
    return os.readlink("/proc/self/ns/pid") == FIRST_NAMESPACE


def _foreign(pid: int) -> bool:
    """Whether a process is of another run. Those of this one have its session, or work in its folder."""
    try:
        if os.getsid(pid) == os.getsid(0):
            return False
    except OSError:  # it has ended
        return False
    try:
        return os.readlink(f"/proc/{pid}/cwd") != os.getcwd()
    except OSError:  # another user's
        return True


def main(argv: Sequence[str]) -> int:
    path, count, worker, pythons = argv[0], int(argv[1]), int(argv[2]), argv[3:]
    die_with_parent()
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        if pythons:
            os.execv(pythons[0], [pythons[0], "-m", "dlperf.adapters.nvml", *argv[:3], *pythons[1:]])
        missing = isinstance(error, ModuleNotFoundError) and error.name == "pynvml"
        why = f"pynvml is not installed in {sys.executable}" if missing else f"pynvml fails to import: {error}"
        return _write_reason(path, why)
    try:
        nvml.nvmlInit()
        cards = chosen(found(nvml))[:count]
    except Exception as error:
        return _write_reason(path, f"NVML: {error}")
    if not cards:
        return _write_reason(path, "NVML finds none of the GPUs that CUDA_VISIBLE_DEVICES leaves")
    with open(path, "w", encoding="utf-8") as file:
        _write(file, {"gpus": [card.name for card in cards], "python": sys.executable})
        sample(nvml, cards, file, lambda: os.getppid() == worker)
    return 0


def _write_reason(path: str, why: str) -> int:
    with open(path, "w", encoding="utf-8") as file:
        _write(file, {"not_sampled": why})
    return 1


def _write(file: TextIO, line: Mapping[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def found(nvml: Any) -> List[Tuple[Card, Tuple[str, ...]]]:
    """All cards, or the parts that they are divided into, with the words by which CUDA_VISIBLE_DEVICES names them."""
    cards = []  # type: List[Tuple[Card, Tuple[str, ...]]]
    for index in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        name = _text(nvml.nvmlDeviceGetName(whole))
        parts = list(_parts(nvml, whole)) if _divided(nvml, whole) else [whole]
        for number, own in enumerate(parts):
            words = (str(index) if number == 0 else "", _text(nvml.nvmlDeviceGetUUID(own)))
            cards.append((Card(name if own is whole else _text(nvml.nvmlDeviceGetName(own)), own, whole), words))
    return cards


def _divided(nvml: Any, whole: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(whole)[0])
    except nvml.NVMLError:  # a card without MIG
        return False


def _parts(nvml: Any, whole: Any) -> Any:
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
        with contextlib.suppress(nvml.NVMLError):  # numbers without a part
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, number)


def _text(value: Any) -> str:
    """Older releases of pynvml return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def chosen(cards: Sequence[Tuple[Card, Tuple[str, ...]]]) -> List[Card]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; one part alone where it begins with a part, as CUDA."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    left = [card for card, _ in cards] if asked is None else gpu.chosen(cards, asked.split(","))
    return left[:1] if left and left[0].divided else left


def sample(nvml: Any, cards: Sequence[Card], file: TextIO, wanted: Callable[[], bool]) -> None:
    """Write samples as long as they are wanted."""
    seldom = [{} for _ in cards]  # type: List[Dict[str, float]]
    number, due = 0, time.monotonic()
    while wanted():
        if number % SELDOM == 0:
            seldom = [_read(nvml, card, SLOW_READINGS) for card in cards]
        now, gpus = time.time(), [_read(nvml, card, READINGS) for card in cards]
        for one, slow in zip(gpus, seldom):
            one.update(slow)
        _write(file, {"time": now, "gpus": gpus})
        number, due = number + 1, max(due + INTERVAL, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _read(nvml: Any, card: Card, readings: Mapping[str, Callable[[Any, Card], float]]) -> Dict[str, float]:
    values = {}  # type: Dict[str, float]
    for name, read in readings.items():
        value = None if card.divided and name in NOT_OF_A_PART else _value(nvml, card, read)
        if value is not None:
            values[name] = value
    return values


def _value(nvml: Any, card: Card, read: Callable[[Any, Card], float]) -> Optional[float]:
    """None where this card, driver or release of pynvml does not give it."""
    try:
        return read(nvml, card)
    except (nvml.NVMLError, AttributeError, LookupError, OSError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
