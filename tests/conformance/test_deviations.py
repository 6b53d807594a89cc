"""The proof is itself proven: each deliberate deviation of an adapter gets a certificate of different work.

Each runs in a tiny model, through the real worker, and is judged by the real bars beside the adapter as it is. In a
smaller network fewer places show a deviation, so what is caught here is caught in the full ones.
"""

import functools
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from deviations import DEVIATIONS, REVEALED, model_of
from trajectories import ADAPTERS, SPEC, as_reference, asked

from dlperf.proof import judge, low
from dlperf.proof.bars import bars_for
from dlperf.proof.certify import Certifier
from dlperf.proof.published import moved
from dlperf.proof.published import reference as published
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

FRAMEWORKS = ("pytorch", "jax", "mxnet")
CASES = {(one["name"], framework): one for one in DEVIATIONS for framework in FRAMEWORKS if framework in one}
#: of each its first framework; `make test-deviations` has the others, too
FIRST = {name: framework for name, framework in reversed(CASES)}
TRIED = [
    pytest.param(*key, id=", ".join(key), marks=[] if FIRST[key[0]] == key[1] else [pytest.mark.deviations])
    for key in CASES
]


@pytest.fixture(scope="module")
def seen(request, environment, evidence, tmp_path_factory):
    """(deviation, framework) of the tests that run -> its trajectory; and those of the adapters as they are, made
    meanwhile."""
    items = [one for one in request.session.items if one.originalname == "test_a_deviation_is_caught"]
    keys = [(one.callspec.params["name"], one.callspec.params["framework"]) for one in items]
    cases = {key: CASES[key] for key in keys}
    for name in {framework for _, framework in cases}:
        environment(name)
    root = tmp_path_factory.mktemp("deviations")

    def altered(number, key):
        case, framework = cases[key], key[1]
        bundle.copy_code(root / str(number) / "code", [ADAPTERS[framework]])
        for change in case[framework]:
            alter(root / str(number) / "code" / "dlperf" / "adapters" / framework / change["file"], change)
        certifier = Certifier(root / str(number), SPEC, print)
        return certifier.run(asked(framework, *whole(case), **apart(case)), environment(framework), threads=1)

    with ThreadPoolExecutor(2) as pool:
        wanted = {((framework, *whole(case)), (*apart(case).items(),)) for (_, framework), case in cases.items()}
        for which, servers in wanted:  # each once: two that are made at once have one folder
            pool.submit(evidence, *which, **dict(servers))
        found = pool.map(altered, range(len(cases)), cases)
        yield dict(zip(cases, found, strict=True))
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def trained(environment, tmp_path_factory):
    """A framework, a model, a precision and the changes of a deviation -> the trajectory, made once; on small input but
    with full_size."""
    root = tmp_path_factory.mktemp("trained")
    count = iter(range(1000))

    @functools.cache
    def trained(framework, model, precision, changes=(), full_size=False):
        folder = root / str(next(count))
        bundle.copy_code(folder / "code", [ADAPTERS[framework]])
        for change in map(dict, changes):
            alter(folder / "code" / "dlperf" / "adapters" / framework / change["file"], change)
        wanted = replace(asked(framework, model, 1), precision=precision)
        wanted = replace(wanted, model=model) if full_size else wanted
        return Certifier(folder, SPEC, print).run(wanted, environment(framework), threads=2)

    yield trained
    shutil.rmtree(root)


def whole(case):
    """Model, ranks and settings."""
    return model_of(case), case.get("ranks", 1), *case.get("set", ())


def apart(case):
    """Its parameter servers."""
    return {"servers": 1, "mode": case["mode"]} if "mode" in case else {}


def alone(case):
    """Whether one process trains."""
    return not {"ranks", "mode"} & case.keys()


def trains(framework, case, precision):
    return ADAPTERS[framework].support_of(case["family"], "cpu", precision, "synthetic").status == "yes"


def changes(name, framework):
    return tuple(tuple(change.items()) for change in CASES[name, framework][framework])


def alter(path, change):
    source = path.read_text()
    assert change["old"] in source, f"{path.name} has no {change['old']!r}: bring deviations.toml up to date"
    path.write_text(source.replace(change["old"], change["new"]))


@pytest.mark.parametrize(("name", "framework"), TRIED)
def test_a_deviation_is_caught(name, framework, seen, evidence):
    case = CASES[name, framework]
    plain, altered = evidence(framework, *whole(case), **apart(case)), seen[name, framework]
    assert plain.trajectory.failure is None
    assert altered.trajectory.failure is None or altered.trajectory.failure.kind == "ranks_differ"
    (certificate,) = judge.judge([altered], as_reference(plain))
    assert certificate.verdict == "different", certificate.differences
    print(certificate.why)


