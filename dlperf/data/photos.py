"""Prepares images for ResNet: `python -m dlperf.data imagenet --source DIR --output DIR --format folder,tfrecord`.

The files that come out are described in `dlperf.models.photos`. Every image is decoded once, here: a broken one is left
out, counted and named, so that none stops a run. JPEG files in RGB are kept byte for byte; what is none (PNG, CMYK,
grey) or has an orientation for viewers, which decoders heed or don't, is re-encoded. Records come in a random order
that the seed chooses, since they are read one after the other; the index of folders is in the order of names.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from dlperf import models, processes
from dlperf.adapters import probe
from dlperf.data.folder import aside, output_problems, stage
from dlperf.data.formats import WRITERS, Found, jpeg_name
from dlperf.errors import Problem, RunError, UsageError, did_you_mean, shown, unprintable, whole_number
from dlperf.models import photos
from dlperf.models.parameters import random_state
from dlperf.words import count

HELP = """\
Turns a folder of images, one subfolder for each class (as ImageNet's train), into the files that the frameworks'
loaders read. A broken image is left out and named.
"""
#: tags of EXIF
ORIENTATION = 0x0112
QUALITY = 95
#: images that were left out, named in dataset.json
NAMED = 100
#: what the largest model that reads images has; with more, no comparison would take the folder
MOST_CLASSES = max(
    config.classes
    for family in models.FAMILIES.values()
    if family.INPUT == "photos"
    for config in family.SIZES.values()
)
#: bytes that file systems allow
LONGEST_NAME = 255


@dataclass(frozen=True)
class Options:
    """What `prepare` needs, all of it checked."""

    source: Path
    output: Path
    formats: tuple[str, ...]
    shards: int = 16
    seed: int = 1


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
        "--format", default="folder", metavar="F,...", help=f"{', '.join(photos.FORMATS)}; default: folder"
    )
    made.add_argument("--shards", default="16", metavar="N", help="files of a record format (default: 16)")
    made.add_argument("--seed", default="1", metavar="N", help="of the order of records (default: 1)")
    made.add_argument("--quiet", action="store_true", help="print errors only")
    made.set_defaults(run=lambda asked: prepare(options(asked), asked.quiet))
    drawn = kinds.add_parser("photos", help="a small source of drawn JPEG files, for trying things out")
    drawn.add_argument("--output", required=True, metavar="DIR", type=Path, help="folder to make; must not exist yet")
    drawn.add_argument("--classes", default="8", metavar="N", help="subfolders (default: 8)")
    drawn.add_argument("--per-class", default="16", metavar="N", help="images in each (default: 16)")
    drawn.add_argument("--size", metavar="N", help="height and width: 32 as CIFAR-10's (default: several, 256 to 640)")
    drawn.add_argument("--seed", default="1", metavar="N", help="of what is drawn (default: 1)")
    drawn.set_defaults(run=draw_asked)


def options(asked: argparse.Namespace) -> Options:
    """Checked options. UsageError with everything that is wrong and can be seen from the names of files."""
    problems: list[Problem] = []
    formats = tuple(dict.fromkeys(one.strip() for one in asked.format.split(",") if one.strip()))
    for one in formats or [asked.format]:
        if one not in photos.FORMATS:
            problems.append(Problem("--format", one, ", ".join(photos.FORMATS), did_you_mean(one, photos.FORMATS)))
    shards = _whole("--shards", asked.shards, 1, 100_000, problems)
    seed = _whole("--seed", asked.seed, 0, 2**32 - 1, problems)
    problems += _source_problems(asked.source) + output_problems(asked.output, "--source", asked.source)
    if problems:
        raise UsageError(problems)
    return Options(asked.source, asked.output, formats, shards, seed)


def _whole(flag: str, text: str, least: int, most: int, problems: list[Problem]) -> int:
    number = whole_number(text, least, most)
    if number is None:
        problems.append(Problem(flag, text, f"a whole number from {least} to {most:,}"))
    return least if number is None else number


def _source_problems(source: Path) -> list[Problem]:
    step = "Name a folder with one subfolder of images for each class."
    if not source.is_dir():
        what = "this is a file" if source.exists() else "there is no such folder"
        return [Problem("--source", source, says=f"{what}. {step}")]
    classes = classes_of(source)
    if not classes:
        return [Problem("--source", source, says=f"it has no subfolders. {step}")]
    if set(classes) == {"train", "val"}:
        return [Problem("--source", source, says=f"train and val are no classes. Name {source / 'train'}.")]
    if len(classes) > MOST_CLASSES:
        says = f"it has {len(classes)} subfolders; models have at most {MOST_CLASSES} classes. Remove some."
        return [Problem("--source", source, says=says)]
    wrong = {name: _wrong_class(source / name) for name in classes}
    return [Problem("--source", shown(str(source / name)), says=says) for name, says in wrong.items() if says]


def _wrong_class(folder: Path) -> str:
    if why := unprintable(folder.name):
        return f"the name of this class {why}. Rename it."
    if folder.name == photos.INDEX:
        return "this name is that of the index, which is written beside the classes. Rename this class."
    if not folder.exists():
        return "this link leads nowhere. Mend it or remove it."
    try:
        empty = not any(map(os.path.isfile, os.scandir(folder)))
    except OSError as error:
        return f"this class cannot be read: {error.strerror}."
    return "this class is empty. Fill it or remove it." if empty else ""


def classes_of(source: Path) -> list[str]:
    """Names of the classes, in the order of their labels; links that lead nowhere count."""
    return sorted(
        one.name
        for one in os.scandir(source)
        if not one.name.startswith(".") and (os.path.isdir(one) or not os.path.exists(one))
    )


def find(source: Path, classes: Sequence[str]) -> tuple[list[Found], dict[str, str]]:
    """Every file of every class, in the order of names; and those left out for what they are called, or for being no
    files, with the reason."""
    found: list[Found] = []
    left_out: dict[str, str] = {}
    for label, name in enumerate(classes):
        entries = {one.name: one for one in os.scandir(source / name) if not one.name.startswith(".")}
        for file in sorted(entries):
            why = _wrong_file(entries, file)
            if why:
                left_out[f"{name}/{shown(file)}"] = why
            else:
                found.append(Found(label, f"{name}/{file}"))
    return found, left_out


def _wrong_file(entries: Mapping[str, os.DirEntry[str]], file: str) -> str:
    """Why an entry of a class is left out, whatever is in it; the same whatever formats are made."""
    if not os.path.isfile(entries[file]):
        return "it is no file, or a link that leads nowhere"
    if why := unprintable(file):
        return f"its name {why}"
    name = jpeg_name(file)
    if name != file and name in entries:
        return f"it would become {name}, which is there too"
    return f"its name is too long for {name[len(file) :]}" if len(name.encode()) > LONGEST_NAME else ""


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


@contextmanager
def _lookers() -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, however it ends; what they have not begun is dropped when something is raised.
    RunError where one is killed."""
    pool = ProcessPoolExecutor(probe.machine_cpus(), initializer=processes.begin)
    try:
        yield pool
    except BrokenProcessPool:
        why = "a process that decodes images was killed, perhaps for lack of memory (dmesg tells). Nothing was kept."
        raise RunError("killed", why) from None
    finally:
        pool.shutdown(cancel_futures=True)


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
    everything, left_out = find(options.source, classes)
    kept: list[Found] = []
    reencoded: dict[str, bytes] = {}
    with stage("look", len(everything), quiet) as advance, _lookers() as pool:
        seen = pool.map(look, (str(options.source / one.path) for one in everything), chunksize=64)
        for one, what in zip(everything, seen, strict=True):
            if what.wrong:
                left_out[one.path] = what.wrong
            else:
                kept.append(one)
                if what.jpeg is not None:
                    reencoded[one.path] = what.jpeg
            advance(1)
    _check_classes(options.source, classes, kept, left_out)

    def jpeg(one: Found) -> bytes:
        return reencoded[one.path] if one.path in reencoded else (options.source / one.path).read_bytes()

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
        "format": photos.FORMAT,
        "version": photos.VERSION,
        "images": len(kept),
        "classes": classes,
        "formats": formats,
        "seed": options.seed,
        "reencoded": len(reencoded),
        "left_out": len(left_out),
        "left_out_files": dict(list(left_out.items())[:NAMED]),
    }
    (data / photos.DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", "utf-8")
    return description


def _check_classes(source: Path, classes: Sequence[str], kept: Sequence[Found], left_out: Mapping[str, str]) -> None:
    count = Counter(one.label for one in kept)
    problems = []
    for label, name in enumerate(classes):
        if not count[label]:
            file, why = next(((path, why) for path, why in left_out.items() if path.startswith(name + "/")), ("", ""))
            says = f"none of its files is an image; {file}: {why}." if file else "it has no files."
            problems.append(Problem("--source", source / name, says=says))
    if problems:
        raise UsageError(problems)


def _summary(description: Mapping[str, Any], output: Path, seconds: float) -> None:
    left_out = description["left_out"]
    print(
        f"{output}: {count(description['images'], 'image')} of {count(len(description['classes']), 'class')} as "
        f"{', '.join(description['formats'])} in {seconds:.1f} s; {description['reencoded']:,} re-encoded, "
        f"{left_out:,} left out"
    )
    for file, why in list(description["left_out_files"].items())[:10]:
        print(f"  left out: {file}: {why}")
    if left_out > 10:
        print(f"  the first {min(left_out, NAMED)} are named in {output / photos.DESCRIPTION}")


#: (height, width): scaling the shorter side to 224 or 64 makes the longer one whole and even, so that a loader that
#: scales first and cuts afterwards gives the same pixels
SIZES = ((256, 256), (256, 320), (384, 256), (512, 640), (256, 384))


def draw_asked(asked: argparse.Namespace) -> None:
    problems: list[Problem] = []
    classes = _whole("--classes", asked.classes, 1, MOST_CLASSES, problems)
    per_class = _whole("--per-class", asked.per_class, 1, 10_000, problems)
    side = None if asked.size is None else _whole("--size", asked.size, 8, 4096, problems)
    seed = _whole("--seed", asked.seed, 0, 2**32 - 1, problems)
    if asked.output.exists():
        problems.append(Problem("--output", asked.output, says="it exists already. Choose another folder."))
    if problems:
        raise UsageError(problems)
    with aside(asked.output) as folder:
        draw(folder, classes, per_class, seed, [(side, side)] if side else SIZES)
    print(f"{asked.output}: {count(classes * per_class, 'image')} of {count(classes, 'class')}")


def draw(output: Path, classes: int, per_class: int, seed: int = 1, sizes: Sequence[tuple[int, int]] = SIZES) -> None:
    """Folders class000, class001 ... of JPEG files: soft shapes and fine grain, as photographs have them. sizes: of
    them, (height, width), by turns."""
    number = 0
    for label in range(classes):
        folder = output / f"class{label:03d}"
        folder.mkdir(parents=True)
        for index in range(per_class):
            height, width = sizes[number % len(sizes)]
            _picture(random_state(seed, f"photo {number}"), height, width).save(
                folder / f"image{index:04d}.jpg", "JPEG", quality=90
            )
            number += 1


def _picture(generator: Any, height: int, width: int) -> Any:
    from PIL import Image

    coarse = Image.fromarray(generator.randint(0, 256, (8, 8, 3)).astype("uint8"))
    soft = numpy.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), "int16")
    return Image.fromarray(numpy.clip(soft + generator.normal(0, 6, (height, width, 1)), 0, 255).astype("uint8"))
