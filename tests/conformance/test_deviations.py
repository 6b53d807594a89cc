"""The proof is itself proven: each deliberate deviation of an adapter gets a certificate of different work.

Each runs in a tiny model, through the real worker, and is judged by the real bars beside the adapter as it is. In a
smaller network fewer places show a deviation, so what is caught here is caught in the full ones.
"""

import functools
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from trajectories import ADAPTERS, SPEC, asked

from dlperf.proof import judge, low
from dlperf.proof.certify import Certifier
from dlperf.proof.judge import REFERENCE
from dlperf.proof.published import moved
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

DEVIATIONS = tomllib.loads(Path(__file__).with_name("deviations.toml").read_text())["deviation"]
FRAMEWORKS = ("pytorch", "jax", "mxnet")
CASES = {(one["name"], framework): one for one in DEVIATIONS for framework in FRAMEWORKS if framework in one}


@pytest.fixture(scope="module")
def seen(environment, evidence, tmp_path_factory):
    """(deviation, framework) -> its trajectory; and those of the adapters as they are, made meanwhile."""
    for name in FRAMEWORKS:
        environment(name)
    root = tmp_path_factory.mktemp("deviations")

    def altered(number, key):
        case, framework = CASES[key], key[1]
        bundle.copy_code(root / str(number) / "code", [ADAPTERS[framework]])
        for change in case[framework]:
            alter(root / str(number) / "code" / "dlperf" / "adapters" / framework / change["file"], change)
        certifier = Certifier(root / str(number), SPEC, print)
        return certifier.run(asked(framework, *whole(case)), environment(framework), threads=1)

    with ThreadPoolExecutor(2) as pool:
        for wanted in {(framework, *whole(case)) for (_, framework), case in CASES.items()}:
            pool.submit(evidence, *wanted)
        found = pool.map(altered, range(len(CASES)), CASES)
        yield dict(zip(CASES, found, strict=True))
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def trained(environment, tmp_path_factory):
    """A framework, a family's tiny model, a precision and the changes of a deviation -> the trajectory, made once."""
    root = tmp_path_factory.mktemp("trained")
    count = iter(range(1000))

    @functools.cache
    def trained(framework, model, precision, changes=()):
        folder = root / str(next(count))
        bundle.copy_code(folder / "code", [ADAPTERS[framework]])
        for change in map(dict, changes):
            alter(folder / "code" / "dlperf" / "adapters" / framework / change["file"], change)
        wanted = replace(asked(framework, model, 1), precision=precision)
        return Certifier(folder, SPEC, print).run(wanted, environment(framework), threads=2)

    yield trained
    shutil.rmtree(root)


def whole(case):
    """Model and ranks."""
    return case.get("model", f"{case['family']}_tiny"), case.get("ranks", 1)


def alter(path, change):
    source = path.read_text()
    assert change["old"] in source, f"{path.name} has no {change['old']!r}: bring deviations.toml up to date"
    path.write_text(source.replace(change["old"], change["new"]))


@pytest.mark.parametrize(("name", "framework"), CASES, ids=[", ".join(case) for case in CASES])
def test_a_deviation_is_caught(name, framework, seen, evidence):
    plain, altered = evidence(framework, *whole(CASES[name, framework])), seen[name, framework]
    assert plain.trajectory.failure is None
    assert altered.trajectory.failure is None or altered.trajectory.failure.kind == "ranks_differ"
    reference = replace(plain, trajectory=replace(plain.trajectory, system=REFERENCE))
    (certificate,) = judge.judge([altered], reference)
    assert certificate.verdict == "different", certificate.differences
    print(certificate.why)


#: those of one rank, in the precisions in which rows are measured
MEASURED = [
    pytest.param(name, framework, precision, id=f"{name}, {framework}, {precision}")
    for (name, framework), case in CASES.items()
    for precision in ("fp32", "amp_bf16")
    if framework != "mxnet" and "ranks" not in case
]


@pytest.mark.deviations
@pytest.mark.parametrize(("name", "framework", "precision"), MEASURED)
def test_a_deviation_is_caught_in_the_measured_precision(name, framework, precision, trained):
    """Had only that precision's kernels deviated. Rounding hides what `hidden` lists, which float64 shows."""
    case = CASES[name, framework]
    model = whole(case)[0]
    altered = trained(framework, model, precision, tuple(tuple(change.items()) for change in case[framework]))
    exact, single = (trained(framework, model, one) for one in ("fp64", "fp32"))
    if precision == "fp32":
        reference = replace(single, trajectory=replace(single.trajectory, system=REFERENCE))
        (certificate,) = judge.judge([altered], reference)
    else:
        certificate = low.judge(altered, exact, single, moved(altered.trajectory))
    print(certificate.why)
    assert (certificate.verdict == "same") == (precision in case.get("hidden", ()))


def test_every_deviation_is_tried_in_two_frameworks():
    assert all(sum(framework in one for framework in FRAMEWORKS) == 2 for one in DEVIATIONS)
