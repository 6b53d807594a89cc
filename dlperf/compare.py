"""Train the same models in several deep-learning frameworks and report who was faster, by how much, and how sure."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import errno
import inspect
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dlperf import flags, given, launchers, library, shell, submission
from dlperf.cli import Parser, exit_code, heedless, say
from dlperf.errors import Problem, RunError, UsageError, clean, handle_signals, interrupted_code
from dlperf.launchers.jobs import PLACE, Batch

if TYPE_CHECKING:  # functions import what they use, so that --help and a wrong flag are answered at once
    from dlperf.catalog.adapter import Adapter
    from dlperf.comparison.estimate import Estimate
    from dlperf.planning.plan import Plan
    from dlperf.planning.spec import Spec

ABOUT = __doc__
EXIT_CODES = (
    "Exit codes: 0 if something ran; 1 if nothing could run; 2 for an invalid request; with --strict, 3 if a row "
    "failed or is not comparable; 130 after Ctrl-C, 143 after SIGTERM and 129 after a closed terminal, which still "
    "write the report."
)


def parser() -> argparse.ArgumentParser:
    """The command line. Values stay text here; dlperf.planning.checks checks them all at once."""
    made = Parser(prog="python -m dlperf.compare", description=ABOUT, epilog=EXIT_CODES)
    flags.add_to(made, "compare")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _asked(arguments))


def _asked(arguments: Mapping[str, object]) -> int:
    for warning in given.slips(os.environ):
        print(clean(warning), file=sys.stderr)
    whole, places = given.merged(arguments, os.environ, _check)
    for name in given.VARIABLES:  # they are for this command, not for what it starts
        os.environ.pop(name, None)
    with given.named(places):
        return _compare(whole)


def _check(arguments: Mapping[str, object]) -> None:
    """UsageError for what is wrong with a request that begins anew."""
    from dlperf.catalog import reader

    if not arguments["resume"]:
        library.planned(arguments, reader.adapters(str(arguments["frameworks"]).split(",")))


def _compare(arguments: Mapping[str, object]) -> int:
    from dlperf.catalog import reader
    from dlperf.comparison import dry_run
    from dlperf.planning import spec as spec_

    if arguments["attach"]:
        return _attach(arguments)
    if arguments["resume"] and _submitted(Path(str(arguments["resume"]))):
        return _submit_again(arguments)
    adapters = reader.adapters(str(arguments["frameworks"]).split(","))
    told = None
    if arguments["resume"]:
        opened = library.resumed(arguments, adapters)
    else:
        spec, plan, folder = library.planned(arguments, adapters)
        if arguments["precision"] == spec_.AUTO:
            print(("# " if arguments["dry_run"] else "") + spec_.chosen_precision(spec, adapters), flush=True)
        in_jobs = submission.wanted(spec) and bool(plan.jobs)  # else the report says here why there is no row
        if in_jobs:
            jobs = submission.batches(spec, plan, folder.absolute(), arguments, adapters)
        if arguments["dry_run"] and (assumed := submission.assumed(spec, arguments)):
            print(assumed)
        if arguments["dry_run"] and in_jobs:
            print(submission.text(spec, jobs, arguments, folder.absolute(), Path.cwd()) + "\n#")
        if arguments["dry_run"]:
            print(dry_run.text(spec, plan, adapters, folder.absolute(), str(arguments["dry_run"])))
            return 0
        agreed, told = (True, None) if arguments["yes"] else _agreed(spec, plan, adapters)
        if not agreed:
            return 1
        if in_jobs:
            return _submit(spec, jobs, folder.absolute(), bool(arguments["detach"]))
        opened = library.created(spec, plan, folder, adapters, bool(arguments["output"]))
    with heedless():
        try:
            interrupted = library.run(opened, adapters, arguments, say, told)
        except OSError as error:
            raise _stopped(error, opened.folder) from None
    if interrupted:
        return interrupted_code()
    if not any(record.done for record in opened.records.values()):
        return 1
    return 3 if arguments["strict"] and library.wanting(opened.comparison) else 0


def _stopped(error: OSError, folder: Path) -> RunError:
    """Of a comparison that the machine refused something, such as room on its disk."""
    at = error.filename2 or error.filename or folder
    step = "Free some space there, then go on" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Go on"
    again = f"python -m dlperf.compare --resume {shell.quote(folder)}"
    return RunError("machine", f"{at}: {error.strerror or error}. Finished runs are kept. {step} with: {again}")


# In jobs of an engine


def _submitted(folder: Path) -> bool:
    """Whether a comparison's rows run in jobs, and this process in none."""
    return os.path.isdir(folder / PLACE) and not launchers.inside()  # False for a name that is too long, too


