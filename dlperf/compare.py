"""Train the same models in several deep-learning frameworks and report who was faster, by how much, and how sure."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from dlperf import flags, given, library
from dlperf.cli import Parser, exit_code, heedless, say
from dlperf.errors import clean

if TYPE_CHECKING:  # functions import what they use, so that --help and a wrong flag are answered at once
    from dlperf.catalog.adapter import Adapter
    from dlperf.planning.plan import Plan
    from dlperf.planning.spec import Spec

EXIT_CODES = (
    "Exit codes: 0 if something ran; 1 if nothing could run; 2 for an invalid request; with --strict, 3 if a row "
    "failed or is not comparable; 130 after Ctrl-C, which still writes the report."
)


def parser() -> argparse.ArgumentParser:
    """The command line. Values stay text here; dlperf.planning.checks checks them all at once."""
    made = Parser(prog="python -m dlperf.compare", description=__doc__, epilog=EXIT_CODES)
    flags.add_to(made, "compare")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _asked(arguments), kept="Finished runs are kept.")


def _asked(arguments: Mapping[str, object]) -> int:
    for warning in given.slips(os.environ):
        print(clean(warning), file=sys.stderr)
    whole, places = given.merged(arguments, os.environ)
    for name in given.VARIABLES:  # they are for this command, not for what it starts
        os.environ.pop(name, None)
    with given.named(places):
        return _compare(whole)


def _compare(arguments: Mapping[str, object]) -> int:
    from dlperf.catalog import reader
    from dlperf.comparison import dry_run
    from dlperf.planning import spec as spec_

    adapters = reader.adapters(str(arguments["frameworks"]).split(","))
    if arguments["resume"]:
        opened = library.resumed(arguments, adapters)
    else:
        spec, plan, folder = library.planned(arguments, adapters)
        if arguments["precision"] == spec_.AUTO:
            print(("# " if arguments["dry_run"] else "") + spec_.chosen_precision(spec, adapters), flush=True)
        if arguments["dry_run"]:
            print(dry_run.text(spec, plan, adapters, folder.absolute(), arguments["dry_run"] == "full"))
            return 0
        if not (arguments["yes"] or _agreed(spec, plan, adapters)):
            return 1
        opened = library.created(spec, plan, folder, adapters, bool(arguments["output"]))
    with heedless():
        interrupted = library.run(opened, adapters, arguments, say)
    if interrupted:
        return 130
    if not any(record.done for record in opened.records.values()):
        return 1
    return 3 if arguments["strict"] and library.wanting(opened.comparison) else 0


#: seconds from which on a terminal is asked
LONG = 3600.0


def _agreed(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter]) -> bool:
    """Whether who sits there, if anyone does, wants what takes long."""
    from dlperf.comparison import estimate
    from dlperf.planning import plan

    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    runs = [job for _, job in plan.order(planned, spec.protocol.repeats, spec.seed)]
    expected = estimate.expected(spec, runs, adapters)
    if expected.seconds is None or expected.seconds < LONG:
        return True
    print("\n".join(estimate.text(expected)))
    try:
        answer = input("Begin? [y/N] (--yes asks nothing) ")
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes")


class _Function(ModuleType):
    """This module is a function, too: `dlperf.compare(model="bert")`, however it was imported before."""

    __call__ = staticmethod(library.compare)


sys.modules[__name__].__class__ = _Function

if __name__ == "__main__":
    sys.exit(main())
