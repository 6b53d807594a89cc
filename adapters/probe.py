"""What a worker sees of its machine: standard library only."""

import os
import platform
import resource
import socket
import sys
from typing import Any, Dict


def machine() -> Dict[str, Any]:
    """The system and its processors as this process may use them."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpus": machine_cpus(),
    }


def machine_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # type: ignore[return-value]


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far (ru_maxrss is in KiB on Linux, in bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak_memory() -> None:
    """Have `peak_memory_bytes` count from now on, where the kernel can (Linux); see proc(5), clear_refs."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass
