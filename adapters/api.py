"""The contract between dlperf and a framework's training script.

An adapter is a folder `adapters/<framework>/` with `adapter.toml`, the requirements of its environments and one module
per model family (`resnet.py`, `bert.py`). Each module has the two functions of `ModelModule`, and `build` returns a
`Trainer`. Only the worker calls them. Where the folder is a package with `prepare(job)`, the worker calls that before
it imports the module: for what must be settled before the framework is imported.
"""

from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Tuple, Union

from dlperf import models

TYPE_CHECKING = False
if TYPE_CHECKING:  # Protocol is missing in Python 3.7
    from typing import Protocol

    from numpy import ndarray

    from dlperf.adapters.profiling import Span
    from dlperf.adapters.ranks import Ranks
else:
    Protocol = object

#: precision -> what it means; every adapter.toml says of each whether it runs
PRECISIONS = {
    "fp64": "float64 everywhere (for checking, not for measuring)",
    "fp32": "float32 everywhere, TF32 off",
    "tf32": "float32, with matrix products and convolutions in TF32",
    "amp_fp16": "mixed precision: float16 where it is safe, float32 weights, dynamic loss scaling",
    "amp_bf16": "mixed precision: bfloat16 where it is safe, float32 weights, no loss scaling",
}

#: how parameter servers take what workers push -> what it means
PS_MODES = {
    "sync": "each step's pushes of all workers are added up, and applied once",
    "async": "each push is applied when it comes; a worker may have pulled before others' were",
    "geo": "workers train their own copies, and push how far they went every so many steps",
}

#: values of a sketch at most (dlperf.adapters.trace), a prime, so that neither rows nor columns of a tensor fall into
#: one sum; here, since the core needs it without numpy
WIDTH = 127
#: values that a measured run writes down of all trained tensors together, where masks of dropout move few of them most
VALUES = 2**14


