"""The flags of compare and verify: one row each, from which their parsers and the spec's defaults are made."""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache

from dlperf import launchers
from dlperf.adapters.api import PS_MODES
from dlperf.adapters.compression import KINDS
from dlperf.launchers.containers import ARGUMENTS, ENGINES
from dlperf.models import ALIASES, FAMILIES, FORMATS, GROUPS


@dataclass(frozen=True)
class Flag:
    """help: of compare, with {placeholders} that `add_to` fills. verify: of verify; "" for the same, None where verify
    has no such flag. compare: whether compare has it. takes: "value", "list" (with commas), "several" (given again and
    again), "nothing", or nothing or one of these: "=rows,full". default: the text that stands for "not given", in the
    spec. asks: whether it is part of what is asked for, so that --resume contradicts it.
    """

    group: str
    names: str
    metavar: str
    help: str
    verify: str | None = None
    compare: bool = True
    takes: str = "value"
    default: str | None = None
    asks: bool = True

    @property
    def key(self) -> str:
        """As argparse and Spec call it: batch_size."""
        return self.keys[0]

    @property
    def keys(self) -> tuple[str, ...]:
        """Of all its long names."""
        return tuple(name[2:].replace("-", "_") for name in self.names.split() if name.startswith("--"))

    @property
    def flag(self) -> str:
        """As a message calls it: --batch-size."""
        return "--" + self.key.replace("_", "-")


def _models() -> str:
    """Those that have a title: "resnet50, bert (= bert_base), bert_base_512, bert_large"; and names of several."""
    shorter = {name: alias for alias, name in ALIASES.items()}
    titled = [name for family in FAMILIES.values() for name in family.TITLES]
    words = [f"{shorter[name]} (= {name})" if name in shorter else name for name in titled]
    return ", ".join([*words, *(f"{name} (= {len(of)} of them)" for name, of in GROUPS.items())])


