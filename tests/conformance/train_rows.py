"""Trains on prepared rows: `python train_rows.py ADAPTER JOBS_JSON OUT.json`. The losses of each job's first steps.

Runs where dlperf's code bundle is on PYTHONPATH and only the framework is installed (Python >= 3.7).
"""

import importlib
import json
import sys

from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks

STEPS = 5


def losses(adapter, job):
    module = importlib.import_module("dlperf.adapters.{}.{}".format(adapter, models.FAMILY_OF[job["model"]]))
    trainer = module.build(Job(**job), Ranks())
    found = [float(trainer.read(trainer.step())) for _ in range(STEPS)]
    data = trainer.effective["data"]
    trainer.close()
    return {"losses": found, "data": data}


if __name__ == "__main__":
    _, adapter, jobs, out = sys.argv
    with open(out, "w") as file:
        json.dump([losses(adapter, job) for job in json.loads(jobs)], file)
