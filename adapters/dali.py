"""ResNet's images by NVIDIA DALI, for the frameworks that it has a plug-in for. What is done to an image stands in
dlperf.models.photos; on CUDA the GPU decodes, on the CPU DALI's threads do."""

from typing import Any, Iterator, Tuple

from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks
from dlperf.models import photos

DESCRIPTION = "DALI over {format}, {device}, {threads} threads"


def describe(job: Job) -> str:
    device = "decoded by the GPU" if job.device == "cuda" else "decoded by the CPU"
    return DESCRIPTION.format(format=job.format, device=device, threads=job.threads)


def pipeline(job: Job, ranks: Ranks, size: int, layout: str, training: bool = True) -> Any:
    """A DALI pipeline with two outputs: images, float32 in `layout` ("HWC" or "CHW"), normalised; labels, int32 from 0.

    Its reader is called "reader". On CUDA the outputs are on the GPU of this rank.
    """
    from nvidia.dali import fn, pipeline_def, types

    cuda = job.device == "cuda"

    @pipeline_def(  # type: ignore[misc]
        batch_size=job.batch_size,
        num_threads=job.threads,
        device_id=ranks.local_rank if cuda else None,
        seed=job.seed + ranks.rank,
    )
    def define() -> Tuple[Any, Any]:
        jpegs, labels = _read(fn, job, ranks, training)
        decoding = {"device": "mixed" if cuda else "cpu", "output_type": types.RGB, "jpeg_fancy_upsampling": True}
        if training:
            pixels = fn.decoders.image_random_crop(
                jpegs,
                random_area=list(photos.AREA),
                random_aspect_ratio=list(photos.RATIO),
                num_attempts=photos.TRIES,
                **decoding,
            )
        else:
            shape = fn.peek_image_shape(jpegs)
            side = fn.cast(fn.reductions.min(shape[0:2]), dtype=types.FLOAT)
            pixels = fn.crop(fn.decoders.image(jpegs, **decoding), crop_h=side, crop_w=side)
        pixels = fn.resize(pixels, resize_x=size, resize_y=size, interp_type=types.INTERP_LINEAR, antialias=False)
        pixels = fn.crop_mirror_normalize(
            pixels,
            dtype=types.FLOAT,
            output_layout=layout,
            mean=list(photos.MEAN),
            std=list(photos.DEVIATION),
            mirror=fn.random.coin_flip() if training else 0,
        )
        return pixels, labels.gpu() if cuda else labels

    return define()


def _read(fn: Any, job: Job, ranks: Ranks, training: bool) -> Any:
    """JPEG bytes and labels of this rank's part."""
    from nvidia.dali import tfrecord, types

    how = {"name": "reader", "shard_id": ranks.rank, "num_shards": ranks.world_size, "random_shuffle": training}
    if job.format == "folder":
        index = photos.read_index(job.data_dir or "")
        paths, labels = [one.path for one in index], [one.label for one in index]
        return fn.readers.file(file_root=job.data_dir + "/folder", files=paths, labels=labels, **how)  # type: ignore[operator]
    files = photos.files(job.data_dir or "", job.format)
    if job.format == "recordio":
        jpegs, labels = fn.readers.mxnet(path=files, index_path=[file[: -len("rec")] + "idx" for file in files], **how)
        return jpegs, fn.cast(labels, dtype=types.INT32)  # RecordIO has them as floats
    features = {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    read = fn.readers.tfrecord(path=files, index_path=[file + ".idx" for file in files], features=features, **how)
    return read["image/encoded"], fn.cast(read["image/class/label"] - 1, dtype=types.INT32)


def pixels(job: Job, size: int) -> Iterator[Tuple[Any, int]]:
    """For checking, without end: each image as `pipeline` gives it, float32 (size, size, 3), but of the middle part and
    not mirrored; and its label."""
    made = pipeline(job._replace(batch_size=1), Ranks(), size, "HWC", training=False)
    made.build()
    while True:
        found, labels = made.run()
        yield found.as_cpu().as_array()[0], labels.as_cpu().as_array().item()
