"""Prove that the frameworks compute the same training trajectory, or show where they part."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dlperf import __version__, cache, flags
from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.cli import Parser, exit_code
from dlperf.comparison import progress, store
from dlperf.comparison.progress import Progress
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import Problem, RunError, UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning import plan
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import Plan
from dlperf.planning.spec import Spec
from dlperf.precision import ASKED
from dlperf.proof import asked, certify, published
from dlperf.proof.certify import Certifier
from dlperf.revision import revision
from dlperf.runs import bundle
from dlperf.runs.execute import now
from dlperf.schema import Certificate, Comparison, Failure, Job, Record, Skip
from dlperf.words import count


def parser() -> argparse.ArgumentParser:
    """The command line; its values are those of python -m dlperf.compare."""
    made = Parser(prog="python -m dlperf.verify", description=__doc__)
    flags.add_to(made, "verify")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 if all that could be compared does the same work; 1 if not; 2 for a wrong request; 130 after
    Ctrl-C, 143 after SIGTERM."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _verify(arguments))


def _verify(arguments: Mapping[str, object]) -> int:
    adapters = reader.adapters(str(arguments["frameworks"]).split(","))
    given = {name: arguments[name] for name in DEFAULTS if arguments.get(name) is not None}
    asked = {**DEFAULTS, "precision": "fp64", "aa": "0", "tuned": "off", **given, "dry_run": arguments["dry_run"]}
    spec = from_arguments(asked, adapters, ("fp64", *ASKED))
    theirs = [name for name in spec.frameworks if not adapters[name].provable]
    if theirs:
        says = "they hand out no tensors, as only our own scripts do, so nothing can be verified. Leave them out."
        raise UsageError([Problem("--frameworks", ",".join(theirs), says=says)])
    planned = plan.from_spec(spec, adapters)
    if arguments["dry_run"]:
        print(_dry_run(spec, planned.jobs, adapters, full_size=bool(arguments["full_size"])))
        return 0
    output = Path(str(arguments["output"])) if arguments["output"] else None
    if output:
        store.claim(output)
    shown = progress.choose(bool(arguments["quiet"]))
    try:
        proofs, failures = _certificates(spec, planned.jobs, adapters, shown, bool(arguments["full_size"]))
    finally:
        shown.close()
    certificates = [one for each in proofs.values() for one in each]
    comparison = _comparison(spec, planned, proofs, failures)
    print(_text(comparison))
    if output:
        _write(comparison, output)
    if arguments["publish"]:
        for one in certificates:
            published.publish(one)
        return 0
    return 0 if certificates and not failures and all(one.verdict == "same" for one in certificates) else 1


def _certificates(
    spec: Spec, jobs: Sequence[Job], adapters: Mapping[str, Adapter], shown: Progress, full_size: bool
) -> tuple[dict[str, tuple[Certificate, ...]], dict[str, RunError]]:
    """Certificates by Job.id, and the errors of jobs whose environment could not be made."""
    keys = list(dict.fromkeys((job.adapter, job.environment) for job in jobs))
    pairs = [(adapters[name], device) for name, device in keys]
    made = dict(zip(keys, kinds.ensure_all(pairs, spec.env, shown.note, spec.images), strict=True))
    of_rows = {job.id: made[job.adapter, job.environment] for job in jobs}
    ready = {id_: one for id_, one in of_rows.items() if isinstance(one, Environment)}
    failed = {id_: one for id_, one in of_rows.items() if isinstance(one, RunError)}
    root = cache.folder() / "certificates"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=root) as folder:
        bundle.copy_code(Path(folder, "code"), [adapters[name] for name in dict.fromkeys(job.adapter for job in jobs)])
        certifier = Certifier(Path(folder), spec, shown.note, shown.busy)
        return certifier.certificates(jobs, ready, alone=True, full_size=full_size), failed


def _comparison(
    spec: Spec, planned: Plan, proofs: Mapping[str, tuple[Certificate, ...]], failed: Mapping[str, RunError]
) -> Comparison:
    """A comparison without measured runs, for the report's pages."""
    from dlperf import machine

    lost = tuple(
        Record(job, 0, "", 0.0, "", "", {"kind": spec.env}, failure=Failure(error.kind, str(error), tuple(error.lines)))
        for job in planned.jobs
        if (error := failed.get(job.id))
    )
    made = (asdict(spec), machine.describe(), now(), __version__, 0, planned.jobs, lost, planned.skips)
    return Comparison(*made, proofs=proofs, revision=revision())


def _text(comparison: Comparison) -> str:
    """The tables as text for a terminal."""
    from dlperf import report

    lines = [report.proof_text(comparison)] if comparison.proofs else []
    for record in comparison.records:
        assert record.failure is not None
        lines.append(f"{record.job.system}: no proof: {record.failure.message}")
    lines += [_skip(skip) for skip in comparison.skips]
    return "\n".join(lines) or "Nothing to compare."


def _skip(skip: Skip) -> str:
    return f"{skip.model} {skip.precision_asked} {skip.system}: {skip.status}: {skip.why}"


def _write(comparison: Comparison, folder: Path) -> None:
    from dlperf import report

    report.write_proof(comparison, folder)
    (folder / "lock").unlink(missing_ok=True)
    print(f"Report: {folder / 'proof.md'} and {folder / 'proof.html'}")


def _dry_run(spec: Spec, jobs: Sequence[Job], adapters: Mapping[str, Adapter], full_size: bool) -> str:
    wanted = {one.name: one for job in jobs for one in asked.needed(job, alone=True, full_size=full_size)}
    lines = [f"# {count(len(wanted), 'run')}, each unless there is a valid certificate"]
    for name, one in wanted.items():
        try:
            environment = kinds.planned(adapters[one.job.adapter], one.job.environment, spec.env, spec.images)
        except RunError as error:
            lines += ["", f"# {name}: not run: {error}"]
            continue
        script = certify.script(one, environment, spec)
        lines += ["", f"# {name}", script.rstrip()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
