"""ResNet's images in JAX: Grain, whose threads read JPEG files and decode them with OpenCV; or DALI."""

import os
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy

from dlperf import models
from dlperf.adapters import dali
from dlperf.adapters.jax import runtime
from dlperf.adapters.ranks import Ranks
from dlperf.models import images

try:
    import cv2
    import grain
except ImportError:  # the environment with DALI has neither
    cv2 = grain = None


class Files:
    """Lines of the index -> pixels, uint8 (size, size, 3), and label."""

    def __init__(self, data_dir, size):
        self._folder, self._size = os.path.join(data_dir, "folder"), size

    def training(self, one, random):
        """`random`: numpy's Generator."""
        pixels = decode(os.path.join(self._folder, one.path))
        pixels = self._scaled(pixels, images.random_part(random, *pixels.shape[:2]))
        return (pixels[:, ::-1] if random.random() < 0.5 else pixels), numpy.int32(one.label)

    def checking(self, one):
        pixels = decode(os.path.join(self._folder, one.path))
        return self._scaled(pixels, images.middle_part(*pixels.shape[:2])), numpy.int32(one.label)

    def _scaled(self, pixels, part):
        top, left, height, width = part
        part = pixels[top : top + height, left : left + width]
        return cv2.resize(part, (self._size, self._size), interpolation=cv2.INTER_LINEAR)


def decode(file):
    """uint8 (height, width, 3), red, green, blue; black where the file cannot be decoded."""
    pixels = cv2.imread(file, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        print(f"{file}: cannot be decoded, and is black in this run", file=sys.stderr)
        return numpy.zeros((1, 1, 3), "uint8")
    return pixels


class Loader:
    """An endless stream of batches on the device, as Feed has them. input_seconds: that was waited for them so far."""

    def __init__(self, job, ranks):
        size = models.config(job.model).image_size
        self._devices = runtime.Devices(ranks)
        self._batches = (dali_batches if job.input == "dali" else native_batches)(job, ranks, size)
        self._network_input = self._devices.compiled(partial(network_input, dtype=float_type(job)), runtime.OWN)
        self.input_seconds = 0.0
        self.description = (
            dali.describe(job)
            if job.input == "dali"
            else f"Grain's MapDataset over {job.format}, OpenCV, {job.threads} threads"
        )

    def __getitem__(self, step):
        began = time.perf_counter()
        pixels, labels = next(self._batches)
        batch = {"images": jax.device_put(pixels), "labels": jax.device_put(labels)}
        batch = self._devices.spread(runtime.OWN, batch)
        batch["images"] = self._network_input(batch["images"])
        self.input_seconds += time.perf_counter() - began
        return batch


def float_type(job):
    return jnp.float64 if job.precision == "fp64" else jnp.float32


def network_input(pixels, dtype):
    """Normalised pixels: bytes still have to be, DALI's are."""
    if pixels.dtype != jnp.uint8:
        return pixels.astype(dtype)
    return (pixels.astype(dtype) - jnp.asarray(images.MEAN, dtype)) / jnp.asarray(images.DEVIATION, dtype)


def native_batches(job, ranks, size):
    cv2.setNumThreads(0)  # Grain's threads are as many as we may use
    batches = (
        grain.MapDataset.source(images.read_index(job.data_dir))
        .seed(job.seed + ranks.rank)[ranks.rank :: ranks.world_size]
        .shuffle()
        .repeat()
        .random_map(Files(job.data_dir, size).training)
        .batch(job.batch_size)
    )
    # each thread makes a whole batch: OpenCV gives the interpreter free, so that processes would only add copies
    return iter(
        batches.to_iter_dataset(grain.ReadOptions(num_threads=job.threads, prefetch_buffer_size=2 * job.threads))
    )


def dali_batches(job, ranks, size):
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.jax import DALIGenericIterator

    made = dali.pipeline(job, ranks, size, "HWC")
    batches = DALIGenericIterator(
        [made], ["pixels", "labels"], reader_name="reader", auto_reset=True, last_batch_policy=LastBatchPolicy.DROP
    )
    while True:
        for batch in batches:
            yield batch["pixels"], batch["labels"].ravel()


def pixels(job):
    runtime.configure(job, Ranks())
    size = models.config(job.model).image_size
    files, normalised = Files(job.data_dir, size), jax.jit(partial(network_input, dtype=float_type(job)))
    found = dali.pixels(job, size) if job.input == "dali" else map(files.checking, images.read_index(job.data_dir))
    for image, label in found:
        yield numpy.asarray(normalised(image)).transpose(2, 0, 1), label