def samples(model: str) -> int:
    """How many values of each tensor a measured run of a model writes down at most. By SGD with dropout a few tensors
    change most, by their own masks: of WIDTH values each, those of the tiny VGG do not tell a run without dropout."""
    family, config = models.family(model), models.config(model)
    if not (getattr(config, "dropout", 0.0) and hasattr(family.optimizer(1), "momentum")):
        return WIDTH
    return max(WIDTH, VALUES // sum(one.trained for one in family.parameters(config)))


#: keys that `Trainer.effective` must have, for every family; more are welcome
EFFECTIVE = (
    "precision",  # one of PRECISIONS, as it ran
    "compute_dtype",  # of the large matrix products: float64 | float32 | tf32 | float16 | bfloat16
    "compile",  # what compiles the step: "inductor", "xla", "hybridize (static)", "none" ...
    "threads",  # threads that the framework may use on the CPU
    "optimizer",  # the kernel: "torch.optim.SGD (fused)" ...
    "loss_scale",  # "none", "dynamic from 65536", ...
    "data",  # "synthetic, 4 batches on the device", "rows of DIR", "images of DIR"
)
#: besides, with several ranks: how gradients are averaged, and over what: "DistributedDataParallel (gloo)"
EFFECTIVE_OF_RANKS = ("communication",)
#: what a family has besides these, and names in `Trainer.shapes`: EFFECTIVE and `shapes` of dlperf.models.traits.Family
SHAPES_OF = {name: tuple(family.shapes(next(iter(family.SIZES.values())))) for name, family in models.FAMILIES.items()}


#: Job.dropout with which one value in 10^13 is dropped, where BERT-base at batch 4 has 2 * 10^8 in ten steps, by
#: generators whose numbers are fine enough near zero; those that draw what to keep may drop one in 2^25
NEXT_TO_NONE = 1e-12


class Job(NamedTuple):
    """What one process trains: the content of job.json.

    model: a size that dlperf.models lists, e.g. "resnet50", "bert_base".
    device: "cpu" or "cuda". precision: a key of PRECISIONS. batch_size: per device.
    input: "synthetic", "native" or "dali"; data_dir: the prepared folder unless synthetic; format: what is read there,
        one of dlperf.models.FORMATS, or empty where the family's folders have none.
    pixels: for checking: images that are written down as the loader gives them, see `ModelModule.pixels`, in place of
        training.
    distinct_batches: synthetic batches that differ, used in turn.
    dropout: share of the model's own rate, 1 unless something is checked: 0 turns it off, NEXT_TO_NONE has the same
        kernels run and drops nothing. dropout_seed: of its masks; each run of a row has its own, so that runs differ by
        as much as dropout does.
    revealing: for checking: whether parameters start from `revealing` of the model's family, not from `parameters`.
    trace_steps: for checking: steps whose trajectory is written down, see dlperf.adapters.trace, in place of warm-up
        and windows. Unless it is 0, the trainer keeps each step's logits and gradients.
    threads: CPU threads that each rank's framework may use.
    meeting_seconds: how long ranks wait for each other at the start.
    options: the switches that adapter.toml declares, all of them, as strings: compile, clip_norm, layout ...
    servers: parameter servers, over all nodes; 0 where each rank has all parameters. ps_mode: of them, one of PS_MODES.
    warmup_seconds, window_seconds: what warm-up (after its first step) and a window take at least; of a fast device
        steps alone are over before its clocks and its power have settled.
    """

    model: str
    device: str
    precision: str
    batch_size: int
    input: str = "synthetic"
    data_dir: Optional[str] = None
    format: str = ""
    pixels: int = 0
    distinct_batches: int = 4
    dropout: float = 1.0
    dropout_seed: int = 1
    revealing: bool = False
    trace_steps: int = 0
    warmup_steps: int = 2
    windows: int = 3
    steps_per_window: int = 2
    seed: int = 1
    threads: int = 1
    meeting_seconds: float = 300.0
    warmup_seconds: float = 0.0
    window_seconds: float = 0.0
    options: Mapping[str, str] = {}
    servers: int = 0
    ps_mode: str = ""

    @property
    def mixed(self) -> bool:
        """Whether products are in 16 bits beside float32 weights."""
        return self.precision in ("amp_fp16", "amp_bf16")

    @property
    def weights_dtype(self) -> str:
        """Of weights, their gradients and the optimizer's state."""
        return "float64" if self.precision == "fp64" else "float32"

    @property
    def clip_norm(self) -> Optional[float]:
        """The global norm to which gradients are clipped; None: they are not."""
        asked = self.options.get("clip_norm", "off")
        return None if asked == "off" else float(asked)


class Sparse(NamedTuple):
    """Some rows of a large table, as an embedding has it, in place of a whole tensor.

    rows: int64 (n,), ascending, each once. values: (n, *shape[1:]). Of a gradient all other rows are zero; of a
    parameter they are as dlperf.models made them.
    """

    rows: "ndarray"
    values: "ndarray"


class Trainer(Protocol):
    """A model built and ready to train. It owns no loop, no clock and no log.

    With several ranks, each trains on its own batch; the gradients' mean over the ranks is clipped and applied, so
    that all ranks keep the same weights. BatchNorm's statistics are each rank's own. With servers, `wait` returns once
    all that this worker pushed is applied, and `parameters` pulls them.

    parameter_count: trained values, as the framework counts them.
    effective: what really runs, read back from the framework where that is possible; keys in EFFECTIVE,
        and in EFFECTIVE of the family.
    shapes: shapes of a few activations as they were in the step that ran (filled by the first step or its trace);
        keys as in `shapes` of the family. They tell ResNet v1 from v1.5, and a gathered MLM head from a full one.
    gradient_bytes: with several ranks, bytes that one hands over in each step to be averaged.
    input_seconds: seconds that `step` has waited for its batches so far, of `time.perf_counter`; None where they are on
        the device already, or are taken from memory.
    together: optional: whether all ranks must call `parameters` and `moments` for one to have them.
    pushes: optional, with servers: how many messages to one of them this worker has sent that change parameters.
    """

    parameter_count: int
    effective: Mapping[str, str]
    shapes: Mapping[str, Tuple[int, ...]]
    gradient_bytes: int
    input_seconds: Optional[float]

    def step(self) -> Any:
        """Enqueue one optimizer step, fetching its batch included, and return its loss, unread.

        Step number i (from 0) trains on `Batches(job, ranks)[i]`.
        """

    def wait(self) -> None:
        """Return once everything enqueued is done on the device, the update of the weights included."""

    def read(self, loss: Any) -> float:
        """The value of a loss that `step` returned: of this rank's whole batch, before the update. May block. The mean
        over the ranks is the loss of the global batch."""

    def fetch(self) -> None:
        """Where input_seconds is not None: take the next batch as `step` does, have it on the device, and drop it."""

    def all_reduce(self, count: int) -> Callable[[], float]:
        """With several ranks: a call that adds up `count` float32 ones over all ranks, by the means that gradients
        take, and returns the first sum when it is there. All ranks call it together. It serves as the barrier before
        a window, and, outside of windows, to measure the network; with servers as the barrier alone."""

    def parameters(self) -> "Iterable[Tuple[str, Union[ndarray, Sparse]]]":
        """All tensors that dlperf.models lists, BatchNorm's statistics included, as canonical names and layouts. A
        table that is on parameter servers may be Sparse: the rows that training touched. NotImplementedError where
        adapter.toml says `proven = false`."""

    def logits(self) -> "Iterable[Tuple[str, ndarray]]":
        """Of the last step, with job.trace_steps: the outputs that `logits` of the family lists, batch axis first."""

    def gradients(self) -> "Iterable[Tuple[str, Union[ndarray, Sparse]]]":
        """Of the last step's loss, with job.trace_steps: for every trained parameter, under canonical names and in
        canonical layouts, before clipping and weight decay, with any loss scale taken out. Empty where the framework
        does not give them (a compiled step that keeps them to itself). Sparse where the framework's are: with rows that
        several samples share already added up."""

    def moments(self) -> "Mapping[str, Iterable[Tuple[str, ndarray]]]":
        """What Adam keeps of each trained parameter after the last step, as dlperf.models.bert.Optimizer has it: "mean"
        and "square" (m and v there), under canonical names and in canonical layouts. Empty for any other optimizer."""

    def peak_memory(self) -> Optional[int]:
        """Most bytes on the device so far, by the framework's allocator; None where it cannot tell, and on CPU. Which
        bytes are counted differs: `effective["device_memory"]` says it."""

    def close(self) -> None:
        """Free the device, end helper threads and process groups."""


class ModelModule(Protocol):
    """What `adapters/<framework>/<family>.py` offers."""

    def versions(self) -> Mapping[str, str]:
        """Versions of the framework and of what it computes with: {"torch": "2.13.0+cpu", "onednn": "3.7.1"}."""

    def build(self, job: Job, ranks: "Ranks") -> Trainer:
        """Build the network with the weights of dlperf.models, its optimizer and its input."""

    def product(self, job: Job, size: int) -> "Callable[[], Any]":
        """Optional. After `build`: a call that multiplies two matrices of size x size on the job's device, in the type
        of its large products, and returns when it is done."""

    def copy(self, job: Job, count: int) -> "Callable[[], Any]":
        """Optional, and called on a GPU alone: likewise, what reads `count` values of float32 on the device and writes
        as many."""

    def serve(self, job: Job, ranks: "Ranks") -> "Optional[Mapping[str, Any]]":
        """Optional, for parameter servers: what a process whose `ranks.role` is "server" runs in place of `build`,
        until the workers have left: `ranks.workers` and `ranks.servers` say where all are. Workers and servers are
        counted apart, each from 0; only workers train and are timed. One that has not ended GRACE seconds of
        dlperf.adapters.spawn after the last worker is ended.

        Returns what it knows of: pushes, how many it applied, which must be as many as the workers' Trainer.pushes;
        stale: how many updates it applied between a worker's pull and its push -> how often, as {"0": 100, "1": 7}."""

    def pixels(self, job: Job) -> "Iterable[Tuple[ndarray, int]]":
        """Where the family's INPUT is "photos". Each image of the data folder once, with its label (from 0), in any
        order: float32 (3, size, size) as the network gets it, but of the middle part and not mirrored, see
        dlperf.models.photos."""


class Profiling(Protocol):
    """What `adapters/<framework>/profiling.py` offers. Optional: without it `python -m dlperf.why` knows nothing of the
    framework's rows."""

    def spans(self, trainer: Trainer, run: Callable[[], None]) -> "Iterable[Span]":
        """Call `run` once, which trains some steps, and say what ran meanwhile, by the framework's own profiler."""


class Unsupported(Exception):
    """Raised by `build` when this build of the framework cannot run the job; the message says why."""
