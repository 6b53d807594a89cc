"""What the machine is, for the report: processor, memory, GPUs, system. Linux; standard library only.

Every source may be missing; then its key is missing too. The host's name and addresses are left out, since reports are
published.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlperf import cache
from dlperf.adapters import cpu, gpu

#: instruction sets that decide which kernels a framework picks, as /proc/cpuinfo spells them (x86, then Arm)
INSTRUCTION_SETS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme"),
)
#: cgroup v1 writes "no limit" as a number near 2**63
UNLIMITED = 2**60


def describe() -> dict[str, Any]:
    """The machine as this process may use it. Keys, each only where its source is there:

    cpu (model), architecture, sockets, cores, threads, usable_threads (affinity), cpu_quota (cores, from cgroups),
    instruction_sets, governor, memory_bytes, memory_limit_bytes (cgroups), kernel, os, virtual, container,
    load_average (1, 5 and 15 minutes, now), gpus (list of {name, memory_bytes, compute_capability, shared_bytes: that
    others have taken of it, now}), driver, cuda, topo (text).
    """
    found = {
        **processor(),
        "architecture": platform.machine(),
        "usable_threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu_quota": _cpu_quota(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": _memory(),
        "memory_limit_bytes": _memory_limit(),
        "kernel": f"{platform.system()} {platform.release()}",
        "os": _os(),
        "virtual": _virtual(),
        "container": _container(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        **_gpus(),
    }
    return {key: value for key, value in found.items() if value not in (None, "", [])}


def alike(machines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of nodes: each kind once, with its `count`; what differs from moment to moment tells no kind."""
    kinds: list[dict[str, Any]] = []
    for one in machines:
        told = {key: value for key, value in one.items() if key != "load_average"}
        same = next((kind for kind in kinds if {**kind, "count": 0} == {**told, "count": 0}), None)
        if same is None:
            kinds.append({**told, "count": 1})
        else:
            same["count"] += 1
    return kinds


def usable_cores() -> float:
    """CPUs that this process may use: a control group may allow part of one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(count), _cpu_quota() or float(count))


def available_memory() -> int:
    """Bytes that processes may take without swapping; 0 where Linux does not tell."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    free = int(match[1]) * 1024 if match else 0
    return min(free, _memory_limit() or free)


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


# The processor


def processor() -> dict[str, Any]:
    """Model and topology from /proc/cpuinfo, whose blocks are one per thread; what it has, by the processor itself."""
    text = _read("/proc/cpuinfo") or ""
    threads = [dict(_pairs(block)) for block in text.split("\n\n") if "processor" in block]
    first = threads[0] if threads else {}
    flags = cpu.flags() or ()
    packages, cores = _topology()
    return {
        "cpu": first.get("model name") or _read("/proc/device-tree/model") or platform.processor(),
        "sockets": packages,
        "cores": cores,
        "threads": len(threads) or os.cpu_count(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
    }


def _pairs(block: str) -> Iterator[tuple[str, str]]:
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _topology() -> tuple[int | None, int | None]:
    """Sockets and physical cores that are online."""
    places = [
        (_read(folder / "physical_package_id"), _read(folder / "core_id"))
        for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    ]
    return len({package for package, _ in places}) or None, len(set(places)) or None


# Limits of control groups


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """This process's folder and those above it: a limit anywhere on the way up holds. Version 2, then 1."""
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = Path("/sys/fs/cgroup")
        elif controller in controllers.split(","):
            root = Path("/sys/fs/cgroup", controllers)
        else:
            continue
        folder = root / path.strip("/")
        yield folder
        while folder != root:
            folder = folder.parent
            yield folder


def _cpu_quota() -> float | None:
    """Cores' worth of time that control groups allow; None where they set no limit."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        both = _read(folder / "cpu.max") or (
            f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
        )
        quota, _, period = both.partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _memory_limit() -> int | None:
    limits = []
    for folder in _cgroup_folders("memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or ""
        if limit.isdigit() and int(limit) < UNLIMITED:
            limits.append(int(limit))
    return min(limits, default=None)


# Memory and system


def _memory() -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _os() -> str | None:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release") or "", re.MULTILINE)
    return match[1] if match else None


def _virtual() -> str | None:
    """The hypervisor's name for the machine, or that there is one; None on bare metal, as far as can be seen."""
    if "hypervisor" not in (_read("/proc/cpuinfo") or ""):
        return None
    names = [_read(f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    return " ".join(name for name in names if name) or "yes"


def _container() -> str | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in os.environ or "SINGULARITY_CONTAINER" in os.environ:
        return "apptainer"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return os.environ.get("container") or None  # noqa: SIM112 (systemd and LXC write it small)


# GPUs


def _gpus() -> dict[str, Any]:
    """What nvidia-smi says of those that this process may use; empty without it, or when it does not answer in time."""
    found = gpu.look().gpus
    if not found:
        return {}
    cuda = re.search(r"CUDA Version: ([\d.]+)", gpu.ask("nvidia-smi")[1])
    code, topology = gpu.ask("nvidia-smi", "topo", "-m")
    return {
        "gpus": [_gpu(one) for one in found],
        "driver": found[0].driver,
        "cuda": cuda[1] if cuda else None,
        "topo": topology if code == 0 else None,
    }


def _gpu(one: gpu.Gpu) -> dict[str, Any]:
    told = {"name": one.name, "memory_bytes": one.memory_bytes}
    told |= {"compute_capability": one.capability} if one.capability else {}
    return told | ({"shared_bytes": one.used_bytes} if one.shared else {})


#: variables that say where packages come from
INDEXES = re.compile(r"(PIP|UV)_.*(INDEX|FIND_LINKS|MIRROR|TRUSTED_HOST|INSECURE_HOST).*")


def names(folder: Path) -> dict[str, str]:
    """What a page that others see may not name: this user and host, folders, and hosts of package indexes, with spaces
    between them. folder: a comparison's. They are kept with it, since it may be published from elsewhere."""
    own = {"comparison": os.path.abspath(folder), "cache": str(cache.folder()), "home": os.path.expanduser("~")}
    own |= {"host": socket.gethostname(), "venv": sys.prefix if sys.prefix != sys.base_prefix else ""}
    with suppress(OSError):  # a folder that is gone
        own["cwd"] = os.getcwd()
    with suppress(KeyError):  # a user of a container
        own["user"] = pwd.getpwuid(os.getuid()).pw_name
    own |= {"tmp": os.environ.get("TMPDIR", ""), "indexes": " ".join(sorted(indexes()))}
    return {name: value for name, value in own.items() if value}


def indexes() -> set[str]:
    """Hosts that variables of pip and uv name."""
    told = [value for name, value in os.environ.items() if INDEXES.fullmatch(name)]
    return {host for value in told for host in re.findall(r"://(?:[^/\s@]*@)?([\w.-]+)", value)}


if __name__ == "__main__":  # on another node
    print(json.dumps(describe()))
