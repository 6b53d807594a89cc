"""Property tests of all readers: whatever they are given, nothing comes out but dlperf's own errors."""

import contextlib
import json

import pytest
import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd import ODD, changed

from dlperf.catalog import reader
from dlperf.errors import UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning import checks

#: inputs to each reader in the short form
SHORT = 300
#: in the long one with --faults 1, thousands, 100 together: fewer to those that take longer
LONG = {
    "records": 20, "proofs": 20, "events": 15, "samples of GPUs": 10, "hostfiles": 8, "rows of text": 5, "photos": 5,
    "adapter.toml": 5, "certificates": 3, "comparison.json": 3, "results.json": 2, "records.jsonl": 1, "arguments": 1,
    "tables": 1, "batch_sizes.json": 0.5, "seconds.json": 0.5, "proofs.json": 0.5, "logs": 0.5,
}  # fmt: skip
#: inputs of one example, which share the time to make it
EACH = 20

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
VALUES = st.none() | st.sampled_from(ODD) | JSON.map(json.dumps)
LINES = {
    "hostfiles": st.from_regex(r"\A([\w.:-]{0,9}( (slots|max_slots|x)=\w{0,4})?[ #]?\n){0,4}", fullmatch=False),
    "logs": st.one_of([st.from_regex(script.log.line) for script, _ in readers.scripts()]).map(
        lambda line: line + "\n"
    ),
    "tables": st.tuples(st.sampled_from(readers.tables()), st.sampled_from(ODD), st.integers(0, 3000)).map(
        lambda made: made[0][: made[2]] + made[1] + made[0][made[2] :]
    ),
    "adapter.toml": st.randoms(use_true_random=False).map(
        lambda source: readers.swapped(source.choice(readers.tomls()).decode(), source)
    ),
}


def inputs(name):
    """Documents with a value changed, or text, or noise."""
    noise = st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass"))
    if name in LINES:
        return noise | LINES[name].map(lambda text: text.encode(errors="surrogatepass"))
    places = readers.places(name)

    def document(made):
        at, value = made
        return changed(*places[at], value).encode(errors="surrogatepass")

    return noise | st.tuples(st.integers(0, len(places) - 1), VALUES).map(document)


def tried(made, form, times, record_property, kind):
    """Run a property. made: of its settings, and of where it counts its inputs."""
    count, failed = [0], 1
    examples = int(SHORT if form == "short" else LONG[kind] * 1000 * times) // EACH
    settled = settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    try:
        made(settled, count)()
        failed = 0
    finally:
        record_property("faults", [f"inputs: {kind}", count[0], failed])


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.faults)])
def form(request):
    return request.param, 1 if request.param == "short" else request.config.getoption("--faults")


@pytest.mark.parametrize("name", readers.READERS)
def test_a_reader(name, form, record_property):
    def made(settled, count):
        @settled
        @given(st.lists(inputs(name), min_size=EACH, max_size=EACH))
        def read(several):
            for data in several:
                count[0] += 1
                readers.READERS[name].read(data)

        return read

    tried(made, *form, record_property, name)


ADAPTERS = reader.adapters()
KNOWN = (
    "fp32",
    "bert",
    "pytorch",
    "fake",
    "cpu",
    "venv",
    "on",
    "off",
    "auto",
    "max",
    "quick",
    "dlperf",
    "mpi",
    "2%",
    "1,2",
)
TEXT = st.sampled_from(KNOWN) | st.text(min_size=1, max_size=12) | st.integers().map(str) | st.floats().map(str)


def test_arguments(form, record_property):
    values = st.dictionaries(st.sampled_from(sorted(DEFAULTS)), TEXT, max_size=3)

    def made(settled, count):
        @settled
        @given(st.lists(values, min_size=EACH, max_size=EACH))
        def read(several):
            for chosen in several:
                count[0] += 1
                told = {
                    key: [text] if key in ("set", "launcher_arg", "container_arg") else text
                    for key, text in chosen.items()
                }
                with contextlib.suppress(UsageError):
                    checks.from_arguments({**DEFAULTS, **told, "dry_run": True, "output": None}, ADAPTERS)

        return read

    tried(made, *form, record_property, "arguments")
