"""How often a report is wrong: `make bench-statistics`.

Rates are drawn for systems of known speed under the kinds of noise that machines have, and given to the functions that
the report uses. The seed is fixed, so the table is the same each time.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dlperf import report
from dlperf.figures import ranking, statistics, until
from dlperf.planning.spec import FIRST_LOOK, MAX_BLOCKS
from dlperf.stored import comparison_from

SEED = 20261123
#: so many that chance moves a share near 5 % by less than half a per cent; those of two systems take less time
TRIALS, TRIALS_OF_TWO = 5000, 20_000
SYSTEMS, BLOCKS = (2, 6, 8), (3, 5, 7, 15, 30)
#: of the difference that has to be found, and of what runs vary by
DIFFERENCE, NOISE = np.log(1.03), 0.02
#: blocks, systems and the share in which it is found
POWERS = ((2, 7, 0.60), (2, 15, 0.95), (6, 15, 0.75), (6, 20, 0.92))
MOST_FALSE, LEAST_COVERED = 0.05, 0.93
#: what the report's text says that an interval does not cover: two to four runs of a machine with two speeds
UNCOVERED = {("two speeds", 3)}

Draw = Callable[[np.random.Generator, int, int], Any]


def independent(source: np.random.Generator, blocks: int, rows: int) -> Any:
    return NOISE * source.standard_normal((blocks, rows))


def unequal(source: np.random.Generator, blocks: int, rows: int) -> Any:
    return np.geomspace(0.005, 0.05, rows) * source.standard_normal((blocks, rows))


def shocks(source: np.random.Generator, blocks: int, rows: int) -> Any:
    """The whole machine is slower or faster for a block."""
    return independent(source, blocks, rows) + 0.05 * source.standard_normal((blocks, 1))


def drift(source: np.random.Generator, blocks: int, rows: int) -> Any:
    """The machine slows down by 5 % from the first run to the last."""
    return independent(source, blocks, rows) - _in_order(source, np.linspace(0, 0.05, blocks * rows), blocks, rows)


def wandering(source: np.random.Generator, blocks: int, rows: int) -> Any:
    """Each run resembles the one before: AR(1), 0.8."""
    path = np.empty(blocks * rows)
    path[0] = source.standard_normal()
    for place in range(1, len(path)):
        path[place] = 0.8 * path[place - 1] + 0.6 * source.standard_normal()
    return NOISE * _in_order(source, path, blocks, rows)


def outliers(source: np.random.Generator, blocks: int, rows: int) -> Any:
    """One run in ten is 5 to 30 % slower."""
    slower = source.uniform(0.05, 0.3, (blocks, rows)) * (source.random((blocks, rows)) < 0.1)
    return independent(source, blocks, rows) - slower


def two_speeds(source: np.random.Generator, blocks: int, rows: int) -> Any:
    """Each run is at one of two speeds, 6 % apart."""
    return 0.005 * source.standard_normal((blocks, rows)) + 0.06 * (source.random((blocks, rows)) < 0.5)


def _in_order(source: np.random.Generator, path: Any, blocks: int, rows: int) -> Any:
    """What the runs of a session meet, one after the other, each block in random order: blocks x rows."""
    order = source.random((blocks, rows)).argsort(1)
    return np.take_along_axis(path.reshape(blocks, rows), order, 1)


NOISES: Mapping[str, Draw] = {
    "independent, 2 %": independent,
    "unequal, 0.5 to 5 %": unequal,
    "shocks to blocks, 5 %": shocks,
    "drift of 5 %": drift,
    "AR(1), 0.8": wandering,
    "outliers, 10 %": outliers,
    "two speeds": two_speeds,
}


def rows_of(logs: Any) -> list[dict[int, float]]:
    """As the report has them: rate by block."""
    return [dict(enumerate(np.exp(column).tolist())) for column in logs.T]


def false_calls(noise: Draw, rows: int, blocks: int, trials: int) -> float:
    """Share of comparisons of equal systems in which at least one is called slower than another."""
    source = np.random.default_rng([SEED, rows, blocks])
    return float(np.mean([ranking.told_apart(rows_of(noise(source, blocks, rows))).any() for _ in range(trials)]))


def false_calls_until(noise: Draw, rows: int, goal: float, trials: int) -> tuple[float, float]:
    """The same with --until, whatever number of blocks that stops at; and the mean of these."""
    source = np.random.default_rng([SEED, rows, round(1000 * goal)])
    false, made = [], []
    for _ in range(trials):
        logs = noise(source, MAX_BLOCKS, rows)
        looks = (n for n in range(FIRST_LOOK, MAX_BLOCKS) if until.looked_at(n, MAX_BLOCKS))
        enough = (n for n in looks if until.widest(rows_of(logs[:n])) <= goal)
        made.append(next(enough, MAX_BLOCKS))
        false.append(ranking.told_apart(rows_of(logs[: made[-1]]), ranking.LEVEL_OF_LOOKS).any())
    return float(np.mean(false)), float(np.mean(made))


def found(noise: Draw, rows: int, blocks: int, trials: int) -> float:
    """Share in which the first system, which is 3 % slower, is called slower than the second, which is as the rest."""
    source = np.random.default_rng([SEED, rows, blocks, 1])
    slower = np.where(np.arange(rows) == 0, DIFFERENCE, 0)
    draws = (noise(source, blocks, rows) - slower for _ in range(trials))
    return float(np.mean([ranking.told_apart(rows_of(logs))[1, 0] for logs in draws]))


def covered(noise: Draw, blocks: int, trials: int) -> tuple[float, float, float]:
    """Of the intervals of a rate and of a ratio the shares that hold the truth; and of centres those inside.

    The truth of a rate is the median of what this session had for its runs: all that it had for all systems.
    """
    source = np.random.default_rng([SEED, blocks, 2])
    rate, ratio, inside = [], [], []
    for _ in range(trials):
        logs = noise(source, blocks, 6)
        row, *_, other = rows_of(logs)
        own = logs[:, 0] if noise is unequal else logs
        truth = np.exp(_median(noise, own))
        one, two = statistics.estimate(list(row.values())), statistics.ratio(row, other)
        rate.append(_holds(one, truth))
        ratio.append(_holds(two, 1.0))
        inside.append(_holds(one, one.centre) and _holds(two, two.centre))
    return float(np.mean(rate)), float(np.mean(ratio)), float(np.mean(inside))


def _median(noise: Draw, logs: Any) -> float:
    """Of the logarithms that a session's runs can have."""
    if noise in (drift, wandering):
        return float(np.median(logs))
    if noise is outliers:
        return float(-NOISE * 0.1397)  # of the normal: where 0.9 F(x) = 0.5 - 0.1, outliers all lie below
    if noise is two_speeds:
        return 0.03  # all between the two are
    return 0.0


