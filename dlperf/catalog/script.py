"""Third-party training scripts: where one comes from, how it is run, and what its log says; and imported figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlperf.catalog.environment import Replacement

#: what a script calls its batch size -> the placeholder that has it
BATCHES = ("device", "node", "global", "tokens")
#: what the rate that a script prints is of
RATES = ("all", "node", "device", "step", "node step")


@dataclass(frozen=True)
class Source:
    """Where a script that is not ours comes from. It is given by --source, checked and copied, never kept here.

    commit: its hash, or where nobody tells it a tag or branch. replace: edits of the copy. copies: files -> what they
    are also called, as they are before the edits.
    """

    repository: str
    commit: str
    replace: tuple[Replacement, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return self.commit[:7] if re.fullmatch("[0-9a-f]{40}", self.commit) else self.commit

    @property
    def checkout(self) -> str:
        """The commands that get it."""
        folder = self.repository.rstrip("/").rpartition("/")[2]
        return f"git clone {self.repository} && git -C {folder} checkout {self.commit}"


@dataclass(frozen=True)
class Part:
    """Some of a script's command, variables, declarations or remarks, where each condition of `when` holds.

    when: condition or option -> the values for which it holds.
    """

    when: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Log:
    """How a script tells its progress.

    line: with the named groups `step`, and of `timestamp`, `seconds` and `rate` the one that times it: the moment that
    the step ended, the seconds of the steps since the line before, their rate; `loss` where it is printed; beside
    timestamp or seconds, `samples` where steps differ: how many one had over all devices, of several since the line
    before the mean.
    first: what the script calls its first step. every: steps from line to line. timestamp: its format, as
    strptime has it, "epoch", or "elapsed" of a clock from zero.
    rate_of: what a rate counts, one of RATES. milliseconds: whether `seconds` are those.
    ranks: "one" if one rank prints, "node" if one of each node does, "all" if each does.
    """

    line: re.Pattern[str]
    first: int = 0
    every: int = 1
    timestamp: str = ""
    rate_of: str = "all"
    milliseconds: bool = False
    ranks: str = "one"

    @property
    def tells_samples(self) -> bool:
        return "samples" in self.line.groupindex

    @property
    def estimator(self) -> str:
        """What the seconds of a window are, in words."""
        groups = self.line.groupindex
        if "timestamp" in groups:
            return "difference of its log's timestamps"
        return "sum of its log's seconds" if "seconds" in groups else "sum of samples over its log's rates"


@dataclass(frozen=True)
class Script:
    """How the third-party script for one model is run and read.

    folder: what of the repository is needed. inside: where an image gets it mounted, or has it. input: what feeds it,
    one of INPUTS; an option of that name overrides it. data: where an image gets --data mounted, or has its data.
    batch: what its argument for the batch size means, one of BATCHES. batch_size: precision -> DLPerf's batch per
    device, where it is not that of the others. start: "node" where its command must run on each node. stops: whether it
    ends by itself after `steps`. warmup_steps: the least that DLPerf's protocol drops. extra_steps: run at
    the end, but not measured. command, variables, effective (what it computes, by reading it), differs (what it
    computes otherwise than the native scripts): see Part.
    """

    model: str
    folder: str
    inside: str
    input: str
    data: str
    batch: str
    batch_size: Mapping[str, int]
    start: str
    stops: bool
    warmup_steps: int
    extra_steps: int
    log: Log
    command: tuple[Part, ...]
    variables: tuple[Part, ...]
    effective: tuple[Part, ...]
    differs: tuple[Part, ...]


@dataclass(frozen=True)
class Imported:
    """Runs that were made elsewhere, of one model at one size, and what is known of them.

    files: a log of each run, and `log` how they tell; or else rates: samples per second over all devices that were
    published for each run. source: where they are from, for a reader of the report. precision: of dlperf.precision.
    batch_size: per device. differs, effective, versions: as far as the source tells, see Script and Record.
    """

    model: str
    device: str
    precision: str
    batch_size: int
    nnodes: int
    nproc_per_node: int
    input: str
    source: str
    files: tuple[Path, ...] = ()
    log: Log | None = None
    rates: tuple[float, ...] = ()
    differs: str = ""
    effective: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        return len(self.files or self.rates)

    @property
    def size(self) -> tuple[int, int, int]:
        return self.nnodes, self.nproc_per_node, self.batch_size

    @property
    def about(self) -> dict[str, str]:
        """What a reader must know of the row, see schema.ABOUT."""
        estimator = self.log.estimator if self.log else "the rate that was published"
        return {"source": self.source, "estimator": estimator, "differs": self.differs}
