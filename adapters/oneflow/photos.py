"""ResNet's images in OneFlow: its own readers and decoders of OFRecord, eagerly, one batch ahead of the training."""

import os

import oneflow as flow
from oneflow import nn

from dlperf import models
from dlperf.adapters import base
from dlperf.adapters.api import Unsupported
from dlperf.adapters.oneflow import runtime
from dlperf.adapters.oneflow.communication import of_all_ranks
from dlperf.adapters.ranks import Ranks
from dlperf.models import photos


class Records(nn.Module):
    """Gives a batch at each call: images, float32 (batch, 3, size, size), normalised; labels, int32 (batch,).

    training: random parts, mirrored or not; else the middle square, in the order of the files.
    """

    def __init__(self, job, ranks, training):
        super().__init__()
        size, seed = models.config(job.model).image_size, job.seed + ranks.rank
        files = photos.files(job.data_dir, job.format)
        if len(files) < ranks.world_size:
            raise Unsupported(
                f"{job.data_dir}: has {len(files)} files of {job.format}, of which OneFlow gives each of "
                f"{ranks.world_size} ranks at least one. {photos.PREPARE} --shards {ranks.world_size} again."
            )
        self._reader = nn.OFRecordReader(
            os.path.dirname(files[0]),
            batch_size=job.batch_size,
            data_part_num=len(files),
            part_name_suffix_length=5,
            random_shuffle=training,
            shuffle_after_epoch=training,
            random_seed=seed,
        )
        self._labels = nn.OFRecordRawDecoder("class/label", shape=(), dtype=flow.int32)
        if training:
            self._decoder = nn.OFRecordImageDecoderRandomCrop(
                "encoded",
                color_space="RGB",
                num_attempts=photos.TRIES,
                random_area=list(photos.AREA),
                random_aspect_ratio=list(photos.RATIO),
                random_seed=seed,
            )
            self._resize = nn.image.Resize(target_size=(size, size), interpolation_type="bilinear")
            self._mirror = nn.CoinFlip(batch_size=job.batch_size, random_seed=seed)
        else:
            # no operator cuts out the middle of an image before it is scaled
            self._decoder = nn.OFRecordImageDecoder("encoded", color_space="RGB")
            self._resize = nn.image.Resize(target_size=size, keep_aspect_ratio=True, interpolation_type="bilinear")
            self._mirror = lambda: None
        self._normalise = nn.CropMirrorNormalize(
            color_space="RGB", crop_h=size, crop_w=size, mean=list(photos.MEAN), std=list(photos.DEVIATION)
        )

    def forward(self):
        record = self._reader()
        pixels = self._resize(self._decoder(record))[0]
        return self._normalise(pixels, self._mirror()), self._labels(record)


class Loader(base.Loader):
    """Eager operations on the CPU run on a thread of their own, and a Graph on others: a batch is made while the Graph
    trains on the one before. In float64, where training is eager too, they take turns.
    """

    def __init__(self, job, ranks, device):
        super().__init__(job, f"OFRecordReader, {job.threads} threads")
        self._records, self._device = Records(job, ranks, training=True), device
        self._dtype = getattr(flow, job.weights_dtype)
        self._ahead = self._records()

    def _next(self):
        pixels, labels = self._ahead
        pixels[0, 0, 0, 0].item()  # waits until it is there: the next one is not enqueued yet
        batch = {"images": self._placed(pixels.to(self._dtype)), "labels": self._placed(labels)}
        self._ahead = self._records()
        return batch

    def _placed(self, tensor):
        return of_all_ranks(tensor.to(self._device))


def pixels(job):
    runtime.configure(job, Ranks())
    records = Records(job._replace(batch_size=1), Ranks(), training=False)
    while True:
        image, label = records()
        yield image[0].numpy(), label.item()
