"""Each adapter against the plain way to train the same network in its framework: `make bench`.

The plain ways are adapters too, in the folders <framework>_plain beside this file: the network of the framework's own
zoo, trained as its documentation shows. They are planned and run by what plans and runs a comparison, so both have the
same batch, threads and protocol, and their repeats are interleaved in random order.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlperf import __version__, machine, models, report
from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import progress, store
from dlperf.comparison.runner import Runner
from dlperf.errors import Problem, UsageError, handle_signals
from dlperf.figures import peaks, statistics, summaries
from dlperf.figures.rates import units
from dlperf.figures.statistics import Estimate
from dlperf.figures.summaries import Summary
from dlperf.flags import DEFAULTS
from dlperf.planning import plan
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import Plan
from dlperf.planning.spec import Spec
from dlperf.report import public
from dlperf.revision import revision
from dlperf.schema import Comparison, Job, Skip
from dlperf.words import columns

HERE = Path(__file__).parent
PLAIN = "_plain"
#: model -> batch, and windows instead of the protocol's: so that all pairs take a quarter of an hour on two cores
BATCH = {"resnet50": 8, "bert_base": 4, "vgg16": 4, "gpt2_256": 1, "transformer": 8, "bert_large": 1}
WINDOWS = 2
#: two workers and two parameter servers, and the models that have them
ON_SERVERS: dict[str, Any] = {"nproc_per_node": (2,), "servers": (2,), "ps_modes": ("async",)}
PLACES = dict.fromkeys(("word2vec", "word2vec_per_example", "word2vec_tiny"), ON_SERVERS)
#: runs of each side of a pair, of each machine that was met, as `bench` writes them; and the page that is made of them
RESULTS, PAGE = HERE / "results", HERE / "README.md"
HEADER = ("framework", "model", "precision", "unit", "ours (n)", "plain (n)", "ours / plain", "of the peak", "note")


def main(argv: Sequence[str] | None = None) -> int:
    """0, however the ratios are; 1 if nothing ran; 2 for a wrong request."""
    arguments = _parser().parse_args(argv)
    if arguments.page:
        PAGE.write_text(page([store.open_results(path) for path in sorted(RESULTS.glob("*.json"))]), encoding="utf-8")
        return 0
    os.environ["DLPERF_ADAPTERS"] = str(HERE)
    handle_signals()
    try:
        return _bench(arguments)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--frameworks", metavar="F,...", default="all", help="default: all")
    made.add_argument("--model", metavar="M,...", default="resnet50,bert", help="default: resnet50,bert")
    made.add_argument("--precision", metavar="P,...", default="fp32,amp", help="default: fp32,amp")
    made.add_argument("--repeats", metavar="N", help="fresh processes for each side of a pair; default: 3")
    made.add_argument("--page", action="store_true", help=f"run nothing: write {PAGE.name} from {RESULTS.name}/*.json")
    made.add_argument("-o", "--output", metavar="DIR", help="a new folder; default: runs/bench-<date and time>")
    return made


def _bench(arguments: argparse.Namespace) -> int:
    adapters = reader.adapters()
    asked = {**DEFAULTS, "device": "cpu", "windows": WINDOWS, "dry_run": False, "tuned": "off", **vars(arguments)}
    asked["no_verify"] = True  # the plain ways are not of our contract
    spec = shared(from_arguments(asked, adapters))
    folder = Path(arguments.output or f"runs/bench-{datetime.now():%Y%m%d-%H%M%S}")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    opened = store.create(folder, spec, pairs(spec, adapters), {}, machine.describe(), created, __version__, revision())
    with store.locked(folder):
        shown = progress.choose(quiet=False)
        try:
            Runner(opened, adapters, shown).run()
        except KeyboardInterrupt:
            print("interrupted; this is what was done until then", file=sys.stderr)
        finally:
            shown.close()
    print(table(opened.comparison))
    results = report.results_json(public.unnamed(opened.comparison, folder))
    (folder / store.RESULTS).write_text(results, encoding="utf-8")
    return 0 if any(record.done for record in opened.records.values()) else 1


def shared(spec: Spec) -> Spec:
    """With the threads that each rank of its models has: ranks of one machine share them, as in a comparison. Raises
    UsageError for models of different numbers of ranks, since all rows have as many threads."""
    ranks = {PLACES.get(model, {}).get("nproc_per_node", (1,)) for model in spec.models}
    if len(ranks) > 1:
        says = "It has two workers, which share the threads; run it without models of one."
        raise UsageError([Problem("--model", ",".join(one for one in spec.models if one in PLACES), says=says)])
    ((each,),) = ranks
    return dataclasses.replace(spec, threads=max(1, spec.threads // each))


def pairs(spec: Spec, adapters: Mapping[str, Adapter]) -> Plan:
    """The rows that run on both sides. A row that has no other side would be time spent for no ratio."""
    jobs, skips = [], []
    for model in spec.models:
        both = tuple(name for one in spec.frameworks for name in (one, one + PLAIN) if name in adapters)
        of_model = dataclasses.replace(
            spec, models=(model,), batch_size=BATCH.get(model), frameworks=both, **PLACES.get(model, {})
        )
        planned = plan.from_spec(of_model, adapters)
        jobs += planned.jobs
        skips += planned.skips
    skips += [_without(job) for job in jobs if job.adapter + PLAIN not in adapters and not _is_plain(job)]
    sides = [_row(job) for job in jobs]
    return Plan(tuple(job for job in jobs if sides.count(_row(job)) == 2), tuple(skips))


def _without(job: Job) -> Skip:
    shared = {field.name: getattr(job, field.name) for field in dataclasses.fields(Skip) if hasattr(job, field.name)}
    return Skip(**shared, status="not_yet", why=f"there is no tests/bench/{job.adapter}{PLAIN}")


def _is_plain(of: Job | Skip) -> bool:
    return of.adapter.endswith(PLAIN)


def _row(of: Job | Skip) -> tuple[str, str, str]:
    return of.adapter.removesuffix(PLAIN), of.model, of.precision_asked


def table(comparison: Comparison) -> str:
    """The ratios as text, and below why the other rows have none. Pure."""
    return "\n".join([columns([HEADER, *ratios(comparison)]), *_missing(comparison.skips)])


def page(comparisons: Sequence[Comparison]) -> str:
    """The same as Markdown, of several machines. Pure."""
    lines = [
        "<!-- Made from results/*.json: `make bench-page`. -->",
        "# Each adapter beside the plain way to train the same network",
        "",
        "`make bench`: the network of the framework's own zoo or layers, trained as its documentation shows, with the",
        "same batch, threads and switches, several runs of each side in random blocks. Above 1 ours is faster. Of the",
        "peak: the FLOP/s of ours, of those of the fastest matrix product that any run below the same heading timed in",
        "that precision; where one framework ran alone, that is its own product, which another's may exceed.",
    ]
    for one in sorted(comparisons, key=lambda one: one.created):
        sets, threads = ", ".join(one.machine.get("instruction_sets", ())), one.machine["usable_threads"]
        rule = tuple("---:" if cell.startswith(("ours", "plain", "of")) else "---" for cell in HEADER)
        lines += ["", f"## {one.machine.get('cpu', 'CPU')} ({sets}), {threads} threads, {one.created[:10]}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (HEADER, rule, *ratios(one))]
        lines += ["", *(f"- {line}" for line in _missing(one.skips))]
    return "\n".join(lines).rstrip() + "\n"


def ratios(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each pair, with the cells of HEADER."""
    sides: dict[tuple[str, str, str], dict[bool, Summary]] = {}
    found = peaks.ceilings(comparison)
    for job in comparison.jobs:
        side = summaries.summarize(job, comparison.runs.get(job.id, ()))
        sides.setdefault(_row(job), {})[_is_plain(job)] = side
    return [(*row, *_cells(pair[False], pair[True], found)) for row, pair in sorted(sides.items())]


