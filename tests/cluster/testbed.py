"""Two hosts on one machine, for tests and for trying things out: a network namespace, a host name and a hosts file for
each, an sshd on each, and Slurm over both. Needs root, and what install.sh installs.

    with Testbed(folder) as testbed:
        mpirun = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", testbed.rsh, ...]
        subprocess.run(["srun", "-N2", "hostname"], env={**os.environ, **testbed.environment})

`python testbed.py up FOLDER` holds one until Ctrl-C, and prints how to use it.

The hosts share this machine's files and processors; they differ in network, name, /etc/hosts, /sys and `local`, and
have eight GPUs each that do nothing. They
reach each other and this machine, nothing else. Outside the folder only /run/sshd stays behind, which sshd asks for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HOSTS = (1, 2)
PROGRAMS = (
    *("mpirun", "ssh", "ssh-keygen", "sshd", "munged", "slurmctld", "slurmd"),
    *("sbatch", "srun", "scancel", "squeue", "scontrol", "sinfo"),
    *("ip", "ss", "tc", "nsenter", "unshare", "setpriv", "hostname"),
)
PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
#: Seconds; a start takes about two here.
PATIENCE = 60
#: Bytes of a Unix socket's address (sun_path) but for the last, and Slurm's longest beside the folder: a batch step's.
SOCKET_PATH, STEP_SOCKET = 107, "/slurm/spool.node1/node1_9999.4294967291"

#: Runs in a host's own namespaces and holds them open. $1: the host's number, $2: the folder.
HOST = """
set -e
hostname node$1
cd "$2"
mount --bind hosts /etc/hosts
mount --bind nsswitch.conf /etc/nsswitch.conf
mount --bind resolv.conf /etc/resolv.conf
mount --bind slurm /etc/slurm
mount -t tmpfs none local
mkdir local/cgroup
# A /sys that lists this host's network links; the control groups stay as they are.
mount --rbind /sys/fs/cgroup local/cgroup
mount -t sysfs none /sys
mount --rbind local/cgroup /sys/fs/cgroup
umount --recursive local/cgroup
rmdir local/cgroup
mount --bind gpus /usr/local/sbin
touch "node$1.ready"
exec sleep infinity
"""

#: The hosts' nvidia-smi, which this machine does not have: cards that do nothing.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query*) for i in 0 1 2 3 4 5 6 7; do echo "NVIDIA H200, 143771, 580.159.04, 9.0, GPU-$i, Disabled, 4"; done ;;
-L) for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: NVIDIA H200 (UUID: GPU-$i)"; done ;;
esac
"""

#: Runs a command on a host. pid: the process that holds the host's namespaces.
ENTER = """#!/bin/sh
exec nsenter --target {pid} --net --uts --mount --wd="$PWD" -- "$@"
"""

SSHD = """ListenAddress {address}
HostKey {folder}/ssh/host_key
AuthorizedKeysFile {folder}/ssh/key.pub
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
PidFile none
MaxStartups 100
"""

RSH = """#!/bin/sh
exec ssh -F none -i {folder}/ssh/key -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=5 \\
  -o UserKnownHostsFile={folder}/ssh/known_hosts -o GlobalKnownHostsFile=/dev/null "$@"
"""

#: More CPUs than there are (config_overrides), so that tests may oversubscribe. Short times, so that they end soon.
SLURM = """ClusterName={name}
SlurmctldHost={machine}({network}.254)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/slurm/state
SlurmdSpoolDir={folder}/slurm/spool.%n
SlurmctldPidFile={folder}/slurm/slurmctld.pid
SlurmdPidFile={folder}/slurm/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=20
KillWait=5
GresTypes=gpu
NodeName=node1 NodeAddr={network}.1 CPUs=8 RealMemory=4000 Gres=gpu:8
NodeName=node2 NodeAddr={network}.2 CPUs=8 RealMemory=4000 Gres=gpu:8
PartitionName=normal Nodes=ALL PriorityTier=1 Default=YES
PartitionName=urgent Nodes=ALL PriorityTier=2
"""

USE = """Slurm, from this machine:
  export SLURM_CONF={slurm_conf}
  srun -N2 hostname        # a job in the partition `urgent` cancels those in `normal`

Open MPI, from this machine:
  mpirun --allow-run-as-root --mca plm_rsh_agent {rsh} \\
    --mca btl_tcp_if_include {network}.0/24 --mca oob_tcp_if_include {network}.0/24 \\
    --host {addresses} -np 4 hostname

A command on a host:            {folder}/node1 COMMAND...
The links at 1 Gb/s, and back:  {me} shape 1gbit{options}; {me} unshape{options}
A host that nobody reaches:     ip link set {name}-1 down; ip link set {name}-1 up
"""


