"""A comparison from its request to its report: what the command and `dlperf.compare` of Python share."""

from __future__ import annotations

import inspect
import textwrap
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from dlperf import __version__, flags, given
from dlperf.errors import (
    Problem,
    RunError,
    UsageError,
    clean,
    did_you_mean,
    hold_signals,
    ignore_signals,
    interrupts,
    lent_signals,
    release_signals,
)
from dlperf.flags import DEFAULTS, Flag

if TYPE_CHECKING:  # functions import what they use, so that --help and a wrong flag are answered at once
    import pandas

    from dlperf.catalog.adapter import Adapter
    from dlperf.comparison.estimate import Estimate
    from dlperf.comparison.store import Store
    from dlperf.planning.plan import Plan
    from dlperf.planning.spec import Spec
    from dlperf.schema import Comparison, Skip


@dataclass(frozen=True, repr=False)
class Compared:
    """What came of a comparison. folder: absolute. comparison: all that a report shows, see dlperf.schema."""

    folder: Path
    comparison: Comparison

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def rows(self) -> pandas.DataFrame:
        """The rows of the report's tables, see dlperf.figures.ranked.rows."""
        import pandas

        from dlperf.figures import ranked

        made = pandas.DataFrame(ranked.rows(self.comparison))
        return made.astype(ranked.TYPES) if len(made) else made

    @property
    def runs(self) -> pandas.DataFrame:
        """One row for each run, as dlperf.load has it."""
        import pandas

        from dlperf.figures.rows import rows

        return pandas.DataFrame(rows(self.comparison))

    def __repr__(self) -> str:
        return f"{clean(summary(self.comparison))}\nReport: {self.report}"

    def _repr_html_(self) -> str:
        from dlperf import report

        return report.tables_html(self.comparison)

    def _repr_markdown_(self) -> str:
        from dlperf import report

        return "\n".join(report.tables(self.comparison).values())


@overload
def compare(*, dry_run: Literal[True, "plan", "rows", "full"], **options: object) -> str: ...
@overload
def compare(*, dry_run: Literal[False] | None = None, **options: object) -> Compared: ...
def compare(**options: object) -> Compared | str:
    """Train the same models in several frameworks, as the command does, and return who was faster.

    Keywords are the options of `python -m dlperf.compare --help`, with _ for -: model="bert", batch_size=4,
    frameworks=["pytorch", "jax"], set={"clip_norm": "off"}, resume=folder. It prints nothing, unless quiet=False; with
    dry_run=True it runs nothing and returns the plan and commands as text; "plan": that alone; "full": every command.

    UsageError for what cannot be asked; with strict=True RunError where a row failed or is not comparable; a
    KeyboardInterrupt comes after the report of what had been run.
    """
    alone = [name for name in COMMANDS_OWN if options.get(name) is not None]
    if alone:
        says = "only the command takes it: python -m dlperf.compare. Leave it out."
        raise UsageError(Problem(_keyword(name), "", says=says) for name in alone)
    asked = given.arguments(options, _keyword)
    keywords = {flag.flag: _keyword(flag.key) for flag in given.OPTIONS.values()}
    with given.named(keywords):
        asked, places = given.merged(asked)
    asked["quiet"] = options.get("quiet") is not False
    with lent_signals(), given.named({**keywords, **places}):
        return _compare(asked)


def options() -> dict[str, Flag]:
    """Those of `compare`, by their keywords."""
    return {flag.key: flag for flag in given.OPTIONS.values() if flag.key not in COMMANDS_OWN}


#: options that leave a comparison to an engine's jobs, or come back to one
COMMANDS_OWN = ("attach", "detach")


def signature() -> inspect.Signature:
    """Of `compare`: None stands for what is not given."""
    named = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in options()]
    return inspect.Signature(named, return_annotation="Compared | str")


