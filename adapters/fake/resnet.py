"""The fake framework's "ResNet": the whole contract, with sleep in place of work."""

import os
import selectors
import signal
import socket
import struct
import subprocess
import time

import numpy

from dlperf import models
from dlperf.adapters import base
from dlperf.adapters.api import EFFECTIVE
from dlperf.models.batches import Batches
from dlperf.models.parameters import count, initial

DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "tf32",
    "amp_fp16": "float16",
    "amp_bf16": "bfloat16",
}


#: what a step does, one after the other, and its share of the sleep
PARTS = {"product": 0.6, "normalisation": 0.25, "optimizer": 0.15}


def versions():
    return {"numpy": numpy.__version__}


def product(job, size):
    # about as long as a real one: of a product that takes no time the largest would be tried
    return lambda: time.sleep(0.2 if job.options.get("behave") == "reference" else 0.001)


def build(job, ranks):
    return Trainer(job, ranks)


def serve(job, ranks):
    """A parameter server that adds up what is pushed, and answers each push with how many there were."""
    address, _, port = ranks.servers[ranks.rank].rpartition(":")
    concerned = job.options.get("rank") == f"server{ranks.rank}"
    with socket.create_server((address, int(port)), backlog=len(ranks.workers)) as server:
        others = [server.accept()[0] for _ in ranks.workers]
    pushes = 0
    with selectors.DefaultSelector() as selector:
        for other in others:
            selector.register(other, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = key.fileobj.recv(8, socket.MSG_WAITALL)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                pushes += 1
                key.fileobj.sendall(struct.pack("d", pushes))
                if concerned:
                    misbehave(job.options["behave"])
    if job.options.get("behave") == "stays":
        time.sleep(1000)
    applied = pushes - (concerned and job.options.get("behave") == "lost_push")
    return {"pushes": applied, "stale": {"0": applied - 1, "3": 1}}


def misbehave(how):
    if how == "crash":
        raise RuntimeError("the fake framework crashed, as asked")
    if how == "out_of_memory":
        raise MemoryError("the fake framework ran out of memory, as asked")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        subprocess.call(["sleep", "1000"])  # a child process: ending the worker alone would leave it behind


class Star:
    """Adds up one number over all ranks: each sends its own to rank 0, which sends back the sum."""

    def __init__(self, ranks):
        self._rank = ranks.rank
        if ranks.rank == 0:
            with socket.create_server((ranks.addresses[0], ranks.ports[0]), backlog=ranks.world_size) as server:
                self._others = [server.accept()[0] for _ in range(ranks.world_size - 1)]
        else:
            self._others = [self.reach(ranks.addresses[0], ranks.ports[0])]

    @staticmethod
    def reach(address, port):
        while True:  # until it listens
            try:
                return socket.create_connection((address, int(port)))
            except ConnectionRefusedError:
                time.sleep(0.01)

    def total(self, number):
        if self._rank == 0:
            number += sum(self.receive(other) for other in self._others)
            for other in self._others:
                other.sendall(struct.pack("d", number))
            return number
        self._others[0].sendall(struct.pack("d", number))
        return self.receive(self._others[0])

    @staticmethod
    def receive(other):
        data = other.recv(8, socket.MSG_WAITALL)
        if len(data) < 8:
            raise ConnectionError("another rank hung up")
        return struct.unpack("d", data)[0]


class Virtual:
    """A clock that goes on from now only by its own sleeping."""

    def __init__(self):
        self._now = time.perf_counter()

    def perf_counter(self):
        return self._now

    def sleep(self, seconds):
        self._now += seconds


class Trainer:
    """Steps are asynchronous, as on a GPU: `step` only sets when the work will be done, `wait` sleeps until then."""

    def __init__(self, job, ranks):
        self._job = job
        family, config = models.family(job.model), models.config(job.model)
        self._parameters = base.parameters(job)
        self._batches = Batches(job, ranks)
        seconds, slower = float(job.options.get("step_seconds", "0.001")), job.options.get("slower", "none")
        self.parts = {part: share * seconds * (1.2 if part == slower else 1.0) for part, share in PARTS.items()}
        self._seconds = sum(self.parts.values())
        concerned = job.options.get("rank", "all") in ("all", str(ranks.rank))
        self._behave = job.options.get("behave", "well") if concerned else "well"
        memory = job.options.get("memory", "unlimited")
        if memory != "unlimited" and job.batch_size > int(memory):
            raise MemoryError(f"the fake framework has memory for {memory} samples")
        if self._behave == "port_taken":
            self._other = socket.create_server((ranks.addresses[ranks.rank], ranks.ports[ranks.rank]))
        self._sleep = time.sleep
        self._star = Star(ranks) if ranks.world_size > 1 else None
        self.pushes = 0 if ranks.servers else None
        self._servers = [Star.reach(*end.rsplit(":", 1)) for end in ranks.servers]
        self._done_at = time.perf_counter()
        self._steps = 0
        self._dtype = "float64" if job.precision == "fp64" else "float32"
        self.parameter_count = count(self._parameters)
        self.gradient_bytes = 4 * self.parameter_count
        self.input_seconds = None
        self.effective = dict.fromkeys(EFFECTIVE + family.EFFECTIVE, "none")
        self.effective.update(precision=job.precision, threads="1", compute_dtype=DTYPES[job.precision])
        if self._servers:
            self.effective["communication"] = f"parameter servers ({job.ps_mode})"
        elif self._star:
            self.effective["communication"] = "sockets"
        if self._star:
            self._star.total(0.0)
        self.shapes = family.shapes(config)

    def step(self):
        if not self._steps and self._job.options.get("clock") == "virtual":
            clock = Virtual()
            time.perf_counter, self._sleep = clock.perf_counter, clock.sleep  # the worker's clock too
        self._batches[self._steps]
        self._steps += 1
        for server in self._servers:
            server.sendall(struct.pack("d", 1.0))
            Star.receive(server)
            self.pushes += 1
        self._done_at = max(self._done_at, time.perf_counter()) + self._seconds
        if self._steps > self._job.warmup_steps:
            self._misbehave()
        return 1.0 / self._steps

    def _misbehave(self):
        if self._behave == "slow":
            self._done_at += self._seconds
        misbehave(self._behave)

    def wait(self):
        if self._behave != "no_wait":
            self._sleep(max(0.0, self._done_at - time.perf_counter()))

    def read(self, loss):
        self._sleep(max(0.0, self._done_at - time.perf_counter()))
        return float("nan") if self._behave == "nan" else loss

    def all_reduce(self, count):
        return lambda: self._star.total(1.0)

    def parameters(self):
        return ((parameter.name, initial(parameter, self._job.seed, self._dtype)) for parameter in self._parameters)

    def logits(self):
        shapes = models.family(self._job.model).logits(models.config(self._job.model))
        return ((name, numpy.ones((self._job.batch_size, *shape))) for name, shape in shapes.items())

    def gradients(self):
        return ((p.name, numpy.ones(p.shape, self._dtype)) for p in self._parameters if p.trained)

    def moments(self):
        return {}

    def peak_memory(self):
        return None

    def close(self):
        pass
