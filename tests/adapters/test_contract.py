"""What the contract of an adapter has for parameter servers: sparse tensors, and processes that do not train."""

import json
import os
import subprocess
import sys
import typing

import numpy
import pytest

from dlperf import models
from dlperf.adapters import trace
from dlperf.adapters.api import Job, Sparse
from dlperf.adapters.ranks import Ranks
from dlperf.catalog import reader
from dlperf.models.parameters import initial
from dlperf.runs import bundle

JOB = Job("bert_tiny", "cpu", "fp64", batch_size=2, trace_steps=1)
PARAMETERS = models.family(JOB.model).parameters(models.config(JOB.model))
TABLE = "bert.embeddings.word_embeddings.weight"
ROWS = numpy.array([0, 3, 7])


class Trained:
    """What trace.record asks of a trainer, after a step that changed three rows of the word embedding."""

    shapes: typing.ClassVar = {}
    effective: typing.ClassVar = {}

    def __init__(self, sparse, rows=ROWS):
        self._sparse, self._rows = sparse, rows

    def step(self):
        return 1.0

    def wait(self):
        pass

    def read(self, loss):
        return loss

    def logits(self):
        shapes = models.family(JOB.model).logits(models.config(JOB.model))
        return ((name, numpy.ones((JOB.batch_size, *shape))) for name, shape in shapes.items())

    def gradients(self):
        return self._given(lambda parameter: numpy.zeros(parameter.shape), trained=True)

    def parameters(self):
        return self._given(lambda parameter: initial(parameter, JOB.seed, "float64"), trained=False)

    def _given(self, start, trained):
        for parameter in PARAMETERS:
            if parameter.trained or not trained:
                values = start(parameter)
                if parameter.name == TABLE:
                    values[self._rows] += 0.5
                    values = Sparse(self._rows, values[self._rows]) if self._sparse else values
                yield parameter.name, values


def trajectory(folder, sparse):
    folder.mkdir()
    told = trace.record(Trained(sparse), JOB, Ranks(), folder, lambda steps: None)
    with numpy.load(folder / told["file"]) as sketches:
        return told["gradient_norms"], told["weights"], {name: sketches[name].tobytes() for name in sketches}


def test_sparse_rows_are_the_tensor_that_they_are_rows_of(tmp_path):
    assert trajectory(tmp_path / "sparse", True) == trajectory(tmp_path / "dense", False)


@pytest.mark.parametrize("rows", [[3, 0, 7], [0, 3, 3], [-1, 3, 7], [0, 3, 10**9]], ids=str)
def test_rows_that_are_not_the_tables_are_named(tmp_path, rows):
    rows = numpy.array(rows)
    table = next(parameter for parameter in PARAMETERS if parameter.name == TABLE)
    given = [(TABLE, Sparse(rows, numpy.zeros((3, table.shape[1]))))]
    with pytest.raises(trace.WrongTensor, match=f"gradients: {TABLE}: rows must ascend, each once, from 0 to"):
        list(trace._checked("gradients", given, {TABLE: table.shape}))


def test_a_sparse_tensors_values_have_a_row_for_each_of_its_rows():
    given = [(TABLE, Sparse(ROWS, numpy.zeros((2, 5))))]
    with pytest.raises(trace.WrongTensor, match=r"shape is \(2, 5\), must be \(3, 5\)"):
        list(trace._checked("gradients", given, {TABLE: (10, 5)}))


def test_a_server_serves_and_does_not_train(tmp_path):
    bundle.copy_code(tmp_path / "code", [reader.adapters()["fake"]])
    module = tmp_path / "code" / "dlperf" / "adapters" / "fake" / "bert.py"
    module.write_text(
        module.read_text() + "\n\ndef serve(job, ranks):\n    print('server', ranks.rank, 'of', job.model)\n"
    )
    (tmp_path / "job.json").write_text(json.dumps({"adapter": "fake", "job": JOB._replace(trace_steps=0)._asdict()}))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code"), "DLPERF_ROLE": "server"}
    command = [sys.executable, "-m", "dlperf.adapters.worker", "job.json", "."]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "server 0 of bert_tiny\n")
    lines = (tmp_path / "events.server0.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["start", "imported", "end"]