def about() -> str:
    """What `help(dlperf.compare)` says: of `compare`, with a line or more for each option."""
    lines = [inspect.cleandoc(compare.__doc__ or ""), "", "Options:"]
    for key, flag in options().items():
        value = flag.metavar or "True"
        said = f"{key}={value}: {flags.about(flag, 'compare').replace('%%', '%')}"
        lines += textwrap.wrap(said, 100, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def _keyword(name: str) -> str:
    """As a message has it."""
    return f"{name} ({given.OPTIONS[name].flag})" if name in given.OPTIONS else name


def _compare(arguments: Mapping[str, object]) -> Compared | str:
    from dlperf import submission
    from dlperf.catalog import reader
    from dlperf.comparison import dry_run

    adapters = reader.adapters(
        str(arguments["frameworks"]).split(","), lambda warning: warnings.warn(warning, stacklevel=2)
    )
    if arguments["resume"]:
        opened = resumed(arguments, adapters)
    else:
        spec, plan, folder = planned(arguments, adapters)
        if arguments["dry_run"]:
            return dry_run.text(spec, plan, adapters, folder.absolute(), str(arguments["dry_run"]))
        if submission.wanted(spec):
            says = "its jobs are followed by the command: python -m dlperf.compare; then dlperf.load reads the folder."
            here = ' Or give allocation="run".' if "run" in submission.engine_of(spec).allocations else ""
            raise UsageError([Problem("--launcher", spec.launcher, says=f"{says}{here}")])
        opened = created(spec, plan, folder.absolute(), adapters, bool(arguments["output"]))
    for warning in opened.warnings:
        warnings.warn(warning, stacklevel=3)
    interrupted = run(opened, adapters, arguments, (lambda line: None) if arguments["quiet"] else print)
    if interrupted:
        stopped = KeyboardInterrupt()
        stopped.add_note(f"Go on with dlperf.compare(resume={str(opened.folder)!r}).")
        raise stopped
    compared = Compared(opened.folder.absolute(), opened.comparison)
    if arguments["strict"] and wanting(compared.comparison):
        raise RunError("strict", f"a row failed or is not comparable: {compared.report} says which, and why")
    return compared


def planned(arguments: Mapping[str, object], adapters: Mapping[str, Adapter]) -> tuple[Spec, Plan, Path]:
    """The request that arguments make, its rows, and the folder that it would have; see dlperf.compare.parser."""
    from dlperf.planning import checks, plan

    wanted = {name: arguments[name] for name in DEFAULTS if arguments[name] is not None}
    asked = {**DEFAULTS, **wanted, **{name: arguments.get(name) for name in BESIDES}}
    spec = checks.from_arguments(asked, adapters)
    folder = Path(str(arguments["output"] or f"runs/{datetime.now():%Y%m%d-%H%M%S}"))  # see store.dated
    made = plan.from_spec(spec, adapters)
    if arguments["dry_run"] and not made.jobs:  # a comparison has a report that says so
        each = (Problem(f"{s.model} {s.precision_asked} {s.system}", "", says=_why(s)) for s in made.skips)
        says = "no row can be run; why, is below. Ask for other frameworks, models or precisions, or another device."
        raise UsageError([Problem("--frameworks", arguments["frameworks"] or "all", says=says), *each])
    rows(arguments, made)
    return spec, made, folder


def _why(skip: Skip) -> str:
    return f"{skip.status}: {skip.why.rstrip('.')}."


#: what is checked with a request, and is no part of it
BESIDES = ("dry_run", "output", "retry_failed", "detach", "max_node_hours", "only", "site")


def rows(arguments: Mapping[str, object], plan: Plan) -> frozenset[str]:
    """Those that --only names; all of a plan's where it is not given. UsageError for one that is not there."""
    known = [job.id for job in plan.jobs]
    named = [word.strip() for word in str(arguments["only"] or "").split(",") if word.strip()]
    unknown = [name for name in named if name not in known]
    if unknown:
        allowed = ", ".join(known)
        raise UsageError(Problem("--only", name, allowed, did_you_mean(name, known)) for name in unknown)
    return frozenset(named or known)


def created(spec: Spec, plan: Plan, folder: Path, adapters: Mapping[str, Adapter], named: bool) -> Store:
    """The folder of a new comparison. From here on signals are held until `run`. named: whether the user named it."""
    from dlperf import machine
    from dlperf.comparison import dry_run, store
    from dlperf.revision import revision
    from dlperf.runs.execute import now

    moment = now()
    commands = dry_run.environment_commands(spec, plan, adapters)
    hold_signals()  # what is created has a report in the end
    folder = folder if named else store.dated().absolute()
    return store.create(folder, spec, plan, commands, machine.describe(), moment, __version__, revision())


def resumed(arguments: Mapping[str, object], adapters: Mapping[str, Adapter]) -> Store:
    """The comparison whose folder --resume names. UsageError where it cannot go on."""
    from dlperf.comparison import store
    from dlperf.planning import devices

    contradictions = [name for name in [*DEFAULTS, "output", "dry_run", "spec"] if arguments[name]]
    if contradictions:
        flags = ", ".join("--" + name.replace("_", "-") for name in contradictions)
        says = f"the comparison keeps what it was started with. Leave out {flags}."
        raise UsageError([Problem("--resume", arguments["resume"], says=says)])
    folder = Path(str(arguments["resume"]))
    opened = store.open_folder(folder)
    store.no_links(folder)
    gone = sorted({job.adapter for job in opened.plan.jobs} - set(adapters))
    if gone:
        says = f"it has rows of {', '.join(gone)}, but no such adapter is here, or none that can be read. "
        says += "Set DLPERF_ADAPTERS as it was."
        raise UsageError([Problem("--resume", arguments["resume"], says=says)])
    strange = [*_strange(opened)]
    if strange:
        says = f"its comparison.json has {', '.join(strange)}, which this dlperf does not know. Start a new comparison."
        raise UsageError([Problem("--resume", arguments["resume"], says=says)])
    now = devices.changed(opened.spec)
    if now:
        raise UsageError([Problem("--resume", arguments["resume"], says=f"{now}. Start a new comparison.")])
    return opened


def _strange(opened: Store) -> Iterator[str]:
    """What of a comparison's rows and request names nothing that can be run: "launcher 'x'"."""
    from dlperf import launchers, models
    from dlperf.envs.kinds import KINDS
    from dlperf.precision import TABLE

    jobs = opened.plan.jobs
    known: dict[str, tuple[Container[str], set[str]]] = {
        "model": (models.FAMILY_OF, {job.model for job in jobs}),
        "precision": (TABLE, {job.precision for job in jobs}),
        "device": (("cpu", "cuda"), {job.device for job in jobs} | {opened.spec.device}),
        "launcher": (("", *launchers.names()), {job.launcher for job in jobs} | {opened.spec.launcher}),
        "env": (KINDS, {opened.spec.env}),
    }
    for field, (allowed, found) in known.items():
        yield from (f"{field} {value!r}" for value in sorted(found) if value not in allowed)
    for job in jobs:
        if models.FAMILY_OF.get(job.model, job.family) != job.family:
            yield f"family {job.family!r} of {job.model}"


def run(
    opened: Store,
    adapters: Mapping[str, Adapter],
    arguments: Mapping[str, object],
    tell: Callable[[str], None],
    expected: Estimate | None = None,
) -> bool:
    """Run what is missing, and write the report whatever ends the running. Whether it was interrupted.

    tell: given what a user is to read in the end. expected: what it takes, where the user was told; else that is told.
    """
    from dlperf.comparison import progress, store
    from dlperf.comparison.runner import Runner

    with store.locked(opened.folder):
        shown = progress.choose(bool(arguments["quiet"]))
        for warning in (*opened.warnings, *_unpublishable(opened)):
            shown.note(warning)
        interrupted = False
        try:
            release_signals()
            only = rows(arguments, opened.plan)
            Runner(opened, adapters, shown, bool(arguments["retry_failed"]), expected, only).run()
            ignore_signals()
        except (KeyboardInterrupt, RuntimeError) as error:
            if not interrupts(error):
                raise
            interrupted = True
        finally:
            shown.close()
        _report(opened, interrupted, tell)
    return interrupted


def _unpublishable(opened: Store) -> Iterator[str]:
    """That a comparison which begins now cannot be published, since the machine is busy."""
    if not opened.records:
        from dlperf.report import caveats

        for line in caveats.busy(opened.comparison):
            yield f"{line} dlperf.publish does not take it then: begin again when it is idle, if you want to publish."


def wanting(comparison: Comparison) -> bool:
    """Whether a run failed, or a row is not comparable."""
    from dlperf.figures import standings

    return any(record.failure for record in comparison.records) or bool(standings.obstacles(comparison))


def _report(opened: Store, interrupted: bool, tell: Callable[[str], None]) -> None:
    from dlperf import report

    comparison = opened.comparison
    if interrupted:
        tell(f"Interrupted. Go on with: python -m dlperf.compare --resume {opened.folder}")
    tell(clean(summary(comparison)))  # there even where the report cannot be written
    report.write(comparison, opened.folder)
    tell(f"Report: {opened.folder / 'report.md'} and {opened.folder / 'report.html'}")


def summary(comparison: Comparison) -> str:
    """The figures in a few plain lines, for the end of the command."""
    from dlperf import report
    from dlperf.figures import summaries

    lines, rows = [report.figures_text(comparison)], summaries.summarized(comparison)
    several = any(job.world_size > 1 for job in comparison.jobs)
    for job in comparison.jobs:
        row = rows[job.id]
        size = f" {job.size}" if several else ""
        what = f"{job.model} {job.precision_asked:<5} {job.system}{size}"
        if row.throughput:
            continue
        if row.failed and row.failed[-1].failure:
            lines.append(f"{what:<40} {row.failed[-1].failure.kind}: {row.failed[-1].failure.message}")
        else:
            lines.append(f"{what:<40} not run")
    for skip in comparison.skips:
        lines.append(f"{skip.model} {skip.precision_asked:<5} {skip.system:<30} {skip.status}: {skip.why}")
    return "\n".join(filter(None, lines))
