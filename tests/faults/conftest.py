"""A campaign of faults: how many are tried of each kind, from which seed, and a table of what failed."""

import random
import traceback
from collections import Counter
from contextlib import contextmanager

import pytest

#: of tracebacks and of messages, what a failure shows
SHOWN = 600


class Campaign:
    """Tries faults, notes those that fail, and goes on; the test fails at its end."""

    def __init__(self, times, seed):
        self.times, self.source = times, random.Random(seed)
        self.tried, self.failed = Counter(), Counter()
        self.told = []

    @contextmanager
    def fault(self, kind, about):
        """One of a kind, which fails if anything is raised. about: what to tell of it then."""
        self.tried[kind] += 1
        try:
            yield
        except Exception as error:
            self.failed[kind] += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} ({place.filename}:{place.lineno})"
            self.told.append(f"{kind}: {where}: {error!s:.{SHOWN}}\n  of {about!s:.{SHOWN}}")


@pytest.fixture(params=[pytest.param("short", marks=pytest.mark.slow), pytest.param("long", marks=pytest.mark.faults)])
def campaign(request, record_property):
    """The short form, or a multiple of it. Each test has a seed of its own, whatever runs before it."""
    times = 1 if request.param == "short" else request.config.getoption("--faults")
    made = Campaign(times, f"{request.config.getoption('--faults-seed')} {request.node.originalname}")
    yield made
    for kind, tried in made.tried.items():
        record_property("faults", [kind, tried, made.failed[kind]])
    assert made.tried
    if made.told:
        pytest.fail("\n".join(made.told[:20]), pytrace=False)


def pytest_terminal_summary(terminalreporter):
    rows = {}
    for report in (one for several in terminalreporter.stats.values() for one in several):
        for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "teardown" else ():
            if name == "faults":
                kind, tried, failed = value
                before = rows.get(kind, (0, 0))
                rows[kind] = before[0] + tried, before[1] + failed
    if rows:
        rows["all"] = tuple(map(sum, zip(*rows.values(), strict=True)))
        terminalreporter.section("faults")
        terminalreporter.write_line(f"{'kind':<48}{'tried':>10}{'failed':>10}")
        for kind, (tried, failed) in rows.items():
            terminalreporter.write_line(f"{kind:<48}{tried:>10,}{failed:>10,}")