def _submit(spec: Spec, jobs: Mapping[str, Batch], folder: Path, detach: bool) -> int:
    from dlperf.comparison import store

    store.claim(folder)
    submission.write(spec, jobs, folder, Path.cwd())
    if submission.engine(folder).held():
        return submission.in_held(folder)
    try:
        ids = submission.submit(folder)
    except RunError:
        if not (folder / PLACE / submission.SUBMITTED).exists():  # as if nothing had been asked
            shutil.rmtree(folder / PLACE)
            (folder / "lock").unlink()
            folder.rmdir()
        raise
    most = submission.node_hours(jobs.values())
    say(f"Submitted as {submission.named(folder, ids)}: at most {most:.3g} node-hours. In {folder}")
    return _follow(folder, ids, detach)


def _submit_again(arguments: Mapping[str, object]) -> int:
    folder = Path(str(arguments["resume"])).absolute()
    more = ["--retry-failed"] if arguments["retry_failed"] else []
    submission.check_programs(folder, "--resume")
    if submission.engine(folder).held():
        return submission.in_held(folder, more)
    ids = submission.submit(folder, more)
    say(f"Submitted as {submission.named(folder, ids)}.")
    return _follow(folder, ids, bool(arguments["detach"]))


def _attach(arguments: Mapping[str, object]) -> int:
    folder = Path(str(arguments["attach"])).absolute()
    others = [flag.flag for flag in flags.FLAGS if flag.compare and flag.key != "attach" and arguments[flag.key]]
    if others := [flag for flag in others if flag not in ("--quiet", "--yes")]:
        says = f"it follows what was submitted. Leave out {', '.join(others)}."
        raise UsageError([Problem("--attach", arguments["attach"], says=says)])
    submission.check(folder, "--attach")
    try:
        return _told(folder, submission.last(folder))
    except KeyboardInterrupt:
        say(submission.leave(folder))
        return interrupted_code()


def _follow(folder: Path, ids: Sequence[str], detach: bool) -> int:
    """Ctrl-C cancels the jobs; they outlive a terminal that is gone."""
    if detach:
        say(submission.leave(folder))
        return 0
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return _told(folder, ids)
    except KeyboardInterrupt:
        code = interrupted_code()
        say(f"Cancelling {submission.named(folder, ids)}.")
        handle_signals()
        submission.engine(folder).cancel(ids)
        _told(folder, ids)
        return code


def _told(folder: Path, ids: Sequence[str]) -> int:
    """Tell of jobs until they have ended; where one was ended before it could write the report, write it."""
    from dlperf import report
    from dlperf.comparison import store

    ended = submission.Follower(folder, ids, lambda text: say(clean(text))).follow()
    if any(state.reason == "JobLaunchFailure" for state in ended.values()):
        say(f"Its first node cannot write to {folder}: all nodes must share the output folder. Name another: --output.")
    if (folder / store.MANIFEST).exists():
        comparison = store.open_folder(folder).comparison
        if any(state.code is None for state in ended.values()):
            report.write(comparison, folder)
            done = sum(record.done for record in comparison.records)
            say(f"{done} of {comparison.planned} runs are done. Report: {folder / 'report.md'}")
        if used := submission.used(folder, comparison.records):
            say(used)
    if any(state.code is None for state in ended.values()):
        say(f"Go on with: python -m dlperf.compare --resume {shell.quote(folder)}")
    return submission.code(ended)


#: seconds from which on a terminal is asked
LONG = 3600.0


def _agreed(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter]) -> tuple[bool, Estimate | None]:
    """Whether who sits there, if anyone does, wants what takes long; and what it takes, where that was told."""
    from dlperf.comparison import estimate
    from dlperf.planning import plan

    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return True, None
    runs = [job for _, job in plan.order(planned, spec.protocol.repeats, spec.seed)]
    expected = estimate.expected(spec, runs, adapters)
    if expected.seconds is None or expected.seconds < LONG:
        return True, None
    print("\n".join(estimate.text(expected)))
    try:
        answer = input("Begin? [y/N] (--yes asks nothing) ")
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes"), expected


class _Function(ModuleType):
    """This module is a function, too: `dlperf.compare(model="bert")`, however it was imported before. `help` shows its
    options."""

    __call__ = staticmethod(library.compare)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return library.about()

    @property
    def __signature__(self) -> inspect.Signature:
        return library.signature()


sys.modules[__name__].__class__ = _Function

if __name__ == "__main__":
    sys.exit(main())
