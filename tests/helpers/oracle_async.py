"""The bands of dlperf.proof.band: `oracle_async.py MODEL...` makes those of some models, and writes them down.

One server and some workers, as NumPy's networks compute: a worker pulls all tensors, takes a step with them on its own
part of the batch, and the server applies what it pushes. In which order workers pull and push is drawn at random; in
each order another worker may be as fast as it likes, so that among the orders are those in which one worker is done
before the other begins, and those in which both keep step.
"""

import copy
import functools
import importlib
import json
import sys

import numpy

from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.numpy.optimizers import of_rows
from dlperf.adapters.numpy.runtime import Feed
from dlperf.adapters.ranks import Ranks
from dlperf.models.parameters import random_state
from dlperf.proof.asked import RANKS, SEED, batch_size, steps
from dlperf.proof.band import BANDS
from dlperf.proof.certificates import definition

ORDERS = 1000


def orders(workers, count, many):
    """Sequences of workers' numbers, of which each is there twice for each step: it pulls, and then it pushes."""
    yield numpy.repeat(range(workers), 2 * count)
    yield numpy.repeat(range(workers)[::-1], 2 * count)
    draw = random_state(SEED, "orders of pulls and pushes")
    for number in range(2, many):
        speeds = draw.dirichlet(numpy.full(workers, (1, 20)[number % 2]))  # any at all, or nearly the same
        most = 1 + draw.randint(4)  # what a worker does before another does something, at most
        left, found = numpy.full(workers, 2 * count), []
        while left.any():
            shares = numpy.where(left, speeds + 1e-9, 0)
            worker = draw.choice(workers, p=shares / shares.sum())
            moves = min(1 + draw.randint(most), left[worker])
            found += [worker] * moves
            left[worker] -= moves
        yield numpy.array(found)


@functools.cache
def started(model, workers):
    """A network and an optimizer before the first step, and the batches of each worker."""
    count = steps(model)
    share = {"batch_size": batch_size(model) // workers, "distinct_batches": count, "trace_steps": count}
    job = Job(model, "cpu", "fp64", dropout=0.0, seed=SEED, **share)
    trainer = importlib.import_module(f"dlperf.adapters.numpy.{models.FAMILY_OF[model]}").build(job, Ranks())
    return trainer._network, trainer._update, [Feed(job, Ranks(rank, workers)) for rank in range(workers)]


def losses(model, order, workers=RANKS):
    """(steps, workers): each worker's loss at each of its steps."""
    *fresh, feeds = started(model, workers)
    network, update = copy.deepcopy(fresh)
    pulled, found, updates = {}, [[] for _ in range(workers)], 0
    for worker in order:
        if worker not in pulled:
            pulled[worker] = {}  # what others have pushed since, as it was before
            continue
        before = pulled.pop(worker)
        now = swapped(network.weights, before)
        loss, _ = network.step(feeds[worker][len(found[worker])])
        swapped(network.weights, now)
        found[worker].append(float(loss))
        gradients = network.parts()
        for older in pulled.values():
            remember(older, network.weights, gradients)
        updates += 1
        update(network.weights, gradients, updates)
    return numpy.transpose(found)


def swapped(weights, values):
    """Put values in some rows. values: name -> rows, values. Returns what was there, likewise."""
    found = {name: (rows, weights[name][rows].copy()) for name, (rows, _) in values.items()}
    for name, (rows, old) in values.items():
        weights[name][rows] = old
    return found


def remember(older, weights, gradients):
    """Add the rows that an update will change, where they are not there yet."""
    for name, gradient in gradients.items():
        rows, _ = of_rows(gradient)
        if name not in older:
            older[name] = rows, weights[name][rows].copy()
        elif not isinstance(rows, slice):
            had, values = older[name]
            new = numpy.setdiff1d(rows, had)
            older[name] = numpy.concatenate([had, new]), numpy.concatenate([values, weights[name][new]])


def band(model, many=ORDERS):
    """The entry of BANDS."""
    drawn = {tuple(order) for order in orders(RANKS, steps(model), many)}
    means = numpy.array([losses(model, order).mean(1) for order in sorted(drawn)])
    asked = {"definition": definition(model), "batch_size": batch_size(model), "steps": steps(model), "seed": SEED}
    return {**asked, "ranks": RANKS, "orders": many, "low": means.min(0).tolist(), "high": means.max(0).tolist()}


if __name__ == "__main__":
    made = {model: band(model) for model in sys.argv[1:]}
    known = json.loads(BANDS.read_text()) if BANDS.exists() else {}
    BANDS.write_text(json.dumps(dict(sorted({**known, **made}.items())), indent=1) + "\n")
