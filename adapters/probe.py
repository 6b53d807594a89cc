"""What a worker sees of its machine: standard library only."""

import os
import platform
import resource
import socket
import subprocess
import sys
from typing import Any, Dict, List


def machine() -> Dict[str, Any]:
    """The processor, memory and GPUs as this process may use them."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpus": machine_cpus(),
        "gpus": gpus(),
    }


def machine_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # type: ignore[return-value]


def gpus() -> List[str]:
    """Name, memory and driver of each GPU, as nvidia-smi prints them; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.check_output(query, stderr=subprocess.DEVNULL, timeout=20).decode().splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in lines if line.strip()]


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far (ru_maxrss is in KiB on Linux, in bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
