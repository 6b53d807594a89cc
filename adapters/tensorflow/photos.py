"""ResNet's images in TensorFlow: tf.data over TFRecord files or a folder, all in its own threads; or DALI's dataset."""

import os

import tensorflow as tf

from dlperf import models
from dlperf.adapters import base, dali
from dlperf.adapters.ranks import Ranks
from dlperf.models import photos

EXAMPLE = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}
#: records among which the next one is drawn; they lie in a random order already
SHUFFLED = 1024
#: record files that are read in turn
OPEN_FILES = 8


class Loader(base.Loader):
    def __init__(self, job, ranks):
        native = f"tf.data over {job.format}, {job.threads} threads"
        super().__init__(job, dali.describe(job) if job.input == "dali" else native)
        self.device = "/GPU:0" if job.device == "cuda" else "/CPU:0"
        self._dtype = job.weights_dtype
        size = models.config(job.model).image_size
        if job.input == "dali":
            with tf.device(self.device):
                self._batches = iter(dali_batches(job, ranks, size))
        else:
            self._batches = iter(native_batches(job, ranks, size))

    def _next(self):
        pixels, labels = next(self._batches)
        with tf.device(self.device):
            return {"images": tf.cast(pixels, self._dtype), "labels": tf.reshape(labels, [-1])}


def native_batches(job, ranks, size):
    dataset = samples(job, ranks, training=True)
    dataset = dataset.map(to_image(size, random_part, mirrored=True), num_parallel_calls=job.threads)
    dataset = dataset.ignore_errors(log_warning=True)  # a broken image is left out; the log says so
    dataset = dataset.batch(job.batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.threads  # the pool of the step has one
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    dataset = dataset.with_options(options)
    if job.device == "cuda":
        return dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
    return dataset.prefetch(2)


def samples(job, ranks, training):
    """(bytes of a JPEG, label from 0) of this rank's part; in training shuffled and endless."""
    if job.format == "folder":
        index = photos.read_index(job.data_dir)
        paths = [os.path.join(job.data_dir, "folder", one.path) for one in index]
        dataset = tf.data.Dataset.from_tensor_slices((paths, [one.label for one in index]))
        dataset = dataset.shard(ranks.world_size, ranks.rank)
        if training:
            dataset = dataset.shuffle(len(index), job.seed).repeat()
        return dataset.map(quiet(lambda path, label: (tf.io.read_file(path), label)), tf.data.AUTOTUNE)
    files = photos.files(job.data_dir, job.format)
    dataset = tf.data.Dataset.from_tensor_slices(files)
    whole_files = len(files) % ranks.world_size == 0
    if whole_files:
        dataset = dataset.shard(ranks.world_size, ranks.rank)
    if training:
        dataset = dataset.shuffle(len(files), job.seed)
    dataset = dataset.interleave(tf.data.TFRecordDataset, OPEN_FILES, num_parallel_calls=tf.data.AUTOTUNE)
    if not whole_files:
        dataset = dataset.shard(ranks.world_size, ranks.rank)
    if training:
        dataset = dataset.shuffle(SHUFFLED, job.seed).repeat()
    return dataset.map(quiet(from_example))


# autograph has nothing to convert here, and would leave a file behind for each function
quiet = tf.autograph.experimental.do_not_convert


def from_example(record):
    with tf.name_scope("input"):
        found = tf.io.parse_single_example(record, EXAMPLE)
        return found["image/encoded"], tf.cast(found["image/class/label"], tf.int32) - 1


def to_image(size, part, mirrored):
    """(jpeg, label) -> float32 (size, size, 3), normalised, and the label."""

    @quiet
    def convert(jpeg, label):
        with tf.name_scope("input"):
            window = part(tf.image.extract_jpeg_shape(jpeg))
            # decodes no more than it must
            pixels = tf.image.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method="INTEGER_ACCURATE")
            if mirrored:
                pixels = tf.image.random_flip_left_right(pixels)
            pixels = tf.image.resize(pixels, [size, size], method="bilinear", antialias=False)
            return (pixels - photos.MEAN) / photos.DEVIATION, label

    return convert


AUGMENTATION = (
    "tf.image.sample_distorted_bounding_box, which draws the ratio and a side evenly, not the area and the ratio's "
    "logarithm: the part of a square has 40 % of it on average, elsewhere 48 %"
)


def random_part(shape):
    """As Google's ResNet draws it: top, left, height, width."""
    begin, length, _ = tf.image.sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([1, 0, 4]),
        use_image_if_no_bounding_boxes=True,
        min_object_covered=photos.AREA[0],
        aspect_ratio_range=photos.RATIO,
        area_range=photos.AREA,
        max_attempts=photos.TRIES,
    )
    return tf.concat([begin[:2], length[:2]], 0)


def middle_part(shape):
    side = tf.reduce_min(shape[:2])
    return tf.concat([(shape[:2] - side) // 2, [side, side]], 0)


def dali_batches(job, ranks, size, training=True):
    from nvidia.dali.plugin.tf import DALIDataset

    return DALIDataset(
        dali.pipeline(job, ranks, size, "HWC", training),
        output_dtypes=(tf.float32, tf.int32),
        output_shapes=((job.batch_size, size, size, 3), (job.batch_size, 1)),
        batch_size=job.batch_size,
        num_threads=job.threads,
        device_id=ranks.local_rank if job.device == "cuda" else None,
    )


def pixels(job):
    size = models.config(job.model).image_size
    if job.input == "dali":
        with tf.device("/CPU:0"):
            dataset = dali_batches(job._replace(batch_size=1), Ranks(), size, training=False)
    else:
        dataset = samples(job, Ranks(), training=False).map(to_image(size, middle_part, mirrored=False)).batch(1)
    for found, labels in dataset:
        yield found.numpy()[0].transpose(2, 0, 1), int(labels.numpy().flat[0])