def _cells(ours: Summary, plain: Summary, found: Mapping[str, peaks.Ceiling]) -> tuple[str, str, str, str, str, str]:
    """unit, ours, plain, ratio with its 95 % interval, share of the fastest product, note"""
    unit = models.FAMILIES[ours.job.family].RATE_UNIT
    note = next((record.effective["note"] for record in plain.done if record.effective.get("note")), "")
    if not (ours.done and plain.done):
        return unit, _rate(ours), _rate(plain), "", "", note
    ratio = statistics.ratio(summaries.rates_of(ours), summaries.rates_of(plain))
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    note = "; ".join(filter(None, [_verdict(ratio), note]))
    rate = ours.throughput.centre / units(ours.job, ours.done) if ours.throughput else None
    share = None if rate is None else peaks.share_of_product(ours.job, rate, found)
    told = "" if share is None else f"{100 * share:.0f} %"
    return unit, _rate(ours), _rate(plain), f"{ratio.centre:.2f}{interval}", told, note


def _rate(side: Summary) -> str:
    if side.throughput:
        return f"{side.throughput.centre:.3g} ({side.throughput.n})"
    return side.failed[-1].failure.kind if side.failed and side.failed[-1].failure else "not run"


def _verdict(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return "one run"
    return "slower" if ratio.high < 1 else "faster" if ratio.low > 1 else "tie"


def _missing(skips: Sequence[Skip]) -> list[str]:
    """One line for each framework, model and reason."""
    precisions: dict[tuple[str, str, str], list[str]] = {}
    for skip in skips:
        framework, model, precision = _row(skip)
        side = "the plain way" if _is_plain(skip) else "ours"
        precisions.setdefault((framework, model, f"{side}: {skip.why}"), []).append(precision)
    return [
        f"no ratio: {framework} {model} {', '.join(found)}: {why}"
        for (framework, model, why), found in sorted(precisions.items())
    ]


if __name__ == "__main__":
    sys.exit(main())