WHAT, WHERE, RANKS, OFTEN, OUTPUT = (
    "what to compare",
    "where",
    "how many ranks, and what starts them",
    "how often",
    "output",
)
PRECISION = (
    "fp32, tf32, amp (fp16 on CUDA, bf16 on CPU), fp16, bf16; default: fp32; auto: amp, or fp32 where fewer than three "
    "frameworks have kernels for amp"
)
MODELS = ",".join(family.DEFAULT for family in FAMILIES.values() if family.DEFAULT)
TUNED = (
    "both (default), on, off: beside rows as released those tuned for this CPU, by what a framework does not document"
)
SOURCE = "checkout of a third-party script, for --frameworks ngc-...; or NAME=DIR,..."
REFERENCE = "run rows whose kernels on this CPU are slow reference loops"
EMULATE = "run the workers on a CPU that qemu-user emulates: Haswell; no speed is real"
AGAIN = "rows of each table made twice, to see how far apart equal ones come out; default: 1 with dlperf, else 0"
UNTIL = "instead of --repeats: runs of each row are added until the half width of each ratio is within P, such as 2%%"
STRICT = "for CI: exit code 3 where a row failed, also in one repeat alone, or is not comparable"
SPEC = (
    "a TOML file with these options by their names, or a comparison.json or results.json, whose request it repeats; "
    "what is given beside it wins"
)
SIZE = (
    "instead of both: sizes as reports have them, each a row: 1n1d,1n8d,2n16d (2 nodes with 16 devices together); "
    "1n8d-b64 has a batch of 64 per device, 1n2d+2s two parameter servers"
)
SWEEP = (
    "a row for each value of batch-size, workers (ranks on all nodes together) or servers: batch-size=32,64; given "
    "again, one after the other, while all else is as other flags have it"
)
PARALLELISM = "data (default): each rank has all parameters; parameter-server: servers have them, and workers train"
SERVERS = "parameter servers, on all nodes together; several with commas, each a row; default with them: 1"
MODE = f"how servers take what workers push: {', '.join(PS_MODES)}; several, each a row; default: sync,async"
COMPRESSION = f"of gradients between ranks: {', '.join(KINDS)}; several, each a row; default: none"
BANDWIDTH = (
    "of the links between nodes that are emulated on this machine, in Gb/s: 0.1,1; each a row; default: as fast as "
    "they are"
)
LATENCY = "the same: milliseconds that what a node sends to another takes, one way: 1,10"
CROSSED = "with several --sweep: each value of one with each of the others"
ALLOCATION = (
    "what one job of Slurm's or Kubernetes' holds: comparison (default: all rows, in turns); Slurm's also row, or run"
)
ATTACH = "follow the jobs of a comparison that was submitted, until they have ended; Ctrl-C leaves them alone"
FLAGS = (
    Flag(WHAT, "-m --model", "M,...", f"{_models()}; default: {MODELS}", "", default=MODELS, takes="list"),
    Flag(
        WHAT,
        "--sequence-length",
        "N",
        "tokens of a row, of models that have several: with 512 bert is bert_base_512",
        "",
    ),
    Flag(
        WHAT,
        "-p --precision",
        "P,...",
        PRECISION,
        "fp64 (default), fp32, tf32, amp, fp16, bf16",
        default="fp32",
        takes="list",
    ),
    Flag(WHAT, "-f --frameworks", "F,...", "default: all", "", default="all", takes="list"),
    Flag(
        WHAT,
        "-b --batch-size --batch-size-per-device",
        "N",
        "per device; default: DLPerf's on CUDA; max: what its memory holds",
    ),
    Flag(WHAT, "--global-batch-size", "N", "over all devices, instead of --batch-size"),
    Flag(WHAT, "--data", "DIR", "synthetic (default), or a folder made by python -m dlperf.data", default="synthetic"),
    Flag(
        WHAT,
        "--input",
        "I,...",
        "with --data: native (default: the framework's own pipeline), dali; each a row",
        takes="list",
    ),
    Flag(WHAT, "--format", "F,...", "with --data: {formats}; default: what is there", takes="list"),
    Flag(WHAT, "--compile", "on|off", "the framework's compiler; on,off makes a row of each", "", takes="list"),
    Flag(WHAT, "--tuned", "T", TUNED, default="both"),
    Flag(WHAT, "--source", "DIR", SOURCE, takes="list"),
    Flag(
        WHAT,
        "--set",
        "KEY=VALUE",
        "an adapter's option: clip_norm=off, pytorch.layout=nchw; each of graph=on,off a row",
        "",
        takes="several",
    ),
    Flag(WHAT, "--spec", "FILE", SPEC, asks=False),
    Flag(WHAT, "--full-size", "", "the real size of the input in any precision: slow in float64", "", False, "nothing"),
    Flag(WHERE, "--device", "D", "auto (default), cpu or cuda", "", default="auto"),
    Flag(
        WHERE,
        "--env",
        "E",
        "venv (default: made on first use, which alone needs a network), current (this interpreter), {engines}",
        "",
        default="venv",
    ),
    Flag(
        WHERE,
        "--image",
        "I,...",
        "for containers: REF, ngc or FRAMEWORK=REF; default: python -m dlperf.images",
        "",
        takes="list",
    ),
    Flag(WHERE, "--container-arg", "KEY=VALUE", "for containers: {arguments}", "", takes="several"),
    Flag(WHERE, "--threads", "N", "CPU threads for each rank; default: all usable CPUs, over the ranks of a node", ""),
    Flag(WHERE, "--allow-reference", "", REFERENCE, takes="nothing"),
    Flag(WHERE, "--emulate-cpu", "CPU", EMULATE),
    Flag(RANKS, "--nnodes", "N,...", "nodes; several with commas, each with each --nproc-per-node a row", takes="list"),
    Flag(
        RANKS,
        "--nproc-per-node",
        "N,...",
        "ranks on each node, one device each; default: 1",
        "2 proves that two ranks together do the work of one, too; default: 1",
        takes="list",
    ),
    Flag(RANKS, "--parallelism", "P", PARALLELISM),
    Flag(RANKS, "--servers", "N,...", SERVERS, takes="list"),
    Flag(RANKS, "--workers", "N,...", "ranks on all nodes together, instead of --nproc-per-node", takes="list"),
    Flag(RANKS, "--ps-mode", "M,...", MODE, takes="list"),
    Flag(RANKS, "--gradient-compression", "K,...", COMPRESSION, "", takes="list"),
    Flag(RANKS, "--bandwidth", "G,...", BANDWIDTH, takes="list"),
    Flag(RANKS, "--latency", "MS,...", LATENCY, takes="list"),
    Flag(RANKS, "--size", "S,...", SIZE, takes="list"),
    Flag(RANKS, "--sweep", "KEY=N,...", SWEEP, takes="several"),
    Flag(RANKS, "--crossed", "", CROSSED, takes="nothing"),
    Flag(RANKS, "--hosts", "H,...", "the nodes' names or addresses; NAME:SLOTS limits the ranks there", takes="list"),
    Flag(RANKS, "--hostfile", "FILE", "instead: one a line, as Open MPI has it (NAME slots=N)"),
    Flag(RANKS, "--launcher", "L", "auto (default), {launchers}"),
    Flag(RANKS, "--launcher-arg", "KEY=VALUE", "an argument of the launcher: partition=gpu", takes="several"),
    Flag(RANKS, "--allocation", "A", ALLOCATION),
    Flag(
        RANKS,
        "--max-node-hours",
        "H",
        "what jobs of Slurm's or Kubernetes' may take at most, nodes times hours",
        asks=False,
    ),
    Flag(
        RANKS,
        "--predict",
        "N,...",
        "numbers of devices whose throughput the report predicts from the rows",
        takes="list",
    ),
    Flag(
        OFTEN, "--protocol", "P", "dlperf (20 + 100 steps, 7 repeats; default on CUDA), quick or fast (default on CPU)"
    ),
    Flag(OFTEN, "--warmup-steps", "N", "instead of the protocol's"),
    Flag(OFTEN, "--windows", "N", "instead of the protocol's"),
    Flag(OFTEN, "--steps-per-window", "N", "instead of the protocol's"),
    Flag(OFTEN, "-r --repeats", "N", "fresh processes for each row, instead of the protocol's"),
    Flag(OFTEN, "--until", "P", UNTIL),
    Flag(OFTEN, "--max-blocks", "N", "with --until: runs of each row at most; default: 40"),
    Flag(
        OFTEN,
        "--max-time",
        "S",
        "with --until: of all runs together, after which none is added: seconds, or 90s, 15m, 2h",
    ),
    Flag(OFTEN, "--aa", "N", AGAIN),
    Flag(OFTEN, "--seed", "N", "of weights, batches and order; default: 1"),
    Flag(OFTEN, "--timeout", "S", "for one run: seconds, or 90s, 15m, 2h; default: 7200 with dlperf, else 1200", ""),
    Flag(OFTEN, "--no-verify", "", "make no proofs of the same work; rows without one are marked", takes="nothing"),
    Flag(
        OUTPUT,
        "-o --output",
        "DIR",
        "a new folder; default: runs/<date and time>",
        "a new folder for the report: proof.md, proof.html, certificates.json",
        asks=False,
    ),
    Flag(OUTPUT, "--resume", "DIR", "run what is missing in the folder of an interrupted comparison", asks=False),
    Flag(OUTPUT, "--retry-failed", "", "with --resume: run failed runs again, too", takes="nothing", asks=False),
    Flag(
        OUTPUT,
        "--only",
        "ID,...",
        "run these rows of the plan alone; --resume runs the others",
        takes="list",
        asks=False,
    ),
    Flag(OUTPUT, "--detach", "", "with Slurm or Kubernetes: submit the job, and end", takes="nothing", asks=False),
    Flag(OUTPUT, "--attach", "DIR", ATTACH, asks=False),
    Flag(OUTPUT, "--strict", "", STRICT, takes="nothing", asks=False),
    Flag(
        OUTPUT,
        "--dry-run",
        "plan|full",
        "print the plan and the command of each row, run nothing; plan: without commands; full: all, as a script",
        "print every command, run nothing",
        takes="=rows,plan,full",
        asks=False,
    ),
    Flag(
        OUTPUT,
        "-y --yes",
        "",
        "on a terminal, ask nothing of what takes more than an hour",
        takes="nothing",
        asks=False,
    ),
    Flag(OUTPUT, "-q --quiet", "", "no progress", "", takes="nothing", asks=False),
    Flag(
        OUTPUT,
        "--publish",
        "",
        "",
        "for dlperf's developers: make these trajectories the reference",
        False,
        "nothing",
        asks=False,
    ),
)
#: of those that make the spec, the value that stands for "not given"
DEFAULTS: dict[str, object] = {flag.key: flag.default for flag in FLAGS if flag.asks and flag.compare}


