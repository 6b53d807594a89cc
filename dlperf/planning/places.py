"""Where ranks go: how many nodes, ranks on each, which hosts, and what starts them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from itertools import islice, product
from typing import Any

from dlperf import launchers
from dlperf.adapters.api import PS_MODES
from dlperf.errors import did_you_mean, either, whole_number
from dlperf.launchers import Jobs, Launcher
from dlperf.planning import hosts as hosts_
from dlperf.planning.arguments import MOST, Arguments, split, whole
from dlperf.planning.hosts import Host

#: of one system: pairs of --nnodes and --nproc-per-node at most
ROWS = 10_000


#: nodes, ranks on each, and a batch size and a number of parameter servers, 0 for those of all rows
Size = tuple[int, int, int, int]
#: what --sweep takes, and the largest value
SWEPT = {"batch-size": MOST["batch_size"], "workers": MOST["workers"], "servers": MOST["servers"]}
#: of what a size has, what is counted
LIMITED = ("nnodes", "nproc_per_node", "servers")
PARALLELISM = ("data", "parameter-server")
#: of what a link has, the least and the most. Gb/s: below it nothing ends, beyond it is no memory. ms: below it is what
#: a process takes to wake up
LINKS = {"bandwidth": (0.001, 1000.0), "latency": (0.1, 1000.0)}


class Places(Arguments):
    """Checks --size, --sweep, --nnodes, --nproc-per-node, --hosts, --hostfile, --launcher, --launcher-arg, and
    --allocation."""

    def places(self, run: bool) -> dict[str, Any]:
        """Where ranks go: nodes, ranks on each, hosts, launcher. run: whether any framework is run."""
        hosts = self.hosts()
        sized = self.sweep(hosts) or self.workers(hosts) or self.sizes()
        sizes = tuple((nodes, ranks) for nodes, ranks, _, _ in sized)
        batches = tuple(batch for _, _, batch, _ in sized)
        of_sizes = tuple(servers for *_, servers in sized)
        nnodes = tuple(dict.fromkeys(nodes for nodes, _ in sizes)) or self.nodes(hosts)
        nproc = tuple(dict.fromkeys(ranks for _, ranks in sizes)) or self.counts("nproc_per_node", (1,))
        if len(nnodes) * len(nproc) > ROWS:
            says = f"with --nproc-per-node they make {len(nnodes) * len(nproc):,} rows of each system. Name fewer."
            self.problem("nnodes", self.arguments.get("nnodes") or "", says)
        if hosts and max(nnodes) > len(hosts):
            named = "1 host is" if len(hosts) == 1 else f"{len(hosts)} hosts are"
            self.problem("nnodes", max(nnodes), f"only {named} named. Name more hosts, or ask for fewer nodes.")
        for name, slots in hosts_.too_small(hosts[: max(nnodes)], max(nproc)).items():
            self.problem(
                "nproc_per_node", max(nproc), f"{name} has slots for {slots}. Ask for fewer ranks on each node."
            )
        launcher = self.launcher(max(nnodes), hosts) if run else launchers.find("local")
        servers, ps_modes = self.servers(nnodes, of_sizes, launcher)
        return {
            "servers": servers,
            "servers_of_sizes": of_sizes if any(of_sizes) else (),
            "ps_modes": ps_modes,
            "bandwidths": self.links("bandwidth", launcher, max(nnodes)),
            "latencies": self.links("latency", launcher, max(nnodes)),
            "nnodes": nnodes,
            "nproc_per_node": nproc,
            "sizes": sizes,
            "batches": batches if any(batches) else (),
            "hosts": tuple(host.name for host in hosts),
            "launcher": launcher.name,
            "launcher_arguments": self.launcher_arguments(launcher),
            "allocation": self.allocation(launcher),
        }

    def servers(
        self, nnodes: Sequence[int], of_sizes: Sequence[int], launcher: Launcher
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Numbers of parameter servers and their modes; none where each rank has all parameters. of_sizes: those that
        sizes have of their own, or 0."""
        parallelism = self.choice("parallelism", PARALLELISM) if self.arguments.get("parallelism") else "data"
        if parallelism == "data":
            most = max(of_sizes, default=0)
            own = ("sweep", f"servers={most}") if self.arguments.get("sweep") else ("size", f"+{most}s")
            given = [(name, self.arguments.get(name)) for name in ("servers", "ps_mode")]
            for name, value in [*given, *([own] if most else [])]:
                if value:
                    says = "there are no parameter servers. Add --parallelism parameter-server, or leave it out."
                    self.problem(name, value, says)
            return (), ()
        if not launcher.starts_servers:
            able = either([one.name for one in map(launchers.find, launchers.names()) if one.starts_servers])
            self.problem("launcher", launcher.name, f"it starts no parameter servers yet. Choose --launcher {able}.")
        servers = self.counts("servers", (1,))
        for count in {*servers, *filter(None, of_sizes)}:
            if any(count % nodes for nodes in nnodes):
                nodes = either([str(one) for one in nnodes])
                self.problem("servers", count, f"they are not as many on each of {nodes} nodes. Choose a multiple.")
        modes = self.listed("ps_mode", tuple(PS_MODES)) if self.arguments.get("ps_mode") else ("sync", "async")
        return servers, modes

    def links(self, name: str, launcher: Launcher, nnodes: int) -> tuple[float, ...]:
        """Those of --bandwidth 0.1,1 or --latency 1,10."""
        if not self.arguments.get(name):
            return ()
        if not launcher.emulates:
            able = either([one.name for one in map(launchers.find, launchers.names()) if one.emulates])
            says = f"{launcher.name} starts ranks on nodes whose links are what they are. Choose --launcher {able}."
            self.problem(name, self.arguments[name], says)
        elif nnodes == 1:
            self.problem(name, self.arguments[name], "one node has no link. Ask for --nnodes 2.")
        return self.decimals(name, (1.0,), *LINKS[name])

    def sizes(self) -> tuple[Size, ...]:
        """Those of --size 1n1d,1n8d,2n16d-b64,1n2d+2s, as reports have them."""
        found = []
        for word in self.words("size"):
            match = re.fullmatch(r"([0-9]{1,4})n([0-9]{1,7})d(?:\+([0-9]{1,4})s)?(?:-b([0-9]{1,8}))?", word)
            nodes, devices, servers, batch = (int(one or 0) for one in match.groups()) if match else (0, 0, 0, 0)
            if not nodes or not devices or devices % nodes or word.endswith("-b0") or "+0s" in word:
                allowed = "1n8d for 8 devices on one node, 2n16d for 16 on two: as many on each; 1n8d-b64; 1n2d+2s"
                self.wrong("size", word, allowed)
            elif batch > MOST["batch_size"]:
                self.wrong("size", word, f"a batch that is {whole('batch_size')}")
            elif any(n > MOST[name] for name, n in zip(LIMITED, (nodes, devices // nodes, servers), strict=True)):
                most = "{:,} nodes, {:,} devices on each, and {:,} servers".format(*(MOST[name] for name in LIMITED))
                self.problem("size", word, f"there are at most {most}.")
            else:
                found.append((nodes, devices // nodes, batch, servers))
        for name in ("nnodes", "nproc_per_node"):
            if found and self.arguments.get(name):
                self.problem(name, self.arguments[name], "--size is given too. Leave out one of them.")
        return tuple(dict.fromkeys(found))

    @property
    def linked(self) -> bool:
        """Whether anything is asked of links."""
        return any(self.arguments.get(name) for name in LINKS)

    def nodes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Those of --nnodes; without, as many as there are hosts, or a link's two."""
        return self.counts("nnodes", (len(hosts) or (2 if self.linked else 1),))

    def workers(self, hosts: Sequence[Host]) -> tuple[Size, ...]:
        """Those of --workers 2,4, ranks on all nodes together; empty without."""
        if not self.arguments.get("workers"):
            return ()
        for name in ("size", "nproc_per_node"):
            if self.arguments.get(name):
                self.problem(name, self.arguments[name], "--workers is given too. Leave out one of them.")
        each = product(self.nodes(hosts), self.counts("workers", (1,)))
        return tuple(dict.fromkeys(self._with((nodes, 1, 0, 0), "workers", count, "workers") for nodes, count in each))

    def sweep(self, hosts: Sequence[Host]) -> tuple[Size, ...]:
        """Those of --sweep batch-size=32,64 --sweep workers=1,2: the values of one after those of the other, or each
        with each; empty without."""
        factors = self._factors()
        crossed = bool(self.arguments.get("crossed"))
        if crossed and len(factors) < 2:
            says = "it takes the values of one --sweep with those of another. Give --sweep twice, or leave it out."
            self.problem("crossed", "", says)
        if not factors:
            return ()
        if self.arguments.get("size"):
            self.problem("sweep", "", "--size is given too. Leave out one of them.")
        each = (self.nodes(hosts), self.counts("nproc_per_node", (1,)))
        base = list(self.workers(hosts)) or [(nodes, ranks, 0, 0) for nodes, ranks in product(*each)]
        found = base if crossed else []
        for name, values in factors.items():
            swept = [self._with(size, name, value) for size in (found if crossed else base) for value in values]
            found = swept if crossed else [*found, *swept]
        return tuple(dict.fromkeys(found))

    def _factors(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for text in self.arguments.get("sweep") or ():
            name, _, values = str(text).partition("=")
            numbers = [whole_number(one, most=SWEPT.get(name, 1)) for one in split(values)]
            if name not in SWEPT:
                self.wrong("sweep", text, either([f"{one}=N,..." for one in SWEPT]), did_you_mean(name, SWEPT))
            elif None in numbers or not numbers:
                self.wrong("sweep", text, f"{name}= whole numbers from 1 to {SWEPT[name]:,}, with commas")
            elif name in found:
                self.problem("sweep", text, f"{name} is swept twice. Give all its values at once.")
            else:
                found[name] = tuple(one for one in numbers if one)
        return found

    def _with(self, size: Size, name: str, value: int, flag: str = "sweep") -> Size:
        nodes, ranks, batch, servers = size
        if name == "batch-size":
            return nodes, ranks, value, servers
        if name == "servers":
            return nodes, ranks, batch, value
        if value % nodes or value // nodes > MOST["nproc_per_node"]:
            says = f"they are not as many on each of {nodes} nodes. Choose multiples of {nodes}."
            most = f"there are at most {MOST['nproc_per_node']} on a node."
            given = f"workers={value}" if flag == "sweep" else value
            self.problem(flag, given, says if value % nodes else most)
            return size
        return nodes, value // nodes, batch, servers

    def allocation(self, launcher: Launcher) -> str:
        """What one job of the engine's holds; empty for one that has none."""
        if not launcher.allocations:
            for name in ("allocation", "detach", "max_node_hours"):
                if self.arguments.get(name):
                    has = either([one.name for one in map(launchers.find, launchers.names()) if one.allocations])
                    says = f"{launcher.name} has no jobs. Leave it out, or choose --launcher {has}."
                    self.problem(name, "" if name == "detach" else self.arguments[name], says)
            return ""
        return (
            self.choice("allocation", launcher.allocations)
            if self.arguments.get("allocation")
            else launcher.allocations[0]
        )

    def hosts(self) -> tuple[Host, ...]:
        flag, file = self.arguments.get("hosts"), self.arguments.get("hostfile")
        if flag and file:
            self.problem("hostfile", file, "--hosts is given too. Leave out one of them.")
        asked = self.arguments.get("launcher")
        engine = launchers.find(asked) if asked in launchers.names() else None
        if isinstance(engine, Jobs) and engine.inside() and not (flag or file or self.arguments.get("only")):
            return tuple(Host(name, None) for name in engine.hosts())
        if not flag and not file:
            return ()
        found = hosts_.from_flag(str(flag), self.problems) if flag else hosts_.from_file(str(file), self.problems)
        unknown = hosts_.unknown(() if self.arguments["dry_run"] else found)
        for name in islice(unknown, 10):  # each may take the resolver seconds
            self.problem("hosts" if flag else "hostfile", name, "this machine cannot resolve that name.")
        return found

    def launcher(self, nnodes: int, hosts: Sequence[Host]) -> Launcher:
        name = self.choice("launcher", ("auto", *launchers.names())) if self.arguments.get("launcher") else "auto"
        if name == "auto":
            name = "mpi" if hosts else "emulated" if self.linked else "slurm" if nnodes > 1 else "local"
            if name == "slurm" and not shutil.which("sbatch"):
                step = "Name them with --hosts or --hostfile (Open MPI over ssh), or choose another --launcher."
                self.problem("nnodes", nnodes, f"no host is named, and Slurm's sbatch is not on PATH. {step}")
                return launchers.find("local")
        found = launchers.find(name)
        if nnodes > 1 and not found.many_nodes:
            step = f"For {nnodes} nodes choose {either(launchers.names(nnodes))}."
            self.problem("launcher", name, f"it starts {found.about}. {step}")
        elif nnodes > 1 and found.needs_hosts and not hosts:
            self.problem("launcher", name, "it needs the names of the nodes. Give them with --hosts or --hostfile.")
        missing = "" if self.arguments["dry_run"] else found.missing()
        if missing:
            others = [launchers.find(one) for one in launchers.names(nnodes)]
            usable = [one.name for one in others if not one.missing() and not one.in_environment]
            self.problem("launcher", name, missing + (f", or choose {either(usable)}." if usable else "."))
        return found

    def launcher_arguments(self, launcher: Launcher) -> dict[str, str]:
        site = self.arguments.get("site") or {}
        given = {**site.get(launcher.name, {}), **self.pairs("launcher_arg", "KEY=VALUE")}
        allowed = ", ".join(launcher.arguments) or "none"
        for key in given:
            if key not in launcher.arguments:
                hint = did_you_mean(key, launcher.arguments)
                self.wrong("launcher_arg", key, f"{allowed} (launcher {launcher.name})", hint)
        for key, may_be in launcher.wrong(given):
            self.wrong("launcher_arg", f"{key}={given[key]}", may_be)
        for key in launcher.required:
            if key not in given:
                self.problem(
                    "launcher", launcher.name, f"--launcher-arg {key}=... is missing: {launcher.arguments[key]}."
                )
        return given