def _holds(estimate: statistics.Estimate, value: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= value <= estimate.high


def smallest(trials: int) -> tuple[float, float]:
    """The difference that a report says it would find in 95 % of cases, and the share in which it is found."""
    source = np.random.default_rng([SEED, 3])
    said, hits = [], []
    for _ in range(trials):
        noise = ranking.noise(rows_of(independent(source, 15, 6)))
        assert noise is not None
        least = noise.smallest(15)
        said.append(least)
        again = independent(source, 15, 6) - np.where(np.arange(6) == 0, least, 0)
        hits.append(ranking.told_apart(rows_of(again))[1, 0])
    return float(np.mean(said)), float(np.mean(hits))


def reports() -> Iterator[tuple[int, float, float]]:
    """Records of a report, with charts, the seconds of processor time that it took, and GiB of memory at most."""
    published = Path(__file__).parents[2] / "report/published/2026-11-21-cpu-fp32/results.json"
    one = comparison_from(json.loads(published.read_text(encoding="utf-8")))
    for copies in (10_000 // len(one.records), 100_000 // len(one.records)):
        jobs = {(job.id, n): replace(job, id=f"{job.id}-{n}", batch_size=n) for job in one.jobs for n in range(copies)}
        records = [replace(run, job=jobs[run.job.id, n]) for run in one.records for n in range(copies)]
        proofs = {job.id: one.proofs.get(id_, ()) for (id_, _), job in jobs.items()}
        many = replace(one, jobs=tuple(jobs.values()), records=tuple(records), proofs=proofs)
        began = time.process_time()
        report.render(many)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        yield len(records), time.process_time() - began, memory


def main(argv: Sequence[str] | None = None) -> int:
    """1 where a bar does not hold."""
    parser = argparse.ArgumentParser(prog="make bench-statistics", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each figure; default: %(default)s")
    trials = parser.parse_args(argv).trials
    failed: list[str] = []

    def cell(value: float, good: bool, what: str) -> str:
        if not good:
            failed.append(f"{what}: {100 * value:.1f} %")
        return f"{100 * value:5.1f}{' ' if good else '!'}"

    print(f"{trials} comparisons for each figure, in %; ! where a bar does not hold\n")
    print(f"Equal systems, any false call (at most {100 * MOST_FALSE:g}); n = {', '.join(map(str, BLOCKS))}")
    for rows in SYSTEMS:
        for name, noise in NOISES.items():
            enough = trials * TRIALS_OF_TWO // TRIALS if rows == 2 else trials
            shares = [false_calls(noise, rows, blocks, enough) for blocks in BLOCKS]
            cells = [cell(one, one <= MOST_FALSE, f"{rows} systems, {name}, false calls") for one in shares]
            print(f"  {rows} systems, {name:<22}", *cells, flush=True)
    print(f"\nThe same with --until, at most {MAX_BLOCKS} blocks: 2 %, 1 %; blocks in the mean")
    for rows in SYSTEMS:
        for name, noise in NOISES.items():
            both = [false_calls_until(noise, rows, goal, trials) for goal in (0.02, 0.01)]
            cells = [cell(one, one <= MOST_FALSE, f"{rows} systems, {name}, --until") for one, _ in both]
            print(f"  {rows} systems, {name:<22}", *cells, *(f"{blocks:5.1f}" for _, blocks in both), flush=True)
    print("\nA difference of 3 % at 2 % noise, found; with blocks that vary by 5 % too")
    for rows, blocks, bar in POWERS:
        shares = [found(noise, rows, blocks, trials) for noise in (independent, shocks)]
        cells = [cell(one, one >= bar, f"{rows} systems, n={blocks}, found") for one in shares]
        print(f"  {rows} systems, n={blocks:<2} (at least {100 * bar:g})", *cells, flush=True)
    print(f"\nIntervals of rates, of ratios (at least {100 * LEAST_COVERED:g}); centres inside (100)")
    for name, noise in NOISES.items():
        for blocks in BLOCKS:
            *both, inside = covered(noise, blocks, trials)
            bars = [LEAST_COVERED if (name, blocks) not in UNCOVERED else 0, LEAST_COVERED]
            cells = [cell(one, one >= bar, f"{name}, n={blocks}") for one, bar in zip(both, bars, strict=True)]
            print(
                f"  {name:<22} n={blocks:<2}",
                *cells,
                cell(inside, inside == 1, f"{name}, n={blocks}, centre"),
                flush=True,
            )
    said, share = smallest(trials)
    print(
        f"\nThe smallest difference that a report names (6 systems, n=15): {100 * said:.1f}, found: {100 * share:.1f}"
    )
    print("\nReports with charts (of 10,000 records in 10 s and 1 GiB; of more in proportion)")
    for count, seconds, memory in reports():
        good = seconds <= count / 1000 and memory <= count / 10_000
        print(f"  {count:,} records: {seconds:.1f} s, {memory:.2f} GiB{'' if good else '!'}", flush=True)
        failed += [] if good else [f"a report of {count:,} records takes {seconds:.1f} s and {memory:.2f} GiB"]
    print("".join(f"\nDoes not hold: {line}" for line in failed) or "\nAll bars hold.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
