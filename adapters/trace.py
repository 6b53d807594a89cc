"""The trajectory of a training job, for checking that frameworks compute the same: numbers small enough to keep.

Ten steps of full depth in float64 hold gigabytes. A tensor is therefore reduced to its sketch: its values if they are
at most WIDTH, else WIDTH sums of its values with random signs (Charikar, Chen and Farach-Colton, "Finding frequent
items in data streams", 2002). Sketches are linear, and the squared norm of a sketch is on average that of the tensor,
with a relative standard deviation of sqrt(2 / WIDTH): so two sketches tell how far apart two tensors are, to 6 %.
"""

import hashlib
import os
import time
import zipfile
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar, Union

import numpy

from dlperf import models
from dlperf.adapters import api, base, libraries
from dlperf.adapters.api import WIDTH, Job, Sparse, Trainer
from dlperf.adapters.ranks import Ranks
from dlperf.models.parameters import ALL, Parameter, initial, places, random_state

Tensor = TypeVar("Tensor", bound=Union[numpy.ndarray, Sparse])
Sketches = Dict[str, numpy.ndarray]


class WrongTensor(Exception):
    """What a trainer gives back has a name, shape or type that dlperf.models does not."""


def record(trainer: Trainer, job: Job, place: Ranks, folder: str, tell: Callable[[int], None]) -> Dict[str, Any]:
    """Train `job.trace_steps` steps and write trajectory.rank<N>.npz into `folder`. Returns the event's fields. Calls
    `tell` with the number of steps so far after each.

    The file holds sketches, float64: "logits/<name>" and "gradient/<parameter>" of the first step, and after the last
    "change/<parameter>": the parameter less its initial value, or "statistic/<name>": BatchNorm's running statistic.

    losses, gradient_norms: of each step; a norm is that of all gradients together, computed here, or None.
    step_seconds, read_seconds: of `step` and `wait`, and of the `read` after them. On a CPU, where the process itself
    computes, its processor time: other processes do not count, and a wait takes none.
    weights: digest of all trained parameters after the last step, which all ranks must have in common.

    With several ranks, the losses are of the rank's own batch and "logits/<name>" is the sketch of the global batch's
    logits with zeros in place of the other ranks': sums over the ranks give the sketch of the whole.
    """
    sketches, losses, norms, step_seconds, read_seconds = {}, [], [], [], []
    clock = time.process_time if job.device == "cpu" else time.perf_counter
    out_of_step = job.ps_mode == "async" and place.world_size > 1
    if out_of_step:
        trainer.all_reduce(1)()  # else one may be done before another begins
    for step in range(job.trace_steps):
        began = clock()
        loss = trainer.step()
        trainer.wait()
        waited = clock()
        losses.append(trainer.read(loss))
        read_seconds.append(clock() - waited)
        step_seconds.append(waited - began)
        if step == 0:
            sketches.update(_logits(trainer, job, place))
        norm, gradients = _gradients(trainer, job, sketched=step == 0)
        norms.append(norm)
        sketches.update(gradients)
        tell(step + 1)
    if out_of_step:
        trainer.all_reduce(1)()  # servers have all that workers pushed
    changes, weights = _changes(trainer, job)
    sketches.update(changes)
    file = f"trajectory.rank{place.rank}.npz"
    numpy.savez(os.path.join(folder, file), **sketches)  # type: ignore[arg-type]
    return {
        "file": file,
        "losses": losses,
        "gradient_norms": norms,
        "step_seconds": step_seconds,
        "read_seconds": read_seconds,
        "weights": weights,
        **what_ran(trainer, job),
    }


def what_ran(trainer: Trainer, job: Job) -> Dict[str, Dict[str, Any]]:
    """`effective` and `shapes` of a trainer after its first step, as JSON has them. What a shape shows of the work is
    read from there, whatever the trainer says."""
    shapes = {key: list(value) for key, value in trainer.shapes.items()}
    said = {key: str(value) for key, value in trainer.effective.items()}
    products = libraries.told() if job.device == "cpu" else ""
    if products:
        said["libraries"] = products
    return {"effective": {**said, **models.family(job.model).observed(shapes)}, "shapes": shapes}


