"""ResNet's images in PyTorch: a DataLoader whose processes read JPEG files and decode them with OpenCV; or DALI."""

import os
import random

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from dlperf import models
from dlperf.adapters import base, dali, opencv
from dlperf.adapters.api import Unsupported
from dlperf.models import photos


class Files(Dataset):
    """(pixels, label) of the files in the index: uint8 (size, size, 3), and an int."""

    def __init__(self, data_dir, size, training):
        self._folder, self._index = os.path.join(data_dir, "folder"), photos.read_index(data_dir)
        self._size, self._training, self._random = size, training, None

    def __len__(self):
        return len(self._index)

    def __getitem__(self, number):
        one = self._index[number]
        pixels = opencv.decode(os.path.join(self._folder, one.path))
        if self._random is None:  # each worker process draws its own
            self._random = random.Random(torch.initial_seed())
        size = pixels.shape[:2]
        part = photos.random_part(self._random, *size) if self._training else photos.middle_part(*size)
        pixels = opencv.scaled(pixels, part, self._size)
        if self._training and self._random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return numpy.ascontiguousarray(pixels), one.label


class Endless(DistributedSampler):
    """Epoch after epoch, so that the processes never run dry between two."""

    def __iter__(self):
        while True:
            yield from super().__iter__()
            self.set_epoch(self.epoch + 1)  # each in an order of its own


class Loader(base.Loader):
    def __init__(self, job, ranks, device, layout):
        native = f"DataLoader over {job.format}, OpenCV, {job.threads} processes"
        super().__init__(job, dali.describe(job) if job.input == "dali" else native)
        self._job, self._device, self._layout = job, device, layout
        self._dtype = getattr(torch, job.weights_dtype)
        size = models.config(job.model).image_size
        self._batches = dali_batches(job, ranks, size) if job.input == "dali" else native_batches(job, ranks, size)
        mean, deviation = (
            torch.tensor(values, device=device, dtype=self._dtype) for values in (photos.MEAN, photos.DEVIATION)
        )
        self._mean, self._deviation = mean.view(1, 3, 1, 1), deviation.view(1, 3, 1, 1)

    def _next(self):
        pixels, labels = next(self._batches)
        return {"images": self._network_input(pixels), "labels": labels.to(self._device, non_blocking=True).flatten()}

    def _network_input(self, pixels):
        """NHWC as the loaders give it to NCHW: a view, which is channels_last."""
        pixels = pixels.to(self._device, non_blocking=True).permute(0, 3, 1, 2).to(self._dtype)
        if self._job.input == "native":
            pixels = pixels.sub_(self._mean).div_(self._deviation)
        return pixels.contiguous(memory_format=self._layout)


def native_batches(job, ranks, size):
    try:
        opencv.one_thread()
    except ImportError:
        raise Unsupported("this environment has no OpenCV: images are read without communication=horovod") from None
    dataset = Files(job.data_dir, size, training=True)
    sampler = Endless(dataset, ranks.world_size, ranks.rank, seed=job.seed, drop_last=True)
    loader = DataLoader(
        dataset, job.batch_size, sampler=sampler, num_workers=job.threads, pin_memory=job.device == "cuda"
    )
    return iter(loader)


def dali_batches(job, ranks, size):
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    made = dali.pipeline(job, ranks, size, "HWC")
    batches = DALIGenericIterator(
        [made], ["pixels", "labels"], reader_name="reader", auto_reset=True, last_batch_policy=LastBatchPolicy.DROP
    )
    while True:
        for (batch,) in batches:
            yield batch["pixels"], batch["labels"]


def pixels(job):
    size = models.config(job.model).image_size
    if job.input == "dali":
        for found, label in dali.pixels(job, size):
            yield found.transpose(2, 0, 1), label
    for found, label in Files(job.data_dir, size, training=False):
        yield photos.normalised(found).transpose(2, 0, 1), label
