"""ResNet's images in PaddlePaddle: a DataLoader, whose processes read files and decode them with OpenCV; or DALI."""

import os

import numpy
import paddle
from paddle.io import DataLoader, Dataset, DistributedBatchSampler, get_worker_info

from dlperf import models
from dlperf.adapters import base, dali, opencv
from dlperf.adapters.paddle import runtime
from dlperf.adapters.ranks import Ranks
from dlperf.adapters.spawn import die_with_parent
from dlperf.models import photos

#: DALI's iterator for Paddle asks for a CUDA device and its stream even where the pipeline has none
DALI_BY = {"cpu": "arrays of Pipeline.run", "cuda": "DALIGenericIterator"}


class Files(Dataset):
    """(pixels, label) of the files in the index: uint8 (size, size, 3), and int32. seed: of the random parts; None for
    the middle part."""

    def __init__(self, data_dir, size, seed=None):
        self._folder, self._index = os.path.join(data_dir, "folder"), photos.read_index(data_dir)
        self._size, self._seed, self._random = size, seed, None

    def __len__(self):
        return len(self._index)

    def __getitem__(self, number):
        one = self._index[number]
        pixels = opencv.decode(os.path.join(self._folder, one.path))
        if self._seed is None:
            return opencv.scaled(pixels, photos.middle_part(*pixels.shape[:2]), self._size), numpy.int32(one.label)
        if self._random is None:  # each worker process draws its own
            self._random = numpy.random.RandomState((self._seed, get_worker_info().id))
        pixels = opencv.scaled(pixels, photos.random_part(self._random, *pixels.shape[:2]), self._size)
        if self._random.uniform() < 0.5:
            pixels = pixels[:, ::-1]
        return pixels, numpy.int32(one.label)


class Endless(DistributedBatchSampler):
    """Epoch after epoch, so that the processes never run dry between two."""

    def __iter__(self):
        while True:
            yield from super().__iter__()  # each in an order of its own


class Loader(base.Loader):
    def __init__(self, job, ranks, layout):
        native = f"DataLoader over {job.format}, OpenCV, {job.threads} processes"
        by_dali = f"{dali.describe(job)}, {DALI_BY[job.device]}"
        super().__init__(job, by_dali if job.input == "dali" else native)
        size = models.config(job.model).image_size
        self._dtype = job.weights_dtype
        self._batches = (dali_batches if job.input == "dali" else native_batches)(job, ranks, size, layout)

    def copied(self):
        """Nothing here waits for the device."""

    def _next(self):
        pixels, labels = next(self._batches)
        return {"images": pixels.astype(self._dtype), "labels": labels}


class NetworkInput:
    """Bytes as the processes give them, NHWC -> normalised, in the network's layout."""

    def __init__(self, layout):
        self._channels_first = layout == "NCHW"
        self._mean, self._deviation = paddle.to_tensor(photos.MEAN), paddle.to_tensor(photos.DEVIATION)

    def __call__(self, pixels):
        # while the channels are last, where Paddle's kernel for the CPU is ten times faster
        pixels = pixels.astype(paddle.get_default_dtype()).subtract_(self._mean).divide_(self._deviation)
        return pixels.transpose([0, 3, 1, 2]) if self._channels_first else pixels


def native_batches(job, ranks, size, layout):
    opencv.one_thread()
    dataset = Files(job.data_dir, size, seed=job.seed + ranks.rank)
    sampler = Endless(dataset, job.batch_size, ranks.world_size, ranks.rank, shuffle=True, drop_last=True)
    sampler.set_epoch(job.seed)  # what an epoch's order is drawn from
    network_input = NetworkInput(layout)
    for pixels, labels in DataLoader(
        dataset, batch_sampler=sampler, num_workers=job.threads, worker_init_fn=_start_process
    ):
        yield network_input(pixels), labels


def _start_process(number):
    """One of the DataLoader's: it would wait for ever where the process that it works for is killed."""
    die_with_parent()


def dali_batches(job, ranks, size, layout):
    made = dali.pipeline(job, ranks, size, layout.replace("N", ""))
    return _dali_tensors(made) if job.device == "cuda" else _dali_arrays(made)


def _dali_arrays(made):
    made.build()
    while True:
        pixels, labels = made.run()
        yield paddle.to_tensor(pixels.as_array()), paddle.to_tensor(labels.as_array()).flatten()


def _dali_tensors(made):
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.paddle import DALIGenericIterator

    batches = DALIGenericIterator(
        [made], ["pixels", "labels"], reader_name="reader", auto_reset=True, last_batch_policy=LastBatchPolicy.DROP
    )
    while True:
        for (batch,) in batches:
            yield paddle.to_tensor(batch["pixels"]), paddle.to_tensor(batch["labels"]).flatten()


def pixels(job):
    runtime.configure(job, Ranks())
    size, network_input = models.config(job.model).image_size, NetworkInput("NCHW")
    if job.input == "dali":
        for image, label in dali.pixels(job, size):
            yield image.transpose(2, 0, 1), label
    for image, label in Files(job.data_dir, size):
        yield network_input(paddle.to_tensor(image[None]))[0].numpy(), label