def sketch(name: str, values: Any) -> numpy.ndarray:
    """`values`, any shape, as float64 (min(size, WIDTH),). The signs depend on the name."""
    flat = numpy.asarray(values, "float64").reshape(-1)
    if flat.size <= WIDTH:
        return flat.copy()
    signs = numpy.unpackbits(numpy.frombuffer(random_state(0, name).bytes(flat.size // 8 + 1), "uint8"))
    sums = numpy.zeros(-(-flat.size // WIDTH) * WIDTH)
    numpy.copysign(1.0, 0.5 - signs[: flat.size], out=sums[: flat.size])
    sums[: flat.size] *= flat
    sketched: numpy.ndarray = sums.reshape(-1, WIDTH).sum(0)
    return sketched


def _logits(trainer: Trainer, job: Job, place: Ranks) -> Sketches:
    shapes = models.family(job.model).logits(models.config(job.model))
    expected = {name: (job.batch_size, *shape) for name, shape in shapes.items()}
    sketches = {}
    for name, value in _checked("logits", trainer.logits(), expected):
        whole = numpy.zeros((job.batch_size * place.world_size, *value.shape[1:]))
        whole[place.rank * job.batch_size : (place.rank + 1) * job.batch_size] = value
        sketches["logits/" + name] = sketch(name, whole)
    return sketches


def _gradients(trainer: Trainer, job: Job, sketched: bool) -> Tuple[Optional[float], Sketches]:
    """The norm of all gradients together, and their sketches; (None, {}) where the framework gives none."""
    expected = {p.name: p.shape for p in base.parameters(job) if p.trained}
    square, sketches, given = 0.0, {}, False
    for name, value in _checked("gradients", trainer.gradients(), expected, job.precision, none_is_well=True):
        given = True
        flat = numpy.asarray(_whole(value, expected[name]), "float64").reshape(-1)
        square += float(numpy.dot(flat, flat))
        if sketched:
            sketches["gradient/" + name] = sketch(name, flat)
    return (square**0.5 if given else None), sketches


def _changes(trainer: Trainer, job: Job) -> Tuple[Sketches, str]:
    parameters = {parameter.name: parameter for parameter in base.parameters(job)}
    expected = {name: parameter.shape for name, parameter in parameters.items()}
    sketches, weights = {}, hashlib.sha256()
    for name, value in _checked("parameters", trainer.parameters(), expected, job.precision):
        if parameters[name].trained:
            start = initial(parameters[name], job.seed, "float64")
            value = _whole(value, start.shape, start)
            weights.update(name.encode() + numpy.ascontiguousarray(value).tobytes())
            change = numpy.asarray(value, "float64") - start
            sketches["change/" + name] = sketch(name, change)
        else:
            sketches["statistic/" + name] = sketch(name, value)
    return sketches, weights.hexdigest()


def samples(trainer: Trainer, job: Job) -> Sketches:
    """Some values of each tensor of a run that is measured: all, or as many as dlperf.adapters.api.samples
    says, at random places, which depend on the tensor's name. By name, float64; of Adam's moments by "mean/<name>",
    "square/<name>"."""
    parameters = {parameter.name: parameter for parameter in base.parameters(job)}
    expected = {name: parameter.shape for name, parameter in parameters.items()}
    found, most = {}, api.samples(job.model)
    for name, value in _checked("parameters", trainer.parameters(), expected, job.precision):
        found[name] = _some(name, _busy(value, parameters[name], job), most)
    trained = {name: parameter.shape for name, parameter in parameters.items() if parameter.trained}
    for moment, pairs in trainer.moments().items():
        for name, value in _checked(f"moments: {moment}", pairs, trained, job.precision):
            found[f"{moment}/{name}"] = _some(name, _busy(value, parameters[name]._replace(init="zeros"), job), most)
    return found


def _busy(value: Union[numpy.ndarray, Sparse], parameter: Parameter, job: Job) -> numpy.ndarray:
    """Of a table the rows that are looked up most, where the family says so: nearly all others have not changed."""
    most = getattr(models.family(job.model), "BUSY", parameter.shape[0])
    if not isinstance(value, Sparse):
        return value[:most]
    count = int(numpy.searchsorted(value.rows, most))
    return _filled(Sparse(value.rows[:count], value.values[:count]), parameter, job, slice(most))


def _filled(value: Union[numpy.ndarray, Sparse], parameter: Parameter, job: Job, rows: slice = ALL) -> numpy.ndarray:
    """With the rows that were not given, which are as they were at the start. rows: those of the result."""
    if not isinstance(value, Sparse):
        return value
    start = initial(parameter, job.seed, str(value.values.dtype), rows)
    return _whole(value, start.shape, start)


def _some(name: str, value: Any, most: int) -> numpy.ndarray:
    flat = numpy.asarray(value).reshape(-1)
    return flat[places(name, flat.size, most)].astype("float64")


#: of `audit`, in the run's folder
AUDIT, WEIGHTS = "audit.npz", "weights.npz"


def audit(trainer: Trainer, job: Job, folder: str) -> float:
    """Two more steps, by which the reference can be held against a run in the state that it has come to. Returns the
    loss of the second. WEIGHTS has each tensor whole, as the second step starts from it, one written after the other,
    since all of them may be as large as the memory that is left. AUDIT has "<n>/<name>": samples after n of the two
    steps, n = 0, 1, 2."""
    parameters = {parameter.name: parameter for parameter in base.parameters(job)}
    parts = [samples(trainer, job)]
    trainer.step()
    trainer.wait()
    with zipfile.ZipFile(os.path.join(folder, WEIGHTS), "w") as file:
        for name, value in trainer.parameters():
            _put(file, name, numpy.asarray(_filled(value, parameters[name], job)))
    parts.append(samples(trainer, job))
    loss = trainer.step()
    trainer.wait()
    parts.append(samples(trainer, job))
    arrays = {f"{steps}/{name}": array for steps, part in enumerate(parts) for name, array in part.items()}
    numpy.savez(os.path.join(folder, AUDIT), **arrays)  # type: ignore[arg-type]
    return trainer.read(loss)


def _put(file: zipfile.ZipFile, name: str, array: numpy.ndarray) -> None:
    """As numpy.savez writes it, which has all arrays in memory at once."""
    with file.open(name + ".npy", "w", force_zip64=True) as member:
        numpy.lib.format.write_array(member, array, allow_pickle=False)


def _whole(
    value: Union[numpy.ndarray, Sparse], shape: Tuple[int, ...], rest: Union[float, numpy.ndarray] = 0.0
) -> numpy.ndarray:
    """A tensor of which only some rows were given: all others are as in `rest`."""
    if not isinstance(value, Sparse):
        return value
    whole = numpy.empty(shape, value.values.dtype)
    whole[:] = rest
    whole[value.rows] = value.values
    return whole


def _checked(
    what: str,
    pairs: Iterable[Tuple[str, Tensor]],
    expected: Mapping[str, Tuple[int, ...]],
    precision: Optional[str] = None,
    none_is_well: bool = False,
) -> Iterator[Tuple[str, Tensor]]:
    """The pairs, one after the other. WrongTensor unless they are those expected: name -> shape."""
    missing = dict(expected)
    for name, value in pairs:
        if name not in missing:
            again = "given twice" if name in expected else "not a tensor of this model"
            raise WrongTensor(f"{what}: {name}: {again}")
        values, shape = value, tuple(missing[name])  # type: Any, Tuple[int, ...]
        if isinstance(value, Sparse):
            values, shape = value.values, (len(value.rows), *shape[1:])
            _check_rows(f"{what}: {name}", value.rows, missing[name][0])
        if tuple(values.shape) != shape:
            raise WrongTensor(f"{what}: {name}: shape is {tuple(values.shape)}, must be {shape}")
        wanted = "float64" if precision == "fp64" else "float32"
        if precision is not None and str(values.dtype) != wanted:
            raise WrongTensor(f"{what}: {name}: type is {values.dtype}, must be {wanted}")
        del missing[name]
        yield name, value
    if missing and not (none_is_well and len(missing) == len(expected)):
        raise WrongTensor(f"{what}: {', '.join(sorted(missing)[:5])}: not given")


def _check_rows(where: str, rows: numpy.ndarray, count: int) -> None:
    ascending = numpy.all(rows[1:] > rows[:-1])
    if not ascending or (len(rows) and not 0 <= rows[0] <= rows[-1] < count):
        raise WrongTensor(f"{where}: rows must ascend, each once, from 0 to {count - 1}")
