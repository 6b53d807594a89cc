"""Images as the frameworks' loaders read them: a folder, TFRecord, RecordIO, OFRecord."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy

from dlperf.data.folder import Advance
from dlperf.models import photos


class Found(NamedTuple):
    """A file of the source: its class's number and its path relative to the source."""

    label: int
    path: str


Jpeg = Callable[[Found], bytes]


def jpeg_name(name: str) -> str:
    """What a file is called in a folder: a decoder need not look at the name, but some readers list *.jpg only."""
    return name if Path(name).suffix.lower() in (".jpg", ".jpeg") else f"{name}.jpg"


def _write_folder(folder: Path, found: Sequence[Found], jpeg: Jpeg, shards: int, advance: Advance) -> None:
    lines = []
    for one in found:
        name = jpeg_name(one.path)
        (folder / name).parent.mkdir(exist_ok=True)
        content = jpeg(one)
        with open(folder / name, "xb") as file:  # names that differ in case alone may be one in this file system
            file.write(content)
        lines.append(f"{name}\t{one.label}\t{len(content)}\n")
        advance(1)
    (folder / photos.INDEX).write_text("".join(lines), "utf-8")


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
