"""The trajectory of a training job, for checking that frameworks compute the same: numbers small enough to keep.

Ten steps of full depth in float64 hold gigabytes. A tensor is therefore reduced to its sketch: its values if they are
at most WIDTH, else WIDTH sums of its values with random signs (Charikar, Chen and Farach-Colton, "Finding frequent
items in data streams", 2002). Sketches are linear, and the squared norm of a sketch is on average that of the tensor,
with a relative standard deviation of sqrt(2 / WIDTH): so two sketches tell how far apart two tensors are, to 6 %.
"""

import hashlib
import os
import time

import numpy

from dlperf import models
from dlperf.models.parameters import initial, random_state

#: a prime, so that neither rows nor columns of a tensor fall into one sum
WIDTH = 127


class WrongTensor(Exception):
    """What a trainer gives back has a name, shape or type that dlperf.models does not."""


def record(trainer, job, place, folder, tell):
    """Train `job.trace_steps` steps and write trajectory.rank<N>.npz into `folder`. Returns the event's fields. Calls
    `tell` with the number of steps so far after each.

    The file holds sketches, float64: "logits/<name>" and "gradient/<parameter>" of the first step, and after the last
    "change/<parameter>": the parameter less its initial value, or "statistic/<name>": BatchNorm's running statistic.

    losses, gradient_norms: of each step; a norm is that of all gradients together, computed here, or None.
    step_seconds, read_seconds: of `step` and `wait`, and of the `read` after them.
    weights: digest of all trained parameters after the last step, which all ranks must have in common.

    With several ranks, the losses are of the rank's own batch and "logits/<name>" is the sketch of the global batch's
    logits with zeros in place of the other ranks': sums over the ranks give the sketch of the whole.
    """
    sketches, losses, norms, step_seconds, read_seconds = {}, [], [], [], []
    for step in range(job.trace_steps):
        began = time.perf_counter()
        loss = trainer.step()
        trainer.wait()
        waited = time.perf_counter()
        losses.append(trainer.read(loss))
        read_seconds.append(time.perf_counter() - waited)
        step_seconds.append(waited - began)
        if step == 0:
            sketches.update(_logits(trainer, job, place))
        norm, gradients = _gradients(trainer, job, sketched=step == 0)
        norms.append(norm)
        sketches.update(gradients)
        tell(step + 1)
    changes, weights = _changes(trainer, job)
    sketches.update(changes)
    file = f"trajectory.rank{place.rank}.npz"
    numpy.savez(os.path.join(folder, file), **sketches)
    return {
        "file": file,
        "losses": losses,
        "gradient_norms": norms,
        "step_seconds": step_seconds,
        "read_seconds": read_seconds,
        "weights": weights,
        **what_ran(trainer),
    }


def what_ran(trainer):
    """`effective` and `shapes` of a trainer after its first step, as JSON has them. What a shape shows of the work is
    read from there, whatever the trainer says."""
    shapes = {key: list(value) for key, value in trainer.shapes.items()}
    effective = {key: str(value) for key, value in trainer.effective.items()}
    if len(shapes.get("mlm_logits", ())) == 2:
        effective["masked_positions"], effective["vocabulary"] = map(str, shapes["mlm_logits"])
    return {"effective": effective, "shapes": shapes}


def sketch(name, values):
    """`values`, any shape, as float64 (min(size, WIDTH),). The signs depend on the name."""
    flat = numpy.asarray(values, "float64").reshape(-1)
    if flat.size <= WIDTH:
        return flat.copy()
    signs = numpy.unpackbits(numpy.frombuffer(random_state(0, name).bytes(flat.size // 8 + 1), "uint8"))
    sums = numpy.zeros(-(-flat.size // WIDTH) * WIDTH)
    numpy.copysign(1.0, 0.5 - signs[: flat.size], out=sums[: flat.size])
    sums[: flat.size] *= flat
    return sums.reshape(-1, WIDTH).sum(0)


def _logits(trainer, job, place):
    shapes = models.family(job.model).logits(models.config(job.model))
    expected = {name: (job.batch_size, *shape) for name, shape in shapes.items()}
    sketches = {}
    for name, value in _checked("logits", trainer.logits(), expected):
        whole = numpy.zeros((job.batch_size * place.world_size, *value.shape[1:]))
        whole[place.rank * job.batch_size : (place.rank + 1) * job.batch_size] = value
        sketches["logits/" + name] = sketch(name, whole)
    return sketches


def _gradients(trainer, job, sketched):
    """The norm of all gradients together, and their sketches; (None, {}) where the framework gives none."""
    expected = {p.name: p.shape for p in _parameters(job) if p.trained}
    square, sketches, given = 0.0, {}, False
    for name, value in _checked("gradients", trainer.gradients(), expected, job.precision, none_is_well=True):
        given = True
        flat = numpy.asarray(value, "float64").reshape(-1)
        square += float(numpy.dot(flat, flat))
        if sketched:
            sketches["gradient/" + name] = sketch(name, flat)
    return (square**0.5 if given else None), sketches


def _changes(trainer, job):
    parameters = {parameter.name: parameter for parameter in _parameters(job)}
    expected = {name: parameter.shape for name, parameter in parameters.items()}
    sketches, weights = {}, hashlib.sha256()
    for name, value in _checked("parameters", trainer.parameters(), expected, job.precision):
        if parameters[name].trained:
            weights.update(name.encode() + numpy.ascontiguousarray(value).tobytes())
            change = numpy.asarray(value, "float64") - initial(parameters[name], job.seed, "float64")
            sketches["change/" + name] = sketch(name, change)
        else:
            sketches["statistic/" + name] = sketch(name, value)
    return sketches, weights.hexdigest()


def _parameters(job):
    return models.family(job.model).parameters(models.config(job.model))


def _checked(what, pairs, expected, precision=None, none_is_well=False):
    """The pairs, one after the other. WrongTensor unless they are those expected: name -> shape."""
    missing = dict(expected)
    for name, value in pairs:
        if name not in missing:
            again = "given twice" if name in expected else "not a tensor of this model"
            raise WrongTensor(f"{what}: {name}: {again}")
        if tuple(value.shape) != tuple(missing[name]):
            raise WrongTensor(f"{what}: {name}: shape is {tuple(value.shape)}, must be {tuple(missing[name])}")
        wanted = "float64" if precision == "fp64" else "float32"
        if precision is not None and str(value.dtype) != wanted:
            raise WrongTensor(f"{what}: {name}: type is {value.dtype}, must be {wanted}")
        del missing[name]
        yield name, value
    if missing and not (none_is_well and len(missing) == len(expected)):
        raise WrongTensor(f"{what}: {', '.join(sorted(missing)[:5])}: not given")