class TestbedError(Exception):
    """The test bed could not be brought up or used, and why."""

    __test__ = False  # not a test, whatever pytest thinks of the name


def missing() -> str:
    """Why there can be no test bed here, and what to do; empty if there can."""
    programs = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    lacking = ", ".join([*(["root"] if os.geteuid() else []), *programs])
    return lacking and f"two hosts on this machine need {lacking}: `make test-cluster`, as root, installs and runs all"


class Testbed:
    """Two hosts, up between `__enter__` and `__exit__`. What an earlier one of this name left behind is removed first.

    folder: new, empty, or an earlier one's; keys, configurations and logs lie in it, and it stays. name: what its
    namespaces and links begin with. network: the first three numbers of its addresses. Two at a time must differ in
    all three.
    The thread that enters must live as long as the test bed: the daemons die with it, so that they never outlive it.
    """

    __test__ = False  # not a test, whatever pytest thinks of the name

    def __init__(self, folder: Path | str, name: str = "dlperf", network: str = "10.77.0") -> None:
        self.folder = Path(folder).resolve()
        self.name, self.network = name, network
        self.addresses = [f"{network}.{i}" for i in HOSTS]
        self.node_names = [f"node{i}" for i in HOSTS]  # as Slurm, and the hosts themselves, call them
        self.rsh = str(self.folder / "rsh")  # for mpirun --mca plm_rsh_agent, or in place of ssh
        self.local = self.folder / "local"  # a folder that each host has for itself
        self.environment = {"SLURM_CONF": str(self.folder / "slurm" / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._clear_up = contextlib.ExitStack()

    def __enter__(self) -> Testbed:
        if reason := missing():
            raise TestbedError(reason)
        if re.search(r"\s", str(self.folder)):
            raise TestbedError(f"folder {str(self.folder)!r}: Slurm allows no white space in it; take another")
        if len(str(self.folder)) + len(STEP_SOCKET) > SOCKET_PATH:
            most = SOCKET_PATH - len(STEP_SOCKET)
            raise TestbedError(f"folder {str(self.folder)!r}: Slurm's sockets need one of at most {most} characters")
        with self._clear_up:
            self._clear_up.enter_context(_only_one(self.name))
            self._clear_up.callback(self._remove)
            self._remove()
            self._empty_folder()
            self._write_files()
            self._connect()
            self._start()
            self._clear_up = self._clear_up.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._clear_up.close()

    def on(self, i: int, *command: str) -> list[str]:
        """The command that runs `command` on host i, in this working directory."""
        return [str(self.folder / f"node{i}"), *command]

    def shape(self, rate: str) -> None:
        """Limits each host's link, in both directions, to a rate as tc writes it: "1gbit"."""
        for link in self._link_ends():
            _run("tc", *link[:-1], "qdisc", "replace", "dev", link[-1], *_tbf(rate))

    def unshape(self) -> None:
        for link in self._link_ends():
            _run("tc", *link[:-1], "qdisc", "replace", "dev", link[-1], "root", "noqueue")

    def down(self, i: int) -> None:
        """Takes host i's link down: nobody reaches it, and what runs there goes on."""
        _run("ip", "link", "set", self._link(i), "down")

    def up(self, i: int) -> None:
        """Takes host i's link up; returns when the host answers again, also to Slurm."""
        _run("ip", "link", "set", self._link(i), "up")
        self._await_hosts()

    def _link(self, i: int) -> str:
        return f"{self.name}-{i}"

    def _link_ends(self) -> Iterator[tuple[str, ...]]:
        """Both ends of each link, as arguments of tc: what this machine sends there, and what the host sends."""
        for i in HOSTS:
            yield (self._link(i),)
            yield ("-netns", f"{self.name}{i}", "eth0")

    def _empty_folder(self) -> None:
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / "node1").exists():
            raise TestbedError(f"folder {self.folder} has other files in it; take an empty one")
        for part in ("gpus", "log", "munge", "slurm", "ssh"):
            shutil.rmtree(self.folder / part, ignore_errors=True)

    def _write_files(self) -> None:
        for part in ("gpus", "log", "local", "munge", "slurm/state", "ssh"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        machine = socket.gethostname().split(".")[0]
        names = [f"{self.network}.{i} node{i}\n" for i in HOSTS]
        texts = {
            "hosts": "".join(["127.0.0.1 localhost\n::1 localhost\n", *names, f"{self.network}.254 {machine}\n"]),
            "nsswitch.conf": re.sub(r"(?m)^hosts:.*", "hosts: files", Path("/etc/nsswitch.conf").read_text()),
            "resolv.conf": "",
            "rsh": RSH.format(folder=self.folder),
            "gpus/nvidia-smi": NVIDIA_SMI,
            "slurm/gres.conf": f"NodeName=node[1-2] Name=gpu File={self.folder}/gpus/card[0-7]\n",
            **{f"gpus/card{number}": "" for number in range(8)},
            "slurm/slurm.conf": SLURM.format(
                folder=self.folder, machine=machine, name=self.name, network=self.network, port=_free_port()
            ),
        }
        for i, address in zip(HOSTS, self.addresses, strict=True):
            texts[f"ssh/sshd{i}.conf"] = SSHD.format(folder=self.folder, address=address)
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        for name in ("rsh", "gpus/nvidia-smi"):
            (self.folder / name).chmod(0o755)
        self._write_keys()

    def _write_keys(self) -> None:
        ssh = self.folder / "ssh"
        for name in ("host_key", "key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name))
        everyone = ",".join([*self.addresses, *self.node_names])
        (ssh / "known_hosts").write_text(f"{everyone} {(ssh / 'host_key.pub').read_text()}")
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))

    def _connect(self) -> None:
        """The bridge, and a namespace with a link to it for each host."""
        bridge = f"{self.name}0"
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.network}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for i, address in zip(HOSTS, self.addresses, strict=True):
            host, link = f"{self.name}{i}", self._link(i)
            _run("ip", "netns", "add", host)
            _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host)
            _run("ip", "link", "set", link, "master", bridge, "up")
            _run("ip", "-netns", host, "address", "add", f"{address}/24", "dev", "eth0")
            for inner in ("lo", "eth0"):
                _run("ip", "-netns", host, "link", "set", inner, "up")

    def _start(self) -> None:
        socket_, key, log = (self.folder / part for part in ("munge/socket", "munge/key", "log/munged.log"))
        files = [f"--socket={socket_}", f"--key-file={key}", f"--log-file={log}"]
        kept = [f"--{name}-file={self.folder}/munge/{name}" for name in ("pid", "seed")]
        # --force: the folders above may be closed to other users, as pytest's are.
        self._daemon("munged", "munged", "--foreground", "--force", *files, *kept)
        for i in HOSTS:
            self._start_host(i)
        self._await("munged", socket_.exists)
        slurm_conf = self.environment["SLURM_CONF"]
        self._daemon("slurmctld", "slurmctld", "-D", "-f", slurm_conf)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = shutil.which("sshd", path=PATH) or "sshd"  # it wants its absolute path
        for i in HOSTS:
            self._daemon(f"sshd{i}", *self.on(i, sshd, "-D", "-e", "-f", f"{self.folder}/ssh/sshd{i}.conf"))
            self._daemon(f"slurmd{i}", *self.on(i, "slurmd", "-D", "-N", f"node{i}", "-f", slurm_conf))
        self._await_hosts()

    def _start_host(self, i: int) -> None:
        ready, enter = self.folder / f"node{i}.ready", self.folder / f"node{i}"
        ready.unlink(missing_ok=True)
        # Not `ip netns exec`: it hides the control groups.
        spaces = ["nsenter", f"--net=/run/netns/{self.name}{i}", "unshare", "--uts", "--mount"]
        command = [*spaces, "--propagation", "private", "sh", "-c", HOST, "sh", str(i), str(self.folder)]
        enter.write_text(ENTER.format(pid=self._daemon(f"host{i}", *command).pid))
        enter.chmod(0o755)
        self._await(f"host {i}", ready.exists)

    def _daemon(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Starts what runs until the end, and dies with this thread, however that ends. Its output goes to the log."""
        with self._log(name).open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": PATH, "LANG": "C.UTF-8"},
                start_new_session=True,  # Ctrl-C is for us
            )
        return self._daemons[name]

    def _log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.log"

    def _await_hosts(self) -> None:
        for i, address in zip(HOSTS, self.addresses, strict=True):
            self._await(f"sshd of host {i}", lambda address=address: _answers(address))
            self._await(f"Slurm on node{i}", lambda i=i: self._is_in_service(f"node{i}"))

    def _is_in_service(self, node: str) -> bool:
        """Whether slurmctld has heard from the node; a state that ends in * means that it has not of late."""
        sinfo = ["sinfo", "--noheader", "--Node", f"--nodes={node}", "--partition=normal", "--format=%T"]
        state = subprocess.run(sinfo, env={**os.environ, **self.environment}, capture_output=True, text=True).stdout
        return state.strip() in ("idle", "mixed", "allocated", "completing")

    def _await(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_there():
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    raise TestbedError(f"{name} ended with {daemon.returncode}. Its log ends with:\n{self._end(name)}")
            if time.monotonic() > deadline:
                raise TestbedError(f"{what} did not answer within {PATIENCE} s; the logs are in {self.folder / 'log'}")
            time.sleep(0.05)

    def _end(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-10:])

    def _remove(self) -> None:
        """Kills the daemons and all that runs on the hosts, then removes hosts and links: ours, or an earlier run's."""
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        self._daemons.clear()
        hosts = [host for i in HOSTS if Path(f"/run/netns/{(host := f'{self.name}{i}')}").exists()]
        for host in hosts:
            _empty(host)
        # All links go after that: the bridge changes its address when it loses one, and then nothing reaches it.
        for link in [*map(self._link, HOSTS), f"{self.name}0"]:
            if Path(f"/sys/class/net/{link}").exists():
                _run("ip", "link", "delete", link)
        for host in hosts:
            _run("ip", "netns", "delete", host)


@contextlib.contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Holds the name: an abstract socket, which ends with the process and leaves no file."""
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0{name}-testbed")
        except OSError as error:
            raise TestbedError(f"a test bed {name!r} is up already, {_holder(name)}; end it first") from error
        held.listen()
        yield


def _holder(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(f"\0{name}-testbed")
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return f"held by process {struct.unpack('3i', credentials)[0]}"


def _empty(namespace: str) -> None:
    """Kills all that runs in a network namespace, and what that starts meanwhile. Then waits until the other ends know
    that their connections are closed: with the link gone before that, an ssh client would wait for ever."""
    while pids := _run("ip", "netns", "pids", namespace).split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                _kill(int(pid))
    deadline = time.monotonic() + 2  # the other end may be unreachable
    open_ = ("state", "connected", "exclude", "time-wait", "exclude", "fin-wait-2")
    while _run("ss", "--net", namespace, "--tcp", "--no-header", *open_) and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill(pid: int) -> None:
    """Returns when the process has closed what it had open, which is later than it leaves its namespaces."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        if not select.select([process], [], [], PATIENCE)[0]:
            raise TestbedError(f"process {pid} does not end")
    finally:
        os.close(process)


def _tbf(rate: str) -> list[str]:
    """A token bucket of 1 ms at 1 Gb/s: small enough to leave no mark on a rate, large enough for a busy machine."""
    return ["root", "tbf", "rate", rate, "burst", "125kb", "latency", "50ms"]


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, 22), timeout=1).close()
    except OSError:
        return False
    return True