#: those of one rank, in the precisions in which rows are measured
MEASURED = [
    pytest.param(name, framework, precision, id=f"{name}, {framework}, {precision}")
    for (name, framework), case in CASES.items()
    for precision in ("fp32", "amp_bf16")
    if framework != "mxnet" and alone(case) and trains(framework, case, precision)
]


@pytest.fixture(scope="module")
def certified(trained):
    """A deviation, a framework and a precision -> the certificate of what deviates in that precision's run alone."""

    @functools.cache
    def certified(name, framework, precision):
        model = whole(CASES[name, framework])[0]
        altered = trained(framework, model, precision, changes(name, framework))
        if precision == "amp_bf16":
            exact, single = (trained(framework, model, one) for one in ("fp64", "fp32"))
            return low.judge(altered, exact, single, moved(altered.trajectory))
        plain = trained(framework, model, precision)
        return judge.judge([altered], as_reference(plain))[0]

    return certified


@pytest.mark.deviations
@pytest.mark.parametrize(("name", "framework", "precision"), MEASURED)
def test_a_deviation_is_caught_in_the_measured_precision(name, framework, precision, certified):
    """Had only that precision's kernels deviated. Rounding hides what `hidden` lists, which float64 shows."""
    certificate = certified(name, framework, precision)
    print(certificate.why)
    assert (certificate.verdict == "same") == (precision in CASES[name, framework].get("hidden", ()))


@pytest.mark.deviations
@pytest.mark.parametrize(("name", "framework"), [key for key, case in CASES.items() if "shown" in case])
def test_what_rounding_hides_in_a_tiny_model_is_caught_in_a_real_one(name, framework, trained):
    """In the float32 proof that its rows have, against the published trajectory."""
    altered = trained(framework, CASES[name, framework]["shown"], "fp32", changes(name, framework), full_size=True)
    (certificate,) = judge.judge([altered], published(altered.trajectory))
    print(certificate.why)
    assert certificate.verdict == "different"
    assert "against the reference, its first" in certificate.why


def test_every_deviation_is_caught_in_float32():
    """In a tiny model, in a real one, or in a measured run, see test_measured.py; or it says that it is not."""
    for case in DEVIATIONS:
        unseen = "shown" not in case and model_of(case) not in REVEALED
        assert not unseen or "fp32" not in case.get("hidden", ()) or "fp32" in case["unseen"]


@pytest.mark.deviations
def test_the_table_of_what_is_caught(certified, request, capsys):
    """Of PyTorch's deviations: how many times as far off as the bar of the check that shows it best."""
    width = max(len(name) for name, _ in CASES)
    lines = [f"{'deviation':{width}}" + "".join(f"{title:>28}" for title in ("float64", "float32", "bfloat16"))]
    for name, framework in CASES:
        if framework == "pytorch" and alone(CASES[name, framework]):
            found = (
                over(certified(name, framework, one)) if trains(framework, CASES[name, framework], one) else "-"
                for one in ("fp64", "fp32", "amp_bf16")
            )
            lines.append(f"{name:{width}}" + "".join(f"{told:>28}" for told in found))
    table = "\n".join(lines) + "\n"
    with capsys.disabled():
        print("\n" + table)
    if request.config.getoption("--update-golden"):
        TABLE.write_text(table, encoding="utf-8")
    assert shown(table) == shown(TABLE.read_text(encoding="utf-8"))


TABLE = Path(__file__).parents[1] / "golden" / "deviations.txt"


def over(certificate):
    """ "1.2e+04 (logits)": how far over, and which check."""
    if certificate.bounds:
        found = {one.what: one.found / one.most for one in certificate.bounds}
    elif certificate.differences:
        (difference,), bars = certificate.differences, bars_for(certificate.trajectory)
        found = {
            what: getattr(difference, what) / bar
            for what, bar in asdict(bars).items()
            if bar is not None and getattr(difference, what) is not None
        }
    else:
        return "it says so itself"
    best = max(found, key=found.get)
    return f"{found[best]:.2g} ({best})"


def shown(table):
    """Deviation and precision -> whether it is over its bar, "-" if nothing trains in it. How far depends a little on
    the CPU."""
    rows = [line.split("  ") for line in table.splitlines()[1:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    over = {"-": "-", "it says so itself": True}
    return {name: [over.get(one) or float(one.split()[0]) > 1 for one in told] for name, *told in cells}


def has(framework, case):
    """Whether a framework has the values of the options that a deviation is of."""
    options = ADAPTERS[framework].options
    asked = [setting.split("=") for setting in case.get("set", ())]
    return all(name in options and options[name].accepts(value) for name, value in asked)


def test_every_deviation_is_tried_in_two_frameworks_or_in_the_one_that_has_it():
    for case in DEVIATIONS:
        able = [framework for framework in FRAMEWORKS if has(framework, case)]
        assert sum(framework in case for framework in able) == min(2, len(able)), case["name"]
