"""ResNet's images in JAX: Grain, whose threads read JPEG files and decode them with OpenCV; or DALI."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy

from dlperf import models
from dlperf.adapters import base, dali, opencv
from dlperf.adapters.jax import runtime
from dlperf.adapters.jax.communication import OWN, Devices
from dlperf.adapters.ranks import Ranks
from dlperf.models import photos

try:
    import grain
except ImportError:  # the environment with DALI has none
    grain = None


class Files:
    """Lines of the index -> pixels, uint8 (size, size, 3), and label."""

    def __init__(self, data_dir, size):
        self._folder, self._size = os.path.join(data_dir, "folder"), size

    def training(self, one, random):
        """`random`: numpy's Generator."""
        pixels = opencv.decode(os.path.join(self._folder, one.path))
        pixels = opencv.scaled(pixels, photos.random_part(random, *pixels.shape[:2]), self._size)
        return (pixels[:, ::-1] if random.random() < 0.5 else pixels), numpy.int32(one.label)

    def checking(self, one):
        pixels = opencv.decode(os.path.join(self._folder, one.path))
        return opencv.scaled(pixels, photos.middle_part(*pixels.shape[:2]), self._size), numpy.int32(one.label)


class Loader(base.Loader):
    def __init__(self, job, ranks):
        native = f"Grain's MapDataset over {job.format}, OpenCV, {job.threads} threads"
        super().__init__(job, dali.describe(job) if job.input == "dali" else native)
        self._devices = Devices(ranks)
        size = models.config(job.model).image_size
        self._batches = dali_batches(job, ranks, size) if job.input == "dali" else native_batches(job, ranks, size)
        self._network_input = self._devices.compiled(partial(network_input, dtype=job.weights_dtype), OWN)

    def _next(self):
        pixels, labels = next(self._batches)
        batch = {"images": jax.device_put(pixels), "labels": jax.device_put(labels)}
        batch = self._devices.spread(OWN, batch)
        batch["images"] = self._network_input(batch["images"])
        return batch


def network_input(pixels, dtype):
    """Normalised pixels: bytes still have to be, DALI's are."""
    if pixels.dtype != jnp.uint8:
        return pixels.astype(dtype)
    return (pixels.astype(dtype) - jnp.asarray(photos.MEAN, dtype)) / jnp.asarray(photos.DEVIATION, dtype)


def native_batches(job, ranks, size):
    opencv.one_thread()
    batches = (
        grain.MapDataset.source(photos.read_index(job.data_dir))
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
    files, normalised = Files(job.data_dir, size), jax.jit(partial(network_input, dtype=job.weights_dtype))
    found = dali.pixels(job, size) if job.input == "dali" else map(files.checking, photos.read_index(job.data_dir))
    for image, label in found:
        yield numpy.asarray(normalised(image)).transpose(2, 0, 1), label
