"""What feeds, loaders and trainers share in every framework: which batch is next, what was waited for it, and what is
said of it. The classes of an adapter derive from these."""

import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from dlperf import models
from dlperf.adapters import gpu
from dlperf.adapters.api import Job, Sparse, Unsupported
from dlperf.adapters.ranks import Ranks
from dlperf.models.batches import Batches
from dlperf.models.parameters import Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy import ndarray


def parameters(job: Job) -> List[Parameter]:
    """All tensors of the job's model, as dlperf.models lists them, with the values that they start from."""
    family = models.family(job.model)
    return list((family.revealing if job.revealing else family.parameters)(models.config(job.model)))


def parameter_groups(network: Any, job: Job, weight_decay: float) -> "List[Dict[str, Any]]":
    """Weights that decay, and the rest, as optimizers take them that know groups. network: with `named_parameters`."""
    trained = dict(network.named_parameters())
    groups: List[Dict[str, Any]] = [{"params": [], "weight_decay": weight_decay}, {"params": [], "weight_decay": 0.0}]
    for parameter in parameters(job):
        if parameter.trained:
            groups[0 if parameter.decayed else 1]["params"].append(trained[parameter.name])
    return groups


def logits(job: Job) -> Dict[str, Tuple[int, ...]]:
    """The outputs of the job's model, by name: their shapes without the batch axis."""
    return dict(models.family(job.model).logits(models.config(job.model)))


def summed(rows: Any, gradients: Any) -> Sparse:
    """The gradient of a table of which rows were looked up, some of them more than once. rows: int, any shape;
    gradients: of each of them, (*rows.shape, width)."""
    import numpy

    found, places = numpy.unique(rows, return_inverse=True)
    gradients = numpy.reshape(gradients, (places.size, -1))
    values = numpy.zeros((len(found), gradients.shape[1]), gradients.dtype)
    numpy.add.at(values, places.reshape(-1), gradients)
    return Sparse(found.astype("int64"), values)


def need_gpu(build: str, has_cuda: bool, count: Callable[[], int], ranks: Ranks) -> None:
    """Raise Unsupported where a framework cannot use this rank's GPU.

    build: its name and version. has_cuda: whether it is built with CUDA; then count() says how many GPUs it finds, and
    may raise what its library says of the driver.
    """
    if not has_cuda:
        raise Unsupported(f"{build} has no CUDA; {gpu.seen()}. Install a build with CUDA, or choose --device cpu")
    try:
        found = count()
    except Exception as error:
        raise no_gpu(build, first_line(error)) from error
    if found <= ranks.local_rank:
        wanted = f", and this is local rank {ranks.local_rank}" if ranks.local_rank else ""
        raise Unsupported(f"{build} finds {found or 'no'} GPU{'s' if found > 1 else ''}{wanted}; {gpu.seen()}")


def no_gpu(build: str, why: str) -> Unsupported:
    """why: what the framework says, in words."""
    return Unsupported(f"{build} finds no GPU: {why}; {gpu.seen()}")


def first_line(error: Exception) -> str:
    """What an error says without the stack that some libraries print after it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Feed:
    """Batches on the device: synthetic ones wait there, rows of a data folder are copied at each step.

    A subclass says how an array becomes a tensor; what it needs for that it sets before this constructor runs.
    """

    input_seconds: Optional[float] = None

    def __init__(self, job: Job, ranks: Ranks) -> None:
        self._batches = Batches(job, ranks)
        #: those that wait on the device, each the same object whenever its turn comes
        self.fixed = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        count = len(self.fixed)
        #: what `Trainer.effective` says of the input
        self.effective = {"data": f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"}

    def __getitem__(self, step: int) -> Any:
        return self.fixed[step % len(self.fixed)] if self.fixed else self._place(self._batches[step])

    def _place(self, batch: "Mapping[str, ndarray]") -> Any:
        return {name: self._tensor(array) for name, array in batch.items()}

    def _tensor(self, array: "ndarray") -> Any:
        """On the device; floats in job.weights_dtype. A copy where it would share memory: rows are views of a file."""
        raise NotImplementedError


class Loader:
    """An endless stream of batches of images on the device, as Feed has them. A subclass makes the next one.

    input_seconds: that was waited for them so far.
    """

    fixed: "Tuple[Any, ...]" = ()

    def __init__(self, job: Job, description: str) -> None:
        self.input_seconds = 0.0
        # that the input is images is part of the work; by what they are loaded ("tf.data over tfrecord") is not
        self.effective = {"data": f"images of {job.data_dir}", "loader": description}

    def __getitem__(self, step: int) -> Any:
        began = time.perf_counter()
        batch = self._next()
        self.input_seconds += time.perf_counter() - began
        return batch

    def _next(self) -> Any:
        raise NotImplementedError


class Trainer:
    """The part of dlperf.adapters.api.Trainer that needs no framework. A subclass has `_step` and `_observe`.

    feed: a Feed or a Loader. effective: what the adapter says besides.
    """

    def __init__(self, job: Job, feed: Any, effective: Mapping[str, str]) -> None:
        self._job, self._feed, self._steps = job, feed, 0
        self.shapes = {}  # type: Dict[str, Tuple[int, ...]]
        self.effective = {"precision": job.precision, "loss_scale": "none"}
        self.effective.update(feed.effective)
        self.effective.update(effective)

    @property
    def input_seconds(self) -> Optional[float]:
        return self._feed.input_seconds  # type: ignore[no-any-return]

    def step(self) -> Any:
        batch = self._feed[self._steps]
        loss = self._step(batch)
        self._steps += 1
        if self._steps == 1:
            self._observe(batch)
        return loss

    def _step(self, batch: Any) -> Any:
        """Enqueue a step on this batch, and return its loss, unread."""
        raise NotImplementedError

    def _observe(self, batch: Any) -> None:
        """Read back into `effective` and `shapes` what the first step, on this batch, really did."""
        raise NotImplementedError

    def fetch(self) -> None:
        self._feed[self._steps]
        self.wait()

    def moments(self) -> "Mapping[str, Iterable[Tuple[str, ndarray]]]":
        return {}

    def wait(self) -> None:
        raise NotImplementedError
