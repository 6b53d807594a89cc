"""Runs one job in the environment of one framework: `python -m dlperf.adapters.worker JOB.json EVENTS_DIR`.

JOB.json holds {"adapter": "pytorch", "job": {...}}, see dlperf.adapters.api.Job. The worker owns the loop and the
clock, so that the same lines time every framework, and writes one JSON object per line to events.rank<N>.jsonl:

    start    rank, world_size, pid, machine, kernels (what the adapter says of them on this CPU, or null), variables
             (that may matter, see dlperf.adapters.variables) and dropped (names of the user's others)
    imported versions
    met, agreed   with several ranks: where the others are, before the import; that all have the same versions, after it
    built    seconds (import, meeting the other ranks, build), parameter_count
    product  on a CPU, before the steps: size, seconds of a square matrix product in the row's precision; fp32_seconds
             of numpy's; likewise large_size, large_seconds, large_fp32_seconds. On a GPU, after the windows:
             large_size, large_seconds. On both: copy_bytes, read and written, and copy_seconds of a copy of memory
    first_step, second_step   seconds of these warm-up steps, for whoever waits: the first one compiles; loss
    warm     steps, steps_per_window, seconds, first_step_seconds, loss, effective, shapes
    states   file, steps: samples of all tensors after so many steps, see dlperf.adapters.trace
    communication   with several ranks: gradient_bytes of a step; all_reduce_bytes, all_reduce_seconds of a probe;
             link_gigabits, link_milliseconds, where nodes are emulated
    window   index, steps, samples, seconds, cpu_seconds, loss, read_seconds, input_seconds, host (what
             dlperf.adapters.host read around it)
    audit    where it is asked for: steps before the one that weights.npz is of, its loss, see dlperf.adapters.trace; or
             why there is none
    input    with a loader: samples, seconds of this rank's loader alone
    traced, trajectory   in place of steps and windows, for checking: steps so far; see dlperf.adapters.trace
    end      peak_memory_bytes, peak_device_memory_bytes, cpu_seconds, seconds; with servers also pushes; of a server
             imported_memory_bytes, its peak before it had any tensor
    failed   kind (crash | out_of_memory | nan | unsupported | wrong_tensor | lost | port_taken), message, traceback

Beside it, the first rank of each node has the GPUs sampled: gpu.rank<N>.jsonl, see dlperf.adapters.nvml.

A stream that does not close with `end` is a failed run. A parameter server's, events.server<N>.jsonl, has `start`,
`met`, `imported` and `end` alone, the last without device memory, and with what dlperf.adapters.api.ModelModule.serve
returns.
"""

import contextlib
import importlib
import json
import math
import operator
import os
import subprocess
import sys
import time
import traceback
from concurrent import futures
from typing import Any, Callable, Dict, List, Optional, Sequence, TextIO, Tuple

from dlperf.adapters import variables

if __name__ == "__main__":  # before the first library reads its own
    variables.clean()

import numpy

from dlperf import models
from dlperf.adapters import cpu, gpu, host, probe, profiling, ranks, trace
from dlperf.adapters.api import Job, ModelModule, Trainer, Unsupported
from dlperf.adapters.spawn import die_with_parent
from dlperf.models.batches import counter


class NotFinite(Exception):
    """The loss is NaN or infinite."""


