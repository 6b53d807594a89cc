"""ResNet's images in MXNet: ImageRecordIter over RecordIO, in threads; gluon's DataLoader over a folder, in processes;
or DALI."""

import multiprocessing
import os
import random

import mxnet as mx
import numpy as np
from mxnet import nd

from dlperf import models
from dlperf.adapters import base, dali
from dlperf.adapters.ranks import Ranks
from dlperf.adapters.spawn import die_with_parent
from dlperf.models import photos


class Loader(base.Loader):
    def __init__(self, job, ranks, device):
        self._device, self._dtype = device, job.weights_dtype
        size = models.config(job.model).image_size
        if job.input == "dali":
            self._batches, description = dali_batches(job, ranks, size), dali.describe(job)
        elif job.format == "recordio":
            self._batches = record_batches(job, ranks, size)
            description = f"ImageRecordIter over recordio, {job.threads} threads"
        else:
            self._batches = file_batches(job, ranks, size)
            description = f"gluon's DataLoader over folder, {job.threads} processes"
        super().__init__(job, description)

    def _next(self):
        pixels, labels = (array.as_in_context(self._device) for array in next(self._batches))
        if pixels.dtype == np.uint8:
            pixels = normalised(pixels)
        return {"images": pixels.astype(self._dtype, copy=False), "labels": labels.reshape(-1)}


def normalised(pixels):
    """NHWC from 0 to 255 -> float32 NCHW, as the network gets it."""
    mean, deviation = (tuple(value / 255 for value in values) for values in (photos.MEAN, photos.DEVIATION))
    return nd.image.normalize(nd.image.to_tensor(pixels), mean, deviation)


def record_batches(job, ranks, size):
    random_part = {
        "random_resized_crop": True,
        "min_random_area": photos.AREA[0],
        "max_random_area": photos.AREA[1],
        "min_aspect_ratio": photos.RATIO[0],
        "max_aspect_ratio": photos.RATIO[1],
        "rand_mirror": True,
    }
    batches = records(job, ranks, size, shuffle=True, seed=job.seed, **random_part)
    return ((batch.data[0], batch.label[0]) for batch in endless(batches, batches.reset))


def records(job, ranks, size, **more):
    (file,) = photos.files(job.data_dir, job.format)
    channels = ("r", "g", "b")
    return mx.io.ImageRecordIter(
        path_imgrec=file,
        path_imgidx=file[: -len("rec")] + "idx",
        data_shape=(3, size, size),
        batch_size=job.batch_size,
        inter_method=1,  # bilinear
        preprocess_threads=job.threads,
        num_parts=ranks.world_size,
        part_index=ranks.rank,
        verbose=False,
        **{"mean_" + name: value for name, value in zip(channels, photos.MEAN)},
        **{"std_" + name: value for name, value in zip(channels, photos.DEVIATION)},
        **more,
    )


class Files(mx.gluon.data.Dataset):
    """(pixels, label) of this rank's files: uint8 (size, size, 3), and an int."""

    def __init__(self, job, ranks, size, training):
        self._folder = os.path.join(job.data_dir, "folder")
        self._index = photos.read_index(job.data_dir)[ranks.rank :: ranks.world_size]
        self._size, self._training = size, training
        self._seed, self._random = f"{job.seed} {ranks.rank}", None

    def __len__(self):
        return len(self._index)

    def __getitem__(self, number):
        one = self._index[number]
        pixels = mx.image.imread(os.path.join(self._folder, one.path))
        if self._training and self._random is None:  # each worker process draws its own
            die_with_parent()
            self._random = random.Random(f"{self._seed} {multiprocessing.current_process().name}")
        height, width, _ = pixels.shape
        part = photos.random_part(self._random, height, width) if self._training else photos.middle_part(height, width)
        top, left, height, width = part
        pixels = mx.image.fixed_crop(pixels, left, top, width, height, (self._size, self._size), interp=1)
        # numpy's from here: nd.flip and the loader's nd.stack would take as long as the decoder
        pixels = pixels.asnumpy()
        if self._training and self._random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels), one.label


def file_batches(job, ranks, size):
    np.random.seed(job.seed + ranks.rank)  # of the order
    return endless(
        mx.gluon.data.DataLoader(
            Files(job, ranks, size, training=True),
            job.batch_size,
            shuffle=True,
            last_batch="discard",
            num_workers=job.threads,
            pin_memory=job.device == "cuda",
        )
    )


def dali_batches(job, ranks, size, training=True):
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.mxnet import DALIClassificationIterator

    made = dali.pipeline(job, ranks, size, "CHW", training)
    batches = DALIClassificationIterator([made], reader_name="reader", last_batch_policy=LastBatchPolicy.DROP)
    return ((batch.data[0], batch.label[0]) for (batch,) in endless(batches, batches.reset))


def endless(batches, again=lambda: None):
    """One pass over the data after the other; again: what an iterator needs before the next one."""
    while True:
        yield from batches
        again()


def pixels(job):
    size = models.config(job.model).image_size
    one = job._replace(batch_size=1)
    if job.input == "dali":
        batches = dali_batches(one, Ranks(), size, training=False)
    elif job.format == "recordio":  # scales the shorter side, then cuts out the middle
        batches = ((batch.data[0], batch.label[0]) for batch in records(one, Ranks(), size, resize=size))
    else:
        files = Files(job, Ranks(), size, training=False)
        batches = ((normalised(nd.array(found[None], dtype="uint8")), nd.array([label])) for found, label in files)
    for found, labels in batches:
        yield found.asnumpy()[0], int(labels.asscalar())
