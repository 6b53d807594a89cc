"""Rows for tables reach every framework: what it trains on them is what the network written out in NumPy trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from commands import run

from dlperf.catalog import reader
from dlperf.models import FAMILY_OF
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

ADAPTERS = reader.adapters()
#: model -> options of `dlperf.data`
MADE = {
    "word2vec_tiny": "words --corpus {folder}/words",
    "word2vec_per_example_check": "words --corpus {folder}/words",
    "simnet_bow_tiny": "queries --source {folder}/queries.txt --query 4 --title 6",
    "ctr_dnn_check": "clicks --source {folder}/clicks.txt --vocabulary 20000",
}
#: `make test` has one framework
REAL = [name for name, adapter in ADAPTERS.items() if adapter.default]
NAMES = [name if name == "pytorch" else pytest.param(name, marks=pytest.mark.long) for name in REAL]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Model -> a folder of rows for it."""
    folder, random = tmp_path_factory.mktemp("rows"), numpy.random.RandomState(3)

    def text(most):
        return " ".join(f"w{int(one)}" for one in 200 * random.random_sample(random.randint(2, most + 1)) ** 2)

    def clicks():
        fields = [random.randint(2), *random.randint(30, size=13), *random.randint(40, size=26)]
        return "\t".join(str(one) if one or not place else "" for place, one in enumerate(fields))

    (folder / "words").mkdir()
    (folder / "words" / "a.txt").write_text("\n".join(text(12) for _ in range(200)))
    (folder / "queries.txt").write_text("\n".join("\t".join(map(text, (4, 8, 6))) for _ in range(200)))
    (folder / "clicks.txt").write_text("\n".join(clicks() for _ in range(200)))
    for model, words in MADE.items():
        ended = run("data", *words.format(folder=folder).split(), "--output", folder / model, "--quiet")
        assert ended.returncode == 0, ended.stderr
    return {model: folder / model for model in MADE}


def trained(python, adapter, rows, variables, folder):
    """Model -> what train_rows.py found, in float64, so that nothing but rows decides."""
    bundle.copy_code(folder / adapter.name, [adapter])
    models = [model for model in rows if FAMILY_OF[model] in adapter.families]
    jobs = []
    for model in models:
        options = {name: one.default("cpu") for name, one in adapter.options_of(FAMILY_OF[model]).items()}
        job = {"model": model, "device": "cpu", "precision": "fp64", "batch_size": 16, "seed": 7, "options": options}
        jobs.append({**job, "input": "native", "data_dir": str(rows[model])})
    script, out = Path(__file__).with_name("train_rows.py"), folder / f"{adapter.name}.json"
    ended = subprocess.run(
        [python, script, adapter.name, json.dumps(jobs), out],
        env={**os.environ, "PYTHONPATH": str(folder / adapter.name), **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return dict(zip(models, json.loads(out.read_text()), strict=True))


@pytest.fixture(scope="module")
def of_numpy(rows, tmp_path_factory):
    found = trained(sys.executable, ADAPTERS["numpy"], rows, {}, tmp_path_factory.mktemp("numpy"))
    assert set(found) == set(MADE)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_framework_trains_on_the_rows_as_numpy_does(name, rows, of_numpy, environment, tmp_path):
    made = environment(name)
    found = trained(made.python, ADAPTERS[name], rows, made.variables, tmp_path)
    assert "word2vec_tiny" in found
    for model, one in found.items():
        assert one["losses"] == pytest.approx(of_numpy[model]["losses"], rel=1e-9), model
        assert len({*one["losses"]}) == len(one["losses"]), model
        assert one["data"] == f"rows of {rows[model]}"
