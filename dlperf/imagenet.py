"""Prepares images for ResNet: `python -m dlperf.data imagenet --source DIR --output DIR --format folder,tfrecord`.

The files that come out are described in `dlperf.models.images`. Every image is decoded once, here: a broken one is left
out, counted and named, so that none stops a run. JPEG files in RGB are kept byte for byte; what is none (PNG, CMYK,
grey) or has an orientation for viewers, which decoders heed or don't, is encoded anew. Records come in a random order
that the seed chooses, since they are read one after the other; the index of folders is in the order of names.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy

from dlperf.adapters import probe
from dlperf.errors import Problem, UsageError, did_you_mean, whole
from dlperf.models import images
from dlperf.models.parameters import random_state
from dlperf.preparing import Advance, aside, output_problems, stage

HELP = """\
Turns a folder of images, one subfolder for each class (as ImageNet's train), into the files that the frameworks'
loaders read. A broken image is left out and named.
"""
#: tags of EXIF
ORIENTATION = 0x0112
QUALITY = 95
#: images that were left out, named in dataset.json
NAMED = 100


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked."""

    source: Path
    output: Path
    formats: tuple[str, ...]
    shards: int = 16
    seed: int = 1


class Found(NamedTuple):
    """A file of the source: its class's number and its path relative to the source."""

    label: int
    path: str


class Seen(NamedTuple):
    """What came of looking at a file: why it is left out, or the JPEG to keep (None: the file itself)."""

    wrong: str = ""
    jpeg: bytes | None = None


def add_to(kinds: Any) -> None:
    """The subcommands `imagenet` and `photos`."""
    made = kinds.add_parser("imagenet", help="images for ResNet from a folder of classes", description=HELP)
    made.add_argument("--source", required=True, metavar="DIR", type=Path, help="folder with one subfolder per class")
    made.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    made.add_argument(
        "--format", default="folder", metavar="F,...", help=f"{', '.join(images.FORMATS)}; default: folder"
    )
    made.add_argument("--shards", default="16", metavar="N", help="files of a record format (default: 16)")
    made.add_argument("--seed", default="1", metavar="N", help="of the order of records (default: 1)")
    made.add_argument("--quiet", action="store_true", help="print errors only")
    made.set_defaults(run=lambda asked: prepare(options(asked), asked.quiet))
    drawn = kinds.add_parser("photos", help="a small source of drawn JPEG files, for trying things out")
    drawn.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    drawn.add_argument("--classes", default="8", metavar="N", help="subfolders (default: 8)")
    drawn.add_argument("--per-class", default="16", metavar="N", help="images in each (default: 16)")
    drawn.add_argument("--seed", default="1", metavar="N", help="of what is drawn (default: 1)")
    drawn.set_defaults(run=draw_asked)


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen from the names of files."""
    problems: list[Problem] = []
    formats = tuple(dict.fromkeys(one.strip() for one in asked.format.split(",") if one.strip()))
    for one in formats or [asked.format]:
        if one not in images.FORMATS:
            problems.append(Problem("--format", one, ", ".join(images.FORMATS), did_you_mean(one, images.FORMATS)))
    shards = _whole("--shards", asked.shards, 1, problems)
    seed = _whole("--seed", asked.seed, 0, problems)
    problems += _source_problems(asked.source) + output_problems(asked.output, "--source", asked.source)
    if problems:
        raise UsageError(problems)
    return Options(asked.source, asked.output, formats, shards, seed)


def _whole(flag: str, text: str, least: int, problems: list[Problem]) -> int:
    number = whole(text, least)
    if number is None:
        problems.append(Problem(flag, text, f"a whole number, {least} or more"))
    return least if number is None else number


def _source_problems(source: Path) -> list[Problem]:
    allowed = "a folder with one subfolder of images for each class"
    if not source.is_dir():
        return [Problem("--source", source, allowed, "This is a file." if source.exists() else "It does not exist.")]
    classes = classes_of(source)
    if not classes:
        return [Problem("--source", source, allowed, "It has no subfolders.")]
    if set(classes) == {"train", "val"}:
        return [Problem("--source", source, allowed, f"Name {source / 'train'}.")]
    empty = [name for name in classes if not any(one.is_file() for one in os.scandir(source / name))]
    return [
        Problem("--source", source / name, "a class with images", "It is empty: fill it, or remove it.")
        for name in empty
    ]


def classes_of(source: Path) -> list[str]:
    """Names of the classes, in the order of their labels."""
    return sorted(one.name for one in os.scandir(source) if one.is_dir() and not one.name.startswith("."))


def find(source: Path, classes: Sequence[str]) -> list[Found]:
    """Every file of every class, in the order of names."""
    return [
        Found(label, f"{name}/{one}")
        for label, name in enumerate(classes)
        for one in sorted(entry.name for entry in os.scandir(source / name) if entry.is_file())
        if not one.startswith(".")
    ]


def look(file: str) -> Seen:
    """Decode an image. Its JPEG is given back only if the file cannot be kept as it is."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            image.load()
            # not grey: OneFlow's decoder takes three channels for granted, and reads on behind the image
            plain = image.format == "JPEG" and image.mode == "RGB"
            if plain and image.getexif().get(ORIENTATION, 1) == 1:
                return Seen()
            encoded = io.BytesIO()
            image.convert("RGB").save(encoded, "JPEG", quality=QUALITY)
            return Seen(jpeg=encoded.getvalue())
    except Exception as error:  # Pillow's readers raise whatever they meet in a damaged file
        return Seen(wrong=str(error).replace(file, "").strip(" :'") or type(error).__name__)


def prepare(options: Options, quiet: bool = False) -> dict[str, Any]:
    """Makes the data folder and returns what its dataset.json says; whole, or not at all.

    UsageError for a source that will not do, RunError when files cannot be written.
    """
    begin = time.monotonic()
    with aside(options.output) as folder:
        description = _prepare_in(folder, options, quiet)
    if not quiet:
        _summary(description, options.output, time.monotonic() - begin)
    return description


def _prepare_in(data: Path, options: Options, quiet: bool) -> dict[str, Any]:
    classes = classes_of(options.source)
    everything = find(options.source, classes)
    kept: list[Found] = []
    anew: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    with stage("look", len(everything), quiet) as advance, ProcessPoolExecutor(probe.machine_cpus()) as pool:
        seen = pool.map(look, (str(options.source / one.path) for one in everything), chunksize=64)
        for one, what in zip(everything, seen, strict=True):
            if what.wrong:
                left_out[one.path] = what.wrong
            else:
                kept.append(one)
                if what.jpeg is not None:
                    anew[one.path] = what.jpeg
            advance(1)
    _check_classes(options.source, classes, kept, left_out)

    def jpeg(one: Found) -> bytes:
        return anew[one.path] if one.path in anew else (options.source / one.path).read_bytes()

    order = random_state(options.seed, "order of records").permutation(len(kept))
    shuffled = [kept[index] for index in order]
    formats = {}
    for name in options.formats:
        (data / name).mkdir()
        with stage(name, len(kept), quiet) as advance:
            WRITERS[name](data / name, kept if name == "folder" else shuffled, jpeg, options.shards, advance)
        written = sorted(one for one in (data / name).iterdir() if one.is_file())
        formats[name] = {one.name: one.stat().st_size for one in written}
    description = {
        "format": images.FORMAT,
        "version": images.VERSION,
        "images": len(kept),
        "classes": classes,
        "formats": formats,
        "seed": options.seed,
        "encoded_anew": len(anew),
        "left_out": len(left_out),
        "left_out_files": dict(list(left_out.items())[:NAMED]),
    }
    (data / images.DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", "utf-8")
    return description


def _check_classes(source: Path, classes: Sequence[str], kept: Sequence[Found], left_out: Mapping[str, str]) -> None:
    count = Counter(one.label for one in kept)
    problems = []
    for label, name in enumerate(classes):
        if not count[label]:
            file, why = next(((path, why) for path, why in left_out.items() if path.startswith(name + "/")), ("", ""))
            step = f"None of its files is one; {file}: {why}." if file else "It has no files."
            problems.append(Problem("--source", source / name, "a class with images", step))
    if problems:
        raise UsageError(problems)


def _summary(description: Mapping[str, Any], output: Path, seconds: float) -> None:
    left_out = description["left_out"]
    print(
        f"{output}: {description['images']:,} images of {len(description['classes'])} classes as "
        f"{', '.join(description['formats'])} in {seconds:.1f} s; {description['encoded_anew']:,} encoded anew, "
        f"{left_out:,} left out"
    )
    for file, why in list(description["left_out_files"].items())[:10]:
        print(f"  left out: {file}: {why}")
    if left_out > 10:
        print(f"  the first {min(left_out, NAMED)} are named in {output / images.DESCRIPTION}")


# --- the formats ----------------------------------------------------------------------------------------------------

Jpeg = Callable[[Found], bytes]


def _write_folder(folder: Path, found: Sequence[Found], jpeg: Jpeg, shards: int, advance: Advance) -> None:
    lines = []
    for one in found:
        # a decoder need not look at the name, but some readers list *.jpg only
        path = Path(one.path)
        name = one.path if path.suffix.lower() in (".jpg", ".jpeg") else f"{one.path}.jpg"
        (folder / name).parent.mkdir(exist_ok=True)
        content = jpeg(one)
        (folder / name).write_bytes(content)
        lines.append(f"{name}\t{one.label}\t{len(content)}\n")
        advance(1)
    (folder / images.INDEX).write_text("".join(lines), "utf-8")


def _write_tfrecord(folder: Path, found: Sequence[Found], jpeg: Jpeg, shards: int, advance: Advance) -> None:
    shards = min(shards, len(found))
    for shard in range(shards):
        name = f"train-{shard:05d}-of-{shards:05d}"
        with open(folder / name, "wb") as records, open(folder / f"{name}.idx", "w", encoding="ascii") as index:
            for one in found[shard::shards]:
                example = tf_example(jpeg(one), one.label, os.path.basename(one.path))
                index.write(f"{records.tell()} {len(example) + 16}\n")
                tf_record(records, example)
                advance(1)


def _write_recordio(folder: Path, found: Sequence[Found], jpeg: Jpeg, shards: int, advance: Advance) -> None:
    with open(folder / "train.rec", "wb") as records, open(folder / "train.idx", "w", encoding="ascii") as index:
        for number, one in enumerate(found):
            index.write(f"{number}\t{records.tell()}\n")
            header = struct.pack("<IfQQ", 0, float(one.label), number, 0)  # flag, label, id, second id
            recordio(records, header + jpeg(one))
            advance(1)


def _write_ofrecord(folder: Path, found: Sequence[Found], jpeg: Jpeg, shards: int, advance: Advance) -> None:
    shards = min(shards, len(found))
    for shard in range(shards):
        with open(folder / f"part-{shard:05d}", "wb") as records:
            for one in found[shard::shards]:
                record = of_record(jpeg(one), one.label)
                records.write(struct.pack("<q", len(record)) + record)
                advance(1)


WRITERS: dict[str, Callable[[Path, Sequence[Found], Jpeg, int, Advance], None]] = {
    "folder": _write_folder,
    "tfrecord": _write_tfrecord,
    "recordio": _write_recordio,
    "ofrecord": _write_ofrecord,
}


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _feature(key: str, kind: int, value: bytes) -> bytes:
    """An entry of map<string, Feature>, whose value is a list with one value, of the kind's field number."""
    return _field(1, _field(1, key.encode()) + _field(2, _field(kind, _field(1, value))))


def tf_example(jpeg: bytes, label: int, name: str) -> bytes:
    """A tf.train.Example; labels count from 1, as in TensorFlow's ImageNet. BytesList is field 1, Int64List 3."""
    features = _feature("image/encoded", 1, jpeg)
    features += _feature("image/class/label", 3, _varint(label + 1))
    features += _feature("image/filename", 1, name.encode())
    return _field(1, features)


def tf_record(stream: IO[bytes], content: bytes) -> None:
    """length, its checksum, the content, its checksum; tensorflow.org/tutorials/load_data/tfrecord."""
    length = struct.pack("<Q", len(content))
    stream.write(length + _masked_crc(length) + content + _masked_crc(content))


def _masked_crc(content: bytes) -> bytes:
    import google_crc32c

    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def of_record(jpeg: bytes, label: int) -> bytes:
    """OneFlow's OFRecord: a map of features. BytesList is field 1, Int32List 4."""
    return _feature("encoded", 1, jpeg) + _feature("class/label", 4, _varint(label))


MAGIC = 0xCED7230A


def recordio(stream: IO[bytes], content: bytes) -> None:
    """dmlc-core's RecordIO: magic, kind (upper 3 bits) and length, content, padded to 4 bytes.

    Where the content itself has the magic at a multiple of 4, it is left out there and the record written in parts:
    kind 1 for the first, 2 for those between, 3 for the last; else 0.
    """
    words = numpy.frombuffer(content[: len(content) // 4 * 4], "<u4")
    ends = [4 * int(index) for index in numpy.flatnonzero(words == MAGIC)]
    parts = [content[begin:end] for begin, end in zip([0, *(end + 4 for end in ends)], [*ends, None], strict=True)]
    for number, part in enumerate(parts):
        kind = 0 if len(parts) == 1 else 1 if number == 0 else 3 if number == len(parts) - 1 else 2
        stream.write(struct.pack("<II", MAGIC, kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4))


# --- a source for tests ---------------------------------------------------------------------------------------------

#: (height, width): scaling the shorter side to 224 or 64 makes the longer one whole and even, so that a loader that
#: scales first and cuts afterwards gives the same pixels
SIZES = ((256, 256), (256, 320), (384, 256), (512, 640), (256, 384))


def draw_asked(asked: argparse.Namespace) -> None:
    problems: list[Problem] = []
    classes, per_class = (
        _whole(f, v, 1, problems) for f, v in (("--classes", asked.classes), ("--per-class", asked.per_class))
    )
    seed = _whole("--seed", asked.seed, 0, problems)
    if asked.output.exists():
        problems.append(Problem("--output", asked.output, "a folder that does not exist yet", "Choose another one."))
    if problems:
        raise UsageError(problems)
    draw(asked.output, classes, per_class, seed)
    print(f"{asked.output}: {classes * per_class} images of {classes} classes")


def draw(output: Path, classes: int, per_class: int, seed: int = 1) -> None:
    """Folders class000, class001 ... of JPEG files: soft shapes and fine grain, as photographs have them."""
    number = 0
    for label in range(classes):
        folder = output / f"class{label:03d}"
        folder.mkdir(parents=True)
        for index in range(per_class):
            height, width = SIZES[number % len(SIZES)]
            _picture(random_state(seed, f"photo {number}"), height, width).save(
                folder / f"image{index:04d}.jpg", "JPEG", quality=90
            )
            number += 1


def _picture(generator: Any, height: int, width: int) -> Any:
    from PIL import Image

    coarse = Image.fromarray(generator.randint(0, 256, (8, 8, 3)).astype("uint8"))
    soft = numpy.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), "int16")
    return Image.fromarray(numpy.clip(soft + generator.normal(0, 6, (height, width, 1)), 0, 255).astype("uint8"))