def about(flag: Flag, command: str) -> str:
    """What --help says of a flag, as argparse wants it: with %% for a percent sign."""
    return ((flag.verify if command == "verify" else "") or flag.help).format(**_facts())


@cache
def _facts() -> Mapping[str, str]:
    return {
        "arguments": ", ".join(ARGUMENTS),
        "engines": ", ".join(ENGINES),
        "formats": ", ".join(FORMATS),
        "launchers": ", ".join(launchers.names()),
    }


def add_to(parser: argparse.ArgumentParser, command: str, only: Container[str] | None = None) -> None:
    """The flags of "compare" or "verify". only: the keys of those that are wanted; None for all."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for flag in FLAGS:
        if not (flag.compare if command == "compare" else flag.verify is not None):
            continue
        if only is not None and flag.key not in only:
            continue
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group)
        group = groups[flag.group]
        help = about(flag, command)
        if flag.takes == "nothing":
            group.add_argument(*flag.names.split(), action="store_true", default=None, help=help)
        elif flag.takes.startswith("="):
            usual = flag.takes[1:].partition(",")[0]
            group.add_argument(*flag.names.split(), nargs="?", const=usual, metavar=flag.metavar, help=help)
        else:
            action = "append" if flag.takes == "several" else "store"
            group.add_argument(*flag.names.split(), action=action, metavar=flag.metavar, help=help)