def _run(*command: str) -> str:
    done = subprocess.run(command, env={**os.environ, "PATH": PATH}, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def hold(testbed: Testbed) -> None:
    """Up until Ctrl-C or SIGTERM; what then stops here is taken down."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts us in the background has SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    me = f"{sys.executable} {Path(__file__).resolve()}"
    options = "" if testbed.name == "dlperf" else f" --name {testbed.name}"
    with contextlib.suppress(KeyboardInterrupt), testbed:
        words = {"me": me, "options": options, "folder": testbed.folder, "rsh": testbed.rsh}
        words |= {"network": testbed.network, "name": testbed.name, "slurm_conf": testbed.environment["SLURM_CONF"]}
        print(USE.format(addresses=",".join(f"{address}:2" for address in testbed.addresses), **words))
        print("Up. Ctrl-C takes all down.", flush=True)
        signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring it up, print how to use it, stay until Ctrl-C")
    up.add_argument("folder")
    up.add_argument("--network", default="10.77.0", help="first three numbers of the addresses (default: 10.77.0)")
    shape = commands.add_parser("shape", help="limit the links of the one that is up")
    shape.add_argument("rate", help="as tc writes it: 1gbit")
    unshape = commands.add_parser("unshape", help="lift that limit")
    for command in (up, shape, unshape):
        command.add_argument("--name", default="dlperf", help="what namespaces and links begin with (default: dlperf)")
    asked = parser.parse_args()
    try:
        if asked.command == "up":
            hold(Testbed(asked.folder, asked.name, asked.network))
        elif asked.command == "shape":
            Testbed(".", asked.name).shape(asked.rate)
        else:
            Testbed(".", asked.name).unshape()
    except TestbedError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
