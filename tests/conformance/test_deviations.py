"""The proof is itself proven: each deliberate deviation of an adapter gets a certificate of different work.

Each runs in a tiny model, through the real worker, and is judged by the real bars beside the adapter as it is. In a
smaller network fewer places show a deviation, so what is caught here is caught in the full ones.
"""

import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dlperf.catalog import reader
from dlperf.envs import kinds
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import make
from dlperf.precision import ASKED
from dlperf.proof import asked as asked_
from dlperf.proof import judge
from dlperf.proof.certify import Certifier
from dlperf.proof.judge import REFERENCE
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

DEVIATIONS = tomllib.loads(Path(__file__).with_name("deviations.toml").read_text())["deviation"]
FRAMEWORKS = ("pytorch", "jax", "mxnet")
CASES = {(one["name"], framework): one for one in DEVIATIONS for framework in FRAMEWORKS if framework in one}
TINY = {"resnet": "resnet_tiny", "bert": "bert_tiny"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """(deviation, framework), or ("", framework, model, ranks) for the adapter as it is -> its trajectory."""
    adapters = reader.adapters()
    environments = {name: kinds.ensure(adapters[name], "cpu", progress=print) for name in FRAMEWORKS}
    root = tmp_path_factory.mktemp("deviations")
    runs = {key: (key[1], model(case), case.get("ranks", 1), case[key[1]]) for key, case in CASES.items()}
    runs |= {("", framework, of, ranks): (framework, of, ranks, []) for framework, of, ranks, _ in runs.values()}

    def run(number_and_key):
        number, key = number_and_key
        framework, of, ranks, changes = runs[key]
        bundle.make(root / str(number) / "code", [adapters[framework]])
        for change in changes:
            alter(root / str(number) / "code" / "dlperf" / "adapters" / framework / change["file"], change)
        certifier = Certifier(root / str(number), threads=1, timeout=300, note=print)
        return key, certifier.run(asked(framework, of, ranks, adapters), environments[framework], threads=1)

    with ThreadPoolExecutor(2) as pool:
        yield dict(pool.map(run, enumerate(runs)))
    shutil.rmtree(root)


def model(case):
    return case.get("model", TINY[case["family"]])


def alter(path, change):
    source = path.read_text()
    assert change["old"] in source, f"{path.name} has no {change['old']!r}: bring deviations.toml up to date"
    path.write_text(source.replace(change["old"], change["new"]))


def asked(framework, of, ranks, adapters):
    words = {"model": of, "precision": "fp64", "frameworks": framework, "device": "cpu", "env": "venv"}
    rest = dict.fromkeys(["protocol", "compile", "set", "timeout", "seed", "threads"])
    rest["nproc_per_node"] = str(ranks)
    spec = from_arguments({**words, **rest, "data": "synthetic", "dry_run": False}, adapters, ("fp64", *ASKED))
    return replace(asked_.shown(make(spec, adapters).jobs[0])[0], ranks=ranks)


@pytest.mark.parametrize(("name", "framework"), CASES, ids=[", ".join(case) for case in CASES])
def test_a_deviation_is_caught(name, framework, seen):
    case = CASES[name, framework]
    whole = seen["", framework, model(case), case.get("ranks", 1)]
    altered = seen[name, framework]
    assert whole.trajectory.failure is None
    assert altered.trajectory.failure is None or altered.trajectory.failure.kind == "ranks_differ"
    reference = replace(whole, trajectory=replace(whole.trajectory, system=REFERENCE))
    (certificate,) = judge.judge([altered], reference)
    assert certificate.verdict == "different", certificate.differences
    print(certificate.why)


def test_every_deviation_is_tried_in_two_frameworks():
    assert all(sum(framework in one for framework in FRAMEWORKS) == 2 for one in DEVIATIONS)
