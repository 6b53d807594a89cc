"""Observes one adapter in its own environment: `python driver.py ADAPTER FAMILY OPTIONS_JSON THREADS OUT.json`.

Runs where dlperf's code bundle is on PYTHONPATH and only the framework is installed (Python >= 3.7). Each observation
is a function; one that raises is written down as its traceback, and the tests that need it fail with that text.
"""

import importlib
import json
import sys
import time
import traceback

import numpy

from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks
from dlperf.models.parameters import initial


class Subject:
    """The adapter under test."""

    def __init__(self, adapter, family, options, threads):
        self.module = importlib.import_module(f"dlperf.adapters.{adapter}.{family}")
        self.options, self.threads = options, threads
        self.tiny, self.full = f"{family}_tiny", next(iter(models.FAMILIES[family].SIZES))

    def build(self, model, **fields):
        settings = {"device": "cpu", "precision": "fp32", "batch_size": 4, "threads": self.threads, "seed": 7}
        settings.update(options=self.options, **fields)
        return self.module.build(Job(model=model, **settings), Ranks())

    def losses(self, trainer, steps):
        return [trainer.read(trainer.step()) for _ in range(steps)]


def observe_versions(subject):
    return dict(subject.module.versions())


def observe_tiny(subject):
    """A tiny model, dropout off: parameters as built, ten losses, parameters after them."""
    trainer = subject.build(subject.tiny, dropout=0.0, distinct_batches=10)
    found = {"parameter_count": trainer.parameter_count, "built": _against_initial(subject, trainer)}
    losses = subject.losses(trainer, 10)
    trainer.wait()
    found.update(losses=losses, trained=_against_initial(subject, trainer), effective=dict(trainer.effective))
    found["shapes"] = {name: list(shape) for name, shape in trainer.shapes.items()}
    trainer.close()
    return found


def _against_initial(subject, trainer):
    """name -> shape, dtype and largest difference from the initial value."""
    config = models.config(subject.tiny)
    expected = {p.name: initial(p, 7) for p in models.family(subject.tiny).parameters(config)}
    found = {}
    for name, value in trainer.parameters():
        same_shape = name in expected and value.shape == expected[name].shape
        difference = float(numpy.abs(value - expected[name]).max()) if same_shape else None
        found[name] = {"shape": list(value.shape), "dtype": str(value.dtype), "difference": difference}
    return found


def observe_float64(subject):
    """The same ten losses in float64."""
    trainer = subject.build(subject.tiny, dropout=0.0, distinct_batches=10, precision="fp64")
    losses = subject.losses(trainer, 10)
    dtypes = sorted({str(value.dtype) for _, value in trainer.parameters()})
    found = {"losses": losses, "dtypes": dtypes, "effective": dict(trainer.effective)}
    trainer.close()
    return found


def observe_one_batch(subject):
    """Thirty steps on one batch, with dropout as when measured."""
    trainer = subject.build(subject.tiny, distinct_batches=1)
    losses = subject.losses(trainer, 30)
    trainer.close()
    return losses


def observe_time(subject):
    """Seconds of processor time, which other work on the machine does not lengthen, of steps that are ended by `wait`,
    and of a read right after it: nine rounds of steps that take about 0.1 s."""
    # of rows alone many, or reading a number takes longer than a step
    trainer = subject.build(subject.tiny, batch_size=32 if models.flops(subject.tiny) > 10**5 else 32768)
    _timed(trainer, 3)
    steps = max(2, int(0.1 / (_timed(trainer, 3)[0] / 3)))
    rounds = [_timed(trainer, steps) for _ in range(9)]
    trainer.close()
    return {"steps": steps, "waited": [one for one, _ in rounds], "read_after_wait": [one for _, one in rounds]}


def _timed(trainer, steps):
    trainer.wait()
    began = time.process_time()
    for _ in range(steps):
        loss = trainer.step()
    trainer.wait()
    waited = time.process_time()
    trainer.read(loss)
    return waited - began, time.process_time() - waited


def observe_full(subject):
    """The full-size model: its parameter count, one step's loss, the shapes of that step."""
    trainer = subject.build(subject.full, batch_size=2, distinct_batches=1)
    loss = subject.losses(trainer, 1)[0]
    found = {"parameter_count": trainer.parameter_count, "loss": loss, "effective": dict(trainer.effective)}
    found["shapes"] = {name: list(shape) for name, shape in trainer.shapes.items()}
    trainer.close()
    return found


OBSERVATIONS = {
    "versions": observe_versions,
    "tiny": observe_tiny,
    "float64": observe_float64,
    "one_batch": observe_one_batch,
    "time": observe_time,
    "full": observe_full,
}


def main(argv):
    adapter, family, options, threads, out = argv
    subject = Subject(adapter, family, json.loads(options), int(threads))
    found = {}
    for name, observation in OBSERVATIONS.items():
        try:
            found[name] = {"value": observation(subject)}
        except Exception:
            found[name] = {"error": traceback.format_exc()}
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1:])
