"""Where this process stands among the processes of a job, and how they find each other.

A launcher starts `world_size` processes and says in environment variables which is which; VARIABLES is the one table
of their names. Addresses need no launcher: the ranks write them into the folder of the run, which all nodes share.
"""

import fcntl
import json
import os
import socket
import struct
import time
from typing import Any, Dict, List, Mapping, MutableMapping, NamedTuple, Optional, Sequence, Tuple


class Ranks(NamedTuple):
    """rank of world_size processes; local_rank of local_size on this node. One process has one device.

    addresses, ports: by rank, the IP address at which its node is reached, and a port that was free there. ports[0] is
    for whatever the framework's ranks meet at. role: "worker", or "server" for a process that keeps parameters and does
    not train, see dlperf.adapters.api.ModelModule.serve; each role has ranks of its own. workers, servers: where there
    are servers, "address:port" of each process of a role, by rank.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1
    addresses: Tuple[str, ...] = ()
    ports: Tuple[int, ...] = ()
    role: str = "worker"
    workers: Tuple[str, ...] = ()
    servers: Tuple[str, ...] = ()

    @property
    def nnodes(self) -> int:
        return self.world_size // self.local_size

    @property
    def node_rank(self) -> int:
        """Which node this is: launchers fill one node after the other."""
        return self.rank // self.local_size

    @property
    def endpoints(self) -> List[str]:
        """ "address:port" of each rank."""
        return [f"{address}:{port}" for address, port in zip(self.addresses, self.ports)]


class Lost(Exception):
    """Other ranks did not come, or are not what this one is."""


#: role -> what files and messages call a process of it, and the variable that says how many there are
ROLES = {"worker": ("rank", "DLPERF_WORKER_COUNT"), "server": ("server", "DLPERF_SERVER_COUNT")}
#: launcher -> its variables for rank, world_size, local_rank and local_size. DLPERF_LAUNCHER says which row holds, so
#: that a process started inside somebody's allocation does not take it for its own. "env" is for all others: torchrun's
#: names, which dlperf's own starter of local ranks sets too.
VARIABLES = {
    "env": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    "horovod": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
}


def from_environment(environ: Mapping[str, str] = os.environ) -> Ranks:
    """The ranks and the role that the launcher set; one worker where none is named. KeyError names a variable that it
    did not set."""
    launcher, role = environ.get("DLPERF_LAUNCHER"), environ.get("DLPERF_ROLE", "worker")
    if not launcher:
        return Ranks(role=role)
    names = VARIABLES.get(launcher, VARIABLES["env"])
    return Ranks(*(int(environ[name]) for name in names), role=role)  # type: ignore[arg-type,misc]


def meet(place: Ranks, folder: str, host: str, seconds: float, environ: MutableMapping[str, str] = os.environ) -> Ranks:
    """Tell the other ranks where this one is, and learn where they are. Returns `place` with addresses and ports.

    Sets torchrun's variables too: some frameworks read them as they are imported; the master is worker 0 in each role.
    Lost, which names ranks and hosts, if some do not come within `seconds`.
    """
    address = _own_address([name for name in environ.get("DLPERF_HOSTS", "").split(",") if name])
    own, facts = ROLES[place.role][0], {"host": host, "address": address, "port": _free_port(address)}
    found = _exchange(place, folder, own, facts, seconds)
    place = _placed(place, dict(enumerate(found)))
    master = place.endpoints[0]
    if ROLES["server"][1] in environ:
        ends = {}
        for role, (name, count) in ROLES.items():
            each = place
            if role != place.role:
                others = place._replace(world_size=int(environ[count]))
                each = _placed(others, _gather(others, folder, name, seconds))
            ends[f"{role}s"] = tuple(each.endpoints)
        place = place._replace(**ends)  # type: ignore[arg-type]
        master = place.workers[0]
    environ.update(zip(VARIABLES["env"], map(str, place[:4])))
    environ.update(zip(("MASTER_ADDR", "MASTER_PORT"), master.rsplit(":", 1)))
    return place


def _placed(place: Ranks, found: Mapping[int, Mapping[str, Any]]) -> Ranks:
    """With what the processes of one role said of their addresses, by rank."""
    told = [found[rank] for rank in range(place.world_size)]
    return place._replace(addresses=tuple(one["address"] for one in told), ports=tuple(one["port"] for one in told))


def agree(place: Ranks, folder: str, host: str, versions: Mapping[str, str], seconds: float) -> None:
    """Lost unless all ranks have the same versions."""
    found = _exchange(place, folder, "versions", {"host": host, "versions": versions}, seconds)
    for rank, one in enumerate(found):
        if one["versions"] != found[0]["versions"]:
            raise Lost(
                f"rank {rank} on {one['host']} has {_listed(one['versions'])}, "
                f"rank 0 on {found[0]['host']} has {_listed(found[0]['versions'])}: all must have the same"
            )


def _exchange(place: Ranks, folder: str, name: str, facts: Mapping[str, Any], seconds: float) -> List[Dict[str, Any]]:
    """Write a rank's facts into the shared folder, and read those of all ranks, in their order."""
    path = os.path.join(folder, f"{name}{place.rank}.json")
    with open(path + ".writing", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(path + ".writing", path)
    found = _gather(place, folder, name, seconds)
    return [found[rank] for rank in range(place.world_size)]


def _gather(place: Ranks, folder: str, name: str, seconds: float) -> Dict[int, Dict[str, Any]]:
    """rank -> what it wrote."""
    found, pause, deadline = {}, 0.002, time.monotonic() + seconds
    while True:
        there = set(os.listdir(folder))
        for rank in range(place.world_size):
            if rank not in found and f"{name}{rank}.json" in there:
                with open(os.path.join(folder, f"{name}{rank}.json"), encoding="utf-8") as file:
                    found[rank] = json.load(file)
        missing = [rank for rank in range(place.world_size) if rank not in found]
        if not missing:
            return found
        if time.monotonic() > deadline:
            hosts = ", ".join(sorted({one["host"] for one in found.values()}))
            raise Lost(
                f"{ranks(missing, name)} of {place.world_size} did not come within {seconds:g} s; "
                f"there are {ranks(sorted(found), name)}, on {hosts}"
            )
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def ranks(numbers: Sequence[int], name: str = "rank") -> str:
    """ "rank 3", "ranks 1, 2"; "servers 0, 1"."""
    several = name if name in ("rank", "server") else "rank"
    return (f"{several} " if len(numbers) == 1 else f"{several}s ") + ", ".join(map(str, numbers))


def await_port(address: str, port: int, seconds: float, who: str = "rank 0") -> None:
    """Return when something listens there: libraries ask a few times only, or look again after ten seconds. Lost if
    nothing does within `seconds`. who: it would be."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            return socket.create_connection((address, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
    raise Lost(f"nothing listened at {address}:{port} within {seconds:g} s: {who} may have ended, or not started")


def _own_address(hosts: Sequence[str]) -> str:
    """The IP address at which the other hosts reach this one: that of the interface that leads to them."""
    for host in hosts:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, 9))  # of a datagram socket: chooses the route, sends nothing
            except OSError:
                continue
            address: str = probe.getsockname()[0]
        if not address.startswith("127."):
            return address
    return "127.0.0.1"


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]  # type: ignore[no-any-return]


def interface(address: str) -> Optional[str]:
    """Name of the network interface with this IP address, as Gloo and NCCL want it: "eth0". None if there is none."""
    SIOCGIFADDR = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None
