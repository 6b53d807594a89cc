"""Photographs as ResNet's input: prepared folders of JPEG files, and what every loader makes of one.

A data folder, as `python -m dlperf.data imagenet` writes it:

    dataset.json         what it is: the keys of KEYS, the names of the classes, and the files of each format
    folder/<class>/*     the JPEG files, and folder/index.tsv: class/file, label, bytes; one line each, in their order
    tfrecord/*           TFRecord files of tf.train.Example, with keys as TensorFlow's ImageNet has them: image/encoded,
                         image/class/label (from 1); beside each an .idx of "offset bytes" lines, which DALI reads
    recordio/train.rec   MXNet's RecordIO, packed by its IRHeader (label from 0), with train.idx
    ofrecord/part-*      OneFlow's OFRecord: keys encoded, class/label (from 0)

A format is there if it was asked for. The bytes of a JPEG are the same in all of them.

For training, a loader decodes a JPEG to RGB (accurate integer DCT, interpolated chroma), cuts out a random part (8 to
100 % of the area, sides 3:4 to 4:3; Szegedy et al. 2014, as torchvision's RandomResizedCrop), scales it to the model's
size, mirrors every second one, subtracts MEAN and divides by DEVIATION. For checking, the part is the largest square in
the middle, and nothing is mirrored. Scaling is bilinear between the pixels' centres, without smoothing: the one way
that all frameworks' loaders have.
"""

import json
import math
import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dlperf.models.resnet import Config

FORMAT = "dlperf-images"
VERSION = 1
DESCRIPTION = "dataset.json"
INDEX = "index.tsv"
KEYS = ("images", "classes", "formats")
FORMATS = ("folder", "tfrecord", "recordio", "ofrecord")

#: of pixels from 0 to 255, red, green, blue: torchvision's values for ImageNet, times 255
MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

COMMAND = "python -m dlperf.data imagenet"
PREPARE = f"Prepare a folder with `{COMMAND} --source DIR --output DIR`"


def describe(data_dir: str) -> Dict[str, Any]:
    """What dataset.json says, as a dict. ValueError, one sentence, when the folder is not one that we can read."""
    file = os.path.join(data_dir, DESCRIPTION)
    try:
        with open(file, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file}: cannot be read as JSON ({str(error).splitlines()[0]}). {PREPARE}.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{file}: is not of prepared images. {PREPARE}.")
    if found.get("version") != VERSION or any(key not in found for key in KEYS):
        raise ValueError(f"{file}: is of version {found.get('version')}, this dlperf reads {VERSION}. {PREPARE} again.")
    wrong = [key for key in KEYS if not _is(key, found[key])]
    if wrong:
        raise ValueError(f"{file}: {wrong[0]} is {found[wrong[0]]!r:.60}, which was never written. {PREPARE} again.")
    return found


def _is(key: str, value: Any) -> bool:
    """Whether dataset.json may have that value: so many images, names of classes, sizes of each format's files."""
    if key == "images":
        return _is_count(value)
    if key == "classes":
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, dict) and all(
        isinstance(sizes, dict) and all(map(_is_count, sizes.values())) and (format != "folder" or INDEX in sizes)
        for format, sizes in value.items()
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def formats(data_dir: str) -> List[str]:
    """Those that a folder has; none if it cannot be read, for which `check` has the reason."""
    try:
        return [one for one in FORMATS if one in describe(data_dir)["formats"]]
    except ValueError:
        return []


def check(data_dir: str, config: "Config", global_batch_size: int, formats: Sequence[str]) -> List[str]:
    """What keeps a model from training on a folder, from any of these formats: a list of sentences, empty if nothing.
    Looks at names and sizes only."""
    try:
        found = describe(data_dir)
    except ValueError as error:
        return [str(error)]
    problems = []
    if len(found["classes"]) > config.classes:
        problems.append(f"{data_dir}: has {len(found['classes'])} classes, the model {config.classes}.")
    if found["images"] < global_batch_size:
        needed = f"fewer than the {global_batch_size} of one global batch"
        problems.append(f"{data_dir}: has {found['images']} images, {needed}.")
    for format in formats:
        if format in found["formats"]:
            problems += _changed(data_dir, found, format)
        else:
            there = ", ".join(sorted(found["formats"]))
            problems.append(f"{data_dir}: has no {format}; there is {there}. {PREPARE} --format {format}.")
    return problems


def _changed(data_dir: str, found: Dict[str, Any], format: str) -> List[str]:
    """The first file that is not as it was written."""
    sizes = found["formats"][format]
    files = list(sizes.items())
    if format == "folder":
        index = os.path.join(data_dir, format, INDEX)
        if os.path.exists(index) and os.path.getsize(index) == sizes[INDEX]:
            try:
                files += [(one.path, one.bytes) for one in read_index(data_dir)]
            except ValueError as error:
                return [f"{index}: is not what was written ({error}). {PREPARE} again."]
    for name, size in files:
        file = os.path.join(data_dir, format, name)
        try:
            now = os.path.getsize(file)
        except (OSError, ValueError):  # a name that no file can have
            return [f"{file}: is missing. {PREPARE} again."]
        if now != size:
            return [f"{file}: has {now} bytes, and had {size} when it was written. {PREPARE} again."]
    return []


class Photo:
    """One line of the index: path, relative to folder/; label; bytes of the file."""

    __slots__ = ("bytes", "label", "path")

    def __init__(self, path: str, label: int, size: int):
        self.path, self.label, self.bytes = path, label, size


def read_index(data_dir: str) -> List[Photo]:
    """The images of the format "folder", in their order."""
    with open(os.path.join(data_dir, "folder", INDEX), encoding="utf-8") as stream:
        lines = [line.rstrip("\n").split("\t") for line in stream]
    return [Photo(path, int(label), int(size)) for path, label, size in lines]


def files(data_dir: str, format: str) -> List[str]:
    """Paths of the record files of a format, in their order."""
    names = [name for name in describe(data_dir)["formats"][format] if not name.endswith(".idx")]
    return [os.path.join(data_dir, format, name) for name in sorted(names)]


def random_part(random: Any, height: int, width: int) -> Tuple[int, int, int, int]:
    """A random part of an image, as torchvision's RandomResizedCrop draws it: top, left, height, width.

    random: a numpy RandomState or Generator (`uniform` is all that is used).
    """
    for _ in range(TRIES):
        area = height * width * random.uniform(*AREA)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(random.uniform(0, height - h + 1)), int(random.uniform(0, width - w + 1)), h, w
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (height - h) // 2, (width - w) // 2, h, w


def middle_part(height: int, width: int) -> Tuple[int, int, int, int]:
    """The largest square in the middle: top, left, height, width."""
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def normalised(pixels: "ArrayLike") -> "NDArray[Any]":
    """float32 of pixels from 0 to 255 whose last axis is red, green, blue."""
    import numpy

    mean, deviation = numpy.array(MEAN, "float32"), numpy.array(DEVIATION, "float32")
    found: NDArray[Any] = (numpy.asarray(pixels, "float32") - mean) / deviation
    return found