class Events:
    """A file of JSON lines; each line has left this process before the next step runs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, event: str, **fields: object) -> None:
        line: Dict[str, object] = {"event": event, "time": time.time()}
        line.update(fields)
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def main(argv: Sequence[str]) -> int:
    job_path, events_dir = argv
    die_with_parent()
    with open(job_path, encoding="utf-8") as file:
        request = json.load(file)
    place = ranks.from_environment()
    name = "rank" if place.role == "worker" else place.role
    job = Job(**request["job"])
    if place.world_size > 1 or job.servers:
        _own_log(os.path.join(events_dir, f"log.{name}{place.rank}.txt"))
    path = os.path.join(events_dir, f"events.{name}{place.rank}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        return _run_and_tell(request, job, place, Events(file), events_dir)


def _own_log(path: str) -> None:
    """What this process and its children print goes to a file of its own, not between the lines of other ranks."""
    with open(path, "wb") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def _run_and_tell(request: Dict[str, Any], job: Job, place: ranks.Ranks, events: Events, folder: str) -> int:
    """The exit code. Whatever is raised becomes the last event."""
    try:
        run(request, job, place, events, folder)
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        events.write("failed", kind=_kind(error), message=message, traceback=traceback.format_exc())
        traceback.print_exc()
        return 1
    return 0


def run(request: Dict[str, Any], job: Job, place: ranks.Ranks, events: Events, folder: str) -> None:
    """Build, warm up, time the windows; or, for checking, write down a trajectory in `folder`."""
    began = time.perf_counter()
    machine, adapter = probe.machine(), request["adapter"]
    told, refused = _kernels(request, job)
    told.update(variables=variables.told(), dropped=variables.dropped())
    events.write("start", rank=place.rank, world_size=place.world_size, pid=os.getpid(), machine=machine, **told)
    if refused:  # before the import, which may die of an illegal instruction
        raise Unsupported(refused)
    if job.device == "cuda" and not (place.local_rank or job.trace_steps or job.pixels):
        _sample_gpus(request, place, folder)
    if job.servers or (place.world_size > 1 and place.role == "worker"):
        place = ranks.meet(place, folder, machine["host"], job.meeting_seconds)
        events.write("met")
        host.NETWORKS.update(filter(None, [ranks.interface(place.addresses[place.rank])]))
    package: Any = importlib.import_module(f"dlperf.adapters.{adapter}")
    if hasattr(package, "prepare"):
        package.prepare(job)
    module: Any = importlib.import_module(f"dlperf.adapters.{adapter}.{models.FAMILY_OF[job.model]}")
    versions = dict(module.versions())
    events.write("imported", versions=versions)
    if job.pixels:
        _write_pixels(module, job, folder)
        return
    if place.role == "server":
        imported_bytes = probe.peak_memory_bytes()
        told = module.serve(job, place) or {}
        events.write(
            "end",
            imported_memory_bytes=imported_bytes,
            peak_memory_bytes=probe.peak_memory_bytes(),
            cpu_seconds=_cpu_seconds(),
            seconds=time.perf_counter() - began,
            **told,
        )
        return
    if place.world_size > 1:
        ranks.agree(place, folder, machine["host"], versions, job.meeting_seconds)
        events.write("agreed")
    trainer: Trainer = module.build(job, place)
    trainer.wait()
    events.write("built", seconds=time.perf_counter() - began, parameter_count=int(trainer.parameter_count))
    if job.trace_steps:
        trajectory = trace.record(trainer, job, place, folder, lambda steps: events.write("traced", steps=steps))
        for step, loss in enumerate(trajectory["losses"]):
            _finite(loss, f"step {step}")
        events.write("trajectory", **trajectory)
    else:
        built_bytes = probe.peak_memory_bytes()
        if job.device == "cpu" and hasattr(module, "product"):
            _product(module, job, events)
        states = States(trainer, job, place, built_bytes)
        job = _warm_up(trainer, job, events, states)
        barrier = _communication(trainer, place, job, events) if place.world_size > 1 else None
        counted = counter(job, place)
        for index in range(job.windows):
            samples = counted(states.warmed + job.steps_per_window * index, job.steps_per_window)
            _window(trainer, job, index, samples, events, barrier)
            if index in (0, job.windows - 1):
                states.take(job.steps_per_window * (index + 1))
        states.write(folder, events)
        if request.get("audit"):
            states.audit(folder, events)
        if request.get("profile"):
            _profile(adapter, trainer, request["profile"], events)
        if trainer.input_seconds is not None:
            _input(trainer, job, events, barrier)
        if barrier:
            barrier()  # no rank leaves while another still needs it
    device_memory, loaders = trainer.peak_memory(), host.memory_of_children()
    if job.device == "cuda" and not job.trace_steps and hasattr(module, "product"):
        _product(module, job, events)  # now, when it takes nothing from the run: neither its memory nor its clocks
    trainer.close()
    pushes = getattr(trainer, "pushes", None)
    events.write(
        "end",
        **({} if pushes is None else {"pushes": pushes}),
        peak_memory_bytes=max(probe.peak_memory_bytes(), 0 if job.trace_steps else states.peak_memory_bytes) + loaders,
        peak_device_memory_bytes=device_memory or None,
        cpu_seconds=_cpu_seconds(),
        seconds=time.perf_counter() - began,
    )


def _kernels(request: Dict[str, Any], job: Job) -> Tuple[Dict[str, Any], str]:
    """What the event `start` says of this device, and why it must not run the row; that is empty if it may."""
    kernels = request.get("kernels", ())
    if job.device == "cpu":
        found = cpu.flags()
        refused = cpu.refusal(kernels, found, request.get("allow_reference", False))
        return {"kernels": cpu.kernels(kernels, found)}, refused
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi numbers them
    gpu.allow_tf32(job.precision == "tf32")
    gpus = gpu.look().gpus
    told = {"kernels": cpu.kernels(kernels, gpu.runs(gpus)), "gpus": [one.about for one in gpus]}
    return told, gpu.refusal(kernels, gpus, request.get("cuda"))


def _sample_gpus(request: Dict[str, Any], place: ranks.Ranks, folder: str) -> None:
    """Start what samples this node's GPUs: with this interpreter, or with the core's if that alone has pynvml and is
    on this machine. Nothing of a run depends on it."""
    core = request.get("sampler", sys.executable)
    others = [core] if core != sys.executable and os.access(core, os.X_OK) else []
    path = os.path.join(folder, f"gpu.rank{place.rank}.jsonl")
    command = [sys.executable, "-m", "dlperf.adapters.nvml", path, str(place.local_size), str(os.getpid()), *others]
    with contextlib.suppress(OSError):
        null = subprocess.DEVNULL
        host.APART.add(str(subprocess.Popen(command, stdin=null, stdout=null, stderr=null).pid))


#: side of the product that is timed: 0.27 GFLOP, a millisecond with the kernels of a CPU's vectors
PRODUCT_SIZE = 512
#: the least of so many, or of fewer that take so many seconds
PRODUCTS, LONG_SECONDS = 10, 1.0
#: the large one: how long it takes, how large it is at most, and how often it is made
LARGE_SECONDS, LARGEST, LARGE_PRODUCTS = 0.05, 4096, 3
#: on a GPU: 550 MB in 16 bits, for each matrix
LARGEST_ON_GPU = 16384
#: float32 values that are copied: more than last caches hold, but for the very largest
COPIED, COPIED_ON_GPU = 2**25, 2**28


def _product(module: ModelModule, job: Job, events: Events) -> None:
    """What this device can do: one matrix product as the row computes them, and a copy of memory. On a CPU beside one
    product that needs nothing but float32: a small one, which shows whether its kernels fit this CPU, and a large one.
    On a GPU it may fail, as where a framework has left no memory; the run is over and has its figures."""
    try:
        told = _on_gpu(module, job) if job.device == "cuda" else _on_cpu(module, job)
    except Exception:
        if job.device == "cpu":
            raise
        traceback.print_exc()
        return
    events.write("product", **told)
    probe.forget_peak_memory()


def _on_cpu(module: ModelModule, job: Job) -> Dict[str, Any]:
    seconds, fp32_seconds = _least(module.product(job, PRODUCT_SIZE)), _least(_numpys(PRODUCT_SIZE))
    size = _size_of(LARGE_SECONDS, PRODUCT_SIZE, min(seconds, fp32_seconds), LARGEST)
    with futures.ThreadPoolExecutor(job.threads) as threads:
        copy_seconds = _least(_numpys_copy(threads, job.threads), LARGE_PRODUCTS)
    return {
        "size": PRODUCT_SIZE,
        "seconds": seconds,
        "fp32_seconds": fp32_seconds,
        "large_size": size,
        "large_seconds": _least(module.product(job, size), LARGE_PRODUCTS),
        "large_fp32_seconds": _least(_numpys(size), LARGE_PRODUCTS),
        "copy_bytes": 8 * COPIED,
        "copy_seconds": copy_seconds,
    }


def _on_gpu(module: ModelModule, job: Job) -> Dict[str, Any]:
    size = _size_of(LARGE_SECONDS, LARGEST, _least(module.product(job, LARGEST)), LARGEST_ON_GPU)
    told = {"large_size": size, "large_seconds": _least(module.product(job, size))}
    if hasattr(module, "copy"):
        told.update(copy_bytes=8 * COPIED_ON_GPU, copy_seconds=_least(module.copy(job, COPIED_ON_GPU)))
    return told


def _numpys(size: int) -> Callable[[], Any]:
    ones = numpy.ones((size, size), "float32")
    return lambda: ones @ ones


def _numpys_copy(threads: futures.Executor, count: int) -> Callable[[], Any]:
    """By each thread a part: NumPy holds no lock while it copies. Each byte is read once and written once; what a CPU
    reads before it writes is not counted, as in STREAM."""
    sources = numpy.array_split(numpy.empty(COPIED, "float32"), count)
    targets = numpy.array_split(numpy.empty(COPIED, "float32"), count)
    list(threads.map(numpy.copyto, sources, [1.0] * count))  # of memory that nobody wrote to there is one page
    return lambda: list(threads.map(numpy.copyto, targets, sources))


def _size_of(seconds: float, size: int, taken: float, largest: int) -> int:
    """Of a product that takes so many seconds where one of `size` has taken `taken`."""
    times = min(seconds / max(taken, 1e-9), (largest / size) ** 3)
    side: float = size * times ** (1 / 3)
    return max(size, round(side) // 64 * 64)


def _least(multiply: Callable[[], Any], most: int = PRODUCTS) -> float:
    multiply()  # compiles, starts threads
    seconds: List[float] = []
    while len(seconds) < most and sum(seconds) < LONG_SECONDS:
        began = time.perf_counter()
        multiply()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _warm_up(trainer: Trainer, job: Job, events: Events, states: "States") -> Job:
    """At least one step runs before the windows: the first one compiles. The second is waited for, too, so that the
    core knows the pace; those after it are not, as in a window. Returns the job with the steps of its windows."""
    began = time.perf_counter()
    loss = trainer.step()
    trainer.wait()
    first = time.perf_counter() - began
    events.write("first_step", seconds=first, loss=_finite(trainer.read(loss), "step 1"))
    began += states.take(1)
    if job.warmup_steps > 1:
        second_began = time.perf_counter()
        loss = trainer.step()
        trainer.wait()
        seconds = time.perf_counter() - second_began
        events.write("second_step", seconds=seconds, loss=_finite(trainer.read(loss), "step 2"))
        began += states.take(2)
    for _ in range(job.warmup_steps - 2):
        loss = trainer.step()
    trainer.wait()
    steps = max(job.warmup_steps, 1)
    states.warm(steps)
    if job.warmup_seconds or job.window_seconds:
        more, per_window, loss = _longer(trainer, job, began + first)
        steps, job = steps + more, job._replace(steps_per_window=per_window)
        states.warm(steps)
    events.write(
        "warm",
        steps=steps,
        steps_per_window=job.steps_per_window,
        seconds=time.perf_counter() - began,
        first_step_seconds=first,
        loss=_finite(trainer.read(loss), "warm-up"),
        **trace.what_ran(trainer, job),
    )
    return job


class States:
    """What the tensors of a run are at its start, after its first two steps, its warm-up, its first and its last
    window, outside of the clock. Rank 0's, since ranks have the same weights.

    warmed: steps of its warm-up. peak_memory_bytes: the process's largest resident size before each, since they take
    memory of their own.
    """

    def __init__(self, trainer: Trainer, job: Job, place: ranks.Ranks, peak_memory_bytes: int) -> None:
        self._trainer, self._job, self._tells = trainer, job, place.rank == 0
        self._wanted = self._tells or getattr(trainer, "together", False)
        self._taken = {}  # type: Dict[int, trace.Sketches]
        self.warmed, self.peak_memory_bytes = 0, peak_memory_bytes
        try:
            self.take(0)
        except NotImplementedError:  # it hands out no tensors, so nothing of it can be proven
            self._wanted = False

    def warm(self, steps: int) -> None:
        """After so many steps of warm-up; those of windows are counted from there."""
        self.warmed = steps
        self.take(0)

    def take(self, steps: int) -> float:
        """The seconds that it took."""
        began = time.perf_counter()
        if self._wanted and self.warmed + steps not in self._taken:
            self.peak_memory_bytes = max(self.peak_memory_bytes, probe.peak_memory_bytes())
            self._taken[self.warmed + steps] = trace.samples(self._trainer, self._job)
            probe.forget_peak_memory()
        return time.perf_counter() - began

    def audit(self, folder: str, events: Events) -> None:
        """After the last window. All runs of a row do this alike; which of them is looked at is drawn when it is over.
        Its memory and time are in no figure."""
        self.peak_memory_bytes = max(self.peak_memory_bytes, probe.peak_memory_bytes())
        began = time.perf_counter()
        try:
            loss = trace.audit(self._trainer, self._job, folder)
        except OSError as error:  # the disk is full
            events.write("audit", why=f"its weights could not be written: {error.strerror}")
        else:
            steps, seconds = max(self._taken) + 1, time.perf_counter() - began
            events.write("audit", steps=steps, loss=_finite(loss, "the audit"), seconds=seconds)
        probe.forget_peak_memory()

    def write(self, folder: str, events: Events) -> None:
        if self._wanted and self._tells:
            arrays = {f"{steps}/{name}": array for steps, found in self._taken.items() for name, array in found.items()}
            numpy.savez(os.path.join(folder, STATES), **arrays)  # type: ignore[arg-type]
            events.write("states", file=STATES, steps=list(self._taken))


STATES = "states.npz"
#: share of a window that tells how many steps it has room for
TOLD = 0.25


def _longer(trainer: Trainer, job: Job, began: float) -> Tuple[int, int, Any]:
    """Warm up until `warmup_seconds` after `began`. Steps made, steps that take `window_seconds`, the last loss."""
    steps, made = job.steps_per_window, 0
    while True:
        part_began = time.perf_counter()
        for _ in range(steps):
            loss = trainer.step()
        trainer.wait()
        now = time.perf_counter()
        made, seconds = made + steps, now - part_began
        if seconds < TOLD * job.window_seconds:
            steps *= 2
        elif now - began >= job.warmup_seconds:
            return made, max(job.steps_per_window, math.ceil(job.window_seconds * steps / max(seconds, 1e-9))), loss


#: a probe is as large as a step's gradients, but no larger than this, so that it takes seconds on a slow network
MOST_PROBED = 2**26
#: of the nodes' links, where dlperf.adapters.emulated has made and measured them
LINK = {"link_gigabits": "DLPERF_LINK", "link_milliseconds": "DLPERF_LATENCY"}
PROBES = 5


def _communication(trainer: Trainer, place: ranks.Ranks, job: Job, events: Events) -> Callable[[], float]:
    """Measure an all-reduce of the gradients' size, where ranks average them so, and return the barrier."""
    count = max(1, min(trainer.gradient_bytes, MOST_PROBED) // 4)
    barrier = trainer.all_reduce(1)
    if job.servers:
        return barrier
    probe_network = trainer.all_reduce(count)
    seconds = []
    for index in range(1 + PROBES):  # the first one sets up connections and buffers
        _exact(barrier(), place.world_size)
        began = time.perf_counter()
        total = probe_network()
        if index:
            seconds.append(time.perf_counter() - began)
        _exact(total, place.world_size)
    events.write(
        "communication",
        gradient_bytes=int(trainer.gradient_bytes),
        all_reduce_bytes=4 * count,
        all_reduce_seconds=sorted(seconds)[PROBES // 2],
        **{name: float(os.environ[variable]) for name, variable in LINK.items() if variable in os.environ},
    )
    return barrier


def _exact(total: float, world_size: int) -> None:
    if total != world_size:
        raise trace.WrongTensor(f"all_reduce: the sum of ones over the ranks is {total}, must be {world_size}")


def _window(
    trainer: Trainer,
    job: Job,
    index: int,
    samples: int,
    events: Events,
    barrier: Optional[Callable[[], float]],
) -> None:
    """samples: that its steps have over all ranks. Steps are enqueued without a wait in between, since a wait at each
    step punishes asynchronous frameworks. All ranks begin together; the core takes the slowest rank's seconds."""
    trainer.wait()
    if barrier:
        barrier()
    waited = trainer.input_seconds
    before, cpu_began = host.readings(), _cpu_seconds()
    began = time.perf_counter()
    for _ in range(job.steps_per_window):
        loss = trainer.step()
    trainer.wait()
    seconds = time.perf_counter() - began
    cpu_seconds = _cpu_seconds() - cpu_began
    around = host.between(before, host.readings())
    read_began = time.perf_counter()
    value = trainer.read(loss)
    read_seconds = time.perf_counter() - read_began
    events.write(
        "window",
        index=index,
        steps=job.steps_per_window,
        samples=samples,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        host=around,
        loss=_finite(value, f"window {index}"),
        read_seconds=read_seconds,
        input_seconds=None if waited is None else trainer.input_seconds - waited,  # type: ignore[operator]
    )


#: looks by a profiler at most, for one in which steps take no longer than this times what they take without
LOOKS, NEAR = 4, 1.04


def _profile(adapter: str, trainer: Trainer, steps: int, events: Events) -> None:
    """Some more steps, looked at by the framework's own profiler. The first look, which sets it up, is not told; of the
    others the fastest is: what a profiler keeps comes between the blocks of memory that each step takes again, and
    until these have settled pages are new, for which a step of PyTorch's ResNet-50 takes up to a third longer."""
    seconds: List[float] = []

    def run(count: int) -> "Tuple[float, float]":
        """-> when it began and ended, for a profiler on this clock."""
        began = time.perf_counter()
        for _ in range(count):
            trainer.step()
        trainer.wait()
        ended = time.perf_counter()
        seconds.append(ended - began)
        return began, ended

    try:
        module: Any = importlib.import_module(f"dlperf.adapters.{adapter}.profiling")
    except ImportError as error:
        events.write("profile", why=f"no profiler is known for this adapter ({error})")
        return
    run(1)
    near = NEAR * steps * seconds[0]
    list(module.spans(trainer, lambda: run(1)))
    looks = []  # type: List[Tuple[Any, Any, float]]
    while len(looks) < LOOKS:
        looks.append((*profiling.attributed(module.spans(trainer, lambda: run(steps))), seconds[-1]))
        if seconds[-1] <= near:
            break
    took, calls, taken = min(looks, key=lambda look: look[-1])
    if all(kind == "host" for kind, _ in took):
        events.write("profile", why="its profiler saw no operation")
        return
    events.write(
        "profile",
        steps=steps,
        seconds=taken,
        waited_seconds=taken - math.fsum(took.values()),
        operations=[[*key, took[key], calls[key]] for key in sorted(took, key=lambda key: -took[key])],
    )


def _cpu_seconds() -> float:
    """Of this process, and of those that it started."""
    return time.process_time() + host.cpu_seconds_of_children()


#: for which the loader works alone, after as long untimed: some have hundreds of images ready when training stops,
#: which would count as made in no time
LOADER_SECONDS = 2.0


def _input(trainer: Trainer, job: Job, events: Events, barrier: Optional[Callable[[], float]]) -> None:
    """The loader alone, without training: what this rank's made, and in how long."""
    _fetch(trainer)
    if barrier:
        barrier()
    batches, seconds = _fetch(trainer)
    events.write("input", samples=batches * job.batch_size * models.units(job.model), seconds=seconds)


def _fetch(trainer: Trainer) -> Tuple[int, float]:
    began, batches = time.perf_counter(), 0
    while time.perf_counter() - began < LOADER_SECONDS:
        trainer.fetch()
        batches += 1
    return batches, time.perf_counter() - began


def _write_pixels(module: ModelModule, job: Job, folder: str) -> None:
    images, labels = [], []
    for image, label in module.pixels(job):
        images.append(numpy.asarray(image, "float32"))
        labels.append(operator.index(label))  # a loss takes no 3.0
        if len(images) == job.pixels:
            break
    numpy.savez(os.path.join(folder, "pixels.npz"), images=numpy.stack(images), labels=labels)


def _finite(loss: float, where: str) -> float:
    if not math.isfinite(loss):
        raise NotFinite(f"the loss is {loss} after {where}")
    return loss


_OUT_OF_MEMORY = (
    "out of memory",
    "resource_exhausted",
    "bad_alloc",
    "can't allocate memory",
    "cannot allocate memory",
)


def _kind(error: BaseException) -> str:
    """The word for the report's table. Frameworks raise their own classes, so the text decides."""
    if isinstance(error, NotFinite):
        return "nan"
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, trace.WrongTensor):
        return "wrong_tensor"
    if isinstance(error, ranks.Lost):
        return "lost"
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY):
        return "out_of_memory"
    return "port_taken" if "address already in use" in text else "crash"


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads of a framework's collectives outlive the interpreter's end badly. With PyTorch's Gloo one of
    # twenty pairs of ranks aborted there, after its last event, and took the other for a failed one
    os._exit(exit_code)
