"""Preparing images: formats, broken files, and what is refused before anything is read."""

import errno
import io
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy
import pytest
from commands import call
from PIL import Image
from processes import alive, wait_for

from dlperf.data import __main__ as command
from dlperf.data import formats
from dlperf.data import photos as photos_
from dlperf.data.formats import MAGIC
from dlperf.data.photos import ORIENTATION, draw
from dlperf.models import photos, resnet, vgg_cifar


@pytest.fixture
def drawn(tmp_path):
    draw(tmp_path / "drawn", 3, 4)
    return tmp_path / "drawn"


def prepare(source, output, *words):
    return command.main(["imagenet", "--source", str(source), "--output", str(output), "--quiet", *words])


def bytes_of(source):
    return {file.read_bytes() for file in source.glob("*/*.jpg")}


def test_folders_keep_every_file_as_it_is(drawn, tmp_path):
    assert prepare(drawn, tmp_path / "out") == 0
    index = photos.read_index(tmp_path / "out")
    assert [one.label for one in index] == [0] * 4 + [1] * 4 + [2] * 4
    for one in index:
        content = (tmp_path / "out" / "folder" / one.path).read_bytes()
        assert content == (drawn / one.path).read_bytes()
        assert len(content) == one.bytes
    assert photos.check(tmp_path / "out", resnet.SIZES["resnet_tiny"], 12, ["folder"]) == []


def test_tfrecord_has_every_image_once_with_right_checksums_and_offsets(drawn, tmp_path):
    assert prepare(drawn, tmp_path / "out", "--format", "tfrecord", "--shards", "2") == 0
    found = []
    for file in photos.files(tmp_path / "out", "tfrecord"):
        content = Path(file).read_bytes()
        for line in Path(file + ".idx").read_text().splitlines():
            offset, size = map(int, line.split())
            (length,) = struct.unpack_from("<Q", content, offset)
            example = content[offset + 12 : offset + 12 + length]
            assert size == length + 16
            crc = google_crc32c.value(example)
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            assert struct.unpack_from("<I", content, offset + 12 + length)[0] == masked
            start = example.index(b"\xff\xd8")
            found.append(example[start : example.index(b"\xff\xd9", start) + 2])
    assert len(found) == 12
    assert set(found) == bytes_of(drawn)


def test_recordio_is_read_back_even_where_an_image_has_the_magic_number_inside(tmp_path):
    magic = struct.pack("<I", MAGIC)
    contents = [b"plain", b"abcd" + magic + b"efgh", magic + magic, b"a" + magic, b""]
    stream = io.BytesIO()
    for content in contents:
        formats.recordio(stream, content)
    assert list(parts_joined(stream.getvalue())) == contents


def parts_joined(data):
    """The records of a RecordIO file, by its definition."""
    at, parts = 0, []
    while at < len(data):
        magic, flag = struct.unpack_from("<II", data, at)
        assert magic == MAGIC
        kind, length = flag >> 29, flag & (1 << 29) - 1
        parts.append(data[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
        if kind in (0, 3):
            yield struct.pack("<I", MAGIC).join(parts)
            parts = []


def test_broken_and_other_files_are_left_out_counted_and_named(drawn, tmp_path, capsys):
    whole = (drawn / "class000" / "image0000.jpg").read_bytes()
    (drawn / "class000" / "image0000.jpg").write_bytes(whole[: len(whole) // 2])
    (drawn / "class001" / "notes.txt").write_text("not an image")
    (drawn / "class002" / "empty.jpg").write_bytes(b"")
    assert command.main(["imagenet", "--source", str(drawn), "--output", str(tmp_path / "out")]) == 0
    described = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert (described["images"], described["left_out"]) == (11, 3)
    assert set(described["left_out_files"]) == {"class000/image0000.jpg", "class001/notes.txt", "class002/empty.jpg"}
    out = capsys.readouterr().out
    assert "3 left out" in out
    assert "class000/image0000.jpg: " in out


def test_what_decoders_read_differently_is_reencoded(drawn, tmp_path):
    Image.fromarray(numpy.zeros((40, 30, 4), "uint8"), "CMYK").save(drawn / "class000" / "a.jpg")
    Image.fromarray(numpy.zeros((40, 30, 3), "uint8")).save(drawn / "class000" / "b.png")
    Image.fromarray(numpy.zeros((40, 30), "uint8")).save(drawn / "class000" / "d.jpg")
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.fromarray(numpy.zeros((40, 30, 3), "uint8")).save(drawn / "class000" / "c.jpg", exif=exif)
    assert prepare(drawn, tmp_path / "out") == 0
    described = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert described["reencoded"] == 4
    for name in ("a.jpg", "b.png.jpg", "c.jpg", "d.jpg"):
        with Image.open(tmp_path / "out" / "folder" / "class000" / name) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (30, 40))
            assert not image.getexif()


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        (lambda source: (source / "class003").mkdir(), [], "class003: this class is empty. Fill it or remove it."),
        (lambda source: None, ["--format", "tfrecords"], "Did you mean 'tfrecord'?"),
        (
            lambda source: None,
            ["--shards", "0"],
            "--shards: '0' is not usable; allowed: a whole number from 1 to 100,000",
        ),
        (
            lambda source: [f.write_bytes(b"x") for f in source.glob("class001/*")],
            [],
            "none of its files is an image; class001/",
        ),
    ],
)
def test_what_cannot_be_used_is_named(drawn, tmp_path, capsys, change, words, said):
    change(drawn)
    assert prepare(drawn, tmp_path / "out", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_folder_of_train_and_val_is_not_taken_for_two_classes(tmp_path, capsys):
    draw(tmp_path / "data" / "train", 2, 1)
    draw(tmp_path / "data" / "val", 2, 1)
    assert prepare(tmp_path / "data", tmp_path / "out") == 2
    assert f"Name {tmp_path / 'data' / 'train'}." in capsys.readouterr().err


@pytest.mark.parametrize("format", photos.FORMATS)
def test_a_file_that_has_changed_since_is_named(drawn, tmp_path, format):
    prepare(drawn, tmp_path / "out", "--format", format)
    config = resnet.SIZES["resnet_tiny"]
    assert photos.check(tmp_path / "out", config, 12, [format]) == []
    name = (
        photos.read_index(tmp_path / "out")[5].path if format == "folder" else photos.files(tmp_path / "out", format)[0]
    )
    file = tmp_path / "out" / format / name
    file.write_bytes(file.read_bytes()[:-1])
    (problem,) = photos.check(tmp_path / "out", config, 12, [format])
    assert problem.startswith(f"{file}: has ")
    file.unlink()
    (problem,) = photos.check(tmp_path / "out", config, 12, [format])
    assert problem.startswith(f"{file}: is missing")


@pytest.mark.parametrize(
    ("key", "value"),
    [("images", None), ("images", True), ("classes", 1e999), ("classes", [1]), ("formats", True),
     ("formats", {"folder": {}}), ("formats", {"recordio": {"train.rec": "5"}}),
     ("formats", {"recordio": ["train.rec"]})],
)  # fmt: skip
def test_a_description_of_other_types_is_named(tmp_path, key, value):
    whole = {"format": photos.FORMAT, "version": 1, "images": 8, "classes": ["a"], "formats": {}}
    (tmp_path / photos.DESCRIPTION).write_text(json.dumps({**whole, key: value}))
    (problem,) = photos.check(tmp_path, resnet.SIZES["resnet_tiny"], 4, [])
    assert f"{photos.DESCRIPTION}: {key} is " in problem
    assert photos.formats(tmp_path) == []


def test_an_index_that_is_none_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / photos.INDEX).write_text("a\tb\n")
    sizes = {"folder": {photos.INDEX: 4}}
    whole = {"format": photos.FORMAT, "version": 1, "images": 8, "classes": ["a"], "formats": sizes}
    (tmp_path / photos.DESCRIPTION).write_text(json.dumps(whole))
    (problem,) = photos.check(tmp_path, resnet.SIZES["resnet_tiny"], 4, ["folder"])
    assert f"{photos.INDEX}: is not what was written" in problem


def test_a_folder_that_does_not_fit_the_model_says_why(drawn, tmp_path):
    prepare(drawn, tmp_path / "out")
    config = resnet.SIZES["resnet_tiny"]._replace(classes=2)
    found = photos.check(tmp_path / "out", config, 13, ["recordio"])
    assert [
        "has 3 classes, the model 2" in found[0],
        "fewer than the 13" in found[1],
        "has no recordio" in found[2],
    ] == [True] * 3


def test_the_random_part_is_inside_and_as_large_as_it_should_be():
    generator = numpy.random.RandomState(1)
    shares = []
    for _ in range(2000):
        top, left, height, width = photos.random_part(generator, 300, 400)
        assert min(top, left) >= 0
        assert (top + height <= 300, left + width <= 400) == (True, True)
        shares.append(height * width / 120000)
    assert min(shares) >= 0.08 * 0.95
    assert max(shares) <= 1
    always_fit = [share for share in shares if share < 0.5625]  # 300 high and 3:4 wide
    assert abs(numpy.mean(always_fit) - (0.08 + 0.5625) / 2) < 0.015


def test_photos_are_drawn_as_large_as_is_asked(tmp_path):
    said = call("data", "photos", "--output", tmp_path / "drawn", "--classes", 2, "--per-class", 3, "--size", 32)
    assert said.returncode == 0, said.stderr
    assert {Image.open(file).size for file in (tmp_path / "drawn").glob("*/*.jpg")} == {(32, 32)}
    assert len(bytes_of(tmp_path / "drawn")) == 6
    assert prepare(tmp_path / "drawn", tmp_path / "out") == 0
    assert photos.check(tmp_path / "out", vgg_cifar.SIZES["vgg16_cifar"], 6, ["folder"]) == []
    refused = call("data", "photos", "--output", tmp_path / "more", "--size", "0")
    assert refused.returncode == 2
    assert "--size: '0' is not usable; allowed: a whole number from 8 to 4,096" in refused.stderr


@pytest.mark.parametrize("words", [["photos", "--classes"], ["imagenet", "--source", ".", "--shards"]])
def test_a_number_of_thousands_of_digits_is_refused(tmp_path, words):
    said = call("data", *words, "9" * 5000, "--output", tmp_path / "out")
    assert (said.returncode, f"{words[-1]}: '999" in said.stderr, "Traceback" in said.stderr) == (2, True, False)


@pytest.mark.parametrize("flag", ["--source", "--output"])
def test_a_folder_that_links_to_itself_is_one_message(drawn, tmp_path, flag):
    (tmp_path / "loop").symlink_to("loop")
    folders = {"--source": drawn, "--output": tmp_path / "out", flag: tmp_path / "loop"}
    said = call("data", "imagenet", *(word for pair in folders.items() for word in pair))
    assert said.returncode in (1, 2)
    assert str(tmp_path / "loop") in said.stderr
    assert said.stderr.count("\n") == 1, said.stderr


def in_class(name, content=None):
    """Another file of the first class: an image, where nothing else is said."""

    def add(source):
        image = (source / "class000" / "image0000.jpg").read_bytes()
        (source / "class000" / name).write_bytes(image if content is None else content)

    return add


#: what is done to a source, what is then left out, and why
LEFT_OUT = {
    "tab": (in_class("a\tb.jpg"), "a\\tb.jpg", "its name has a line break or another control character"),
    "newline": (in_class("a\nb.jpg"), "a\\nb.jpg", "its name has a line break"),
    "return": (in_class("a\rb.jpg"), "a\\rb.jpg", "its name has a line break"),
    "not UTF-8": (in_class("a\udcff.jpg"), "a\\udcff.jpg", "its name is not UTF-8"),
    "long": (in_class("a" * 251 + ".png"), "a" * 251 + ".png", "its name is too long for .jpg"),
    "one name": (lambda s: (in_class("a.png")(s), in_class("a.png.jpg")(s)), "a.png", "it would become a.png.jpg"),
    "dangling": (lambda s: (s / "class000" / "a.jpg").symlink_to("nowhere"), "a.jpg", "it is no file"),
    "loop": (lambda s: (s / "class000" / "a.jpg").symlink_to("a.jpg"), "a.jpg", "it is no file"),
    "folder": (lambda s: (s / "class000" / "a.jpg").mkdir(), "a.jpg", "it is no file"),
    "fifo": (lambda s: os.mkfifo(s / "class000" / "a.jpg"), "a.jpg", "it is no file"),
    "empty": (in_class("a.jpg", b""), "a.jpg", "cannot identify image file"),
    "cut": (in_class("a.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF"), "a.jpg", ""),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_cannot_be_taken_over_is_left_out_and_named_whatever_the_format(drawn, tmp_path, case):
    change, name, why = LEFT_OUT[case]
    change(drawn)
    formats = ",".join(photos.FORMATS)
    assert prepare(drawn, tmp_path / "out", "--format", formats) == 0
    described = photos.describe(tmp_path / "out")
    (told,) = described["left_out_files"].items()
    assert (told[0], why in told[1], described["left_out"]) == (f"class000/{name}", True, 1), told
    assert described["images"] == len(photos.read_index(tmp_path / "out"))
    assert photos.check(tmp_path / "out", resnet.SIZES["resnet_tiny"], 12, photos.FORMATS) == []


@pytest.mark.parametrize("name", ["-rf", "'\"$(x)", "b" * 255, "Class000", " ", "\u202e"])
def test_a_class_may_have_any_name_that_fits_in_a_line(drawn, tmp_path, name):
    (drawn / "class001").rename(drawn / name)
    (drawn / name / "image0000.jpg").rename(drawn / name / f"{name[:200]}.jpg")
    assert prepare(drawn, tmp_path / "out", "--format", ",".join(photos.FORMATS)) == 0
    assert photos.check(tmp_path / "out", resnet.SIZES["resnet_tiny"], 12, photos.FORMATS) == []
    assert name in photos.describe(tmp_path / "out")["classes"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda source: (source / "class001").rename(source / "a\tb"),
            "a\\tb: the name of this class has a line break",
        ),
        (
            lambda source: (source / "class001").rename(source / "\udcff"),
            "\\udcff: the name of this class is not UTF-8",
        ),
        (
            lambda source: (source / "class001").rename(source / "index.tsv"),
            "index.tsv: this name is that of the index",
        ),
        (lambda source: (source / "a").symlink_to("a"), "a: this link leads nowhere"),
        (lambda source: (source / "a").symlink_to("gone"), "a: this link leads nowhere"),
        (lambda source: (source / "a").symlink_to("."), "a: this class is empty"),
        (lambda source: [(source / f"{n}").mkdir() for n in range(998)], "it has 1001 subfolders; models have at most"),
    ],
)
def test_classes_that_cannot_be_prepared_are_one_message(drawn, tmp_path, capsys, change, said):
    """Numbers of classes are labels, so that none can be left out."""
    change(drawn)
    assert prepare(drawn, tmp_path / "out") == 2
    complained = capsys.readouterr().err
    assert (said in complained, complained.count("\n")) == (True, 1), complained
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn"]


def test_classes_and_files_that_cannot_be_read_are_named(drawn, tmp_path, capsys, monkeypatch):
    """root may read everything, so that the system is asked for less."""
    scandir = os.scandir

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    def refusing(path):
        return refused(path) if os.fspath(path).endswith("class001") else scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        assert prepare(drawn, tmp_path / "out") == 2
    assert "class001: this class cannot be read: Permission denied.\n" in capsys.readouterr().err
    monkeypatch.setattr(Image, "open", refused)
    assert photos_.look(str(drawn / "class000" / "image0000.jpg")).wrong == "[Errno 13] Permission denied"


def test_names_that_are_one_in_the_output_overwrite_nothing(drawn, tmp_path, capsys, monkeypatch):
    """As where the output's file system ignores case: the names of JPEG files there are what this makes of them."""
    monkeypatch.setattr(formats, "jpeg_name", lambda name: f"{name.partition('/')[0]}/same.jpg")
    assert prepare(drawn, tmp_path / "out") == 1
    assert "class000/same.jpg: File exists. Nothing was kept.\n" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


SLOW = """
import os, sys, time
from dlperf.data import __main__ as command, photos
look = photos.look
def slow(file):
    with open(sys.argv[-1] + ".pid", "w") as pid:
        pid.write(f"{os.getpid()}.")
    time.sleep(2)
    return look(file)
photos.look = slow
if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("kill", "code", "said"),
    [
        (lambda preparing, looking: os.kill(preparing, signal.SIGKILL), -9, ""),
        (lambda preparing, looking: os.killpg(preparing, signal.SIGINT), 130, "Interrupted: nothing was written"),
        (lambda preparing, looking: os.kill(looking, signal.SIGKILL), 1, "a process that decodes images was killed"),
    ],
    ids=["SIGKILL", "Ctrl-C", "lack of memory"],
)
def test_a_preparation_that_is_killed_leaves_no_process_and_can_be_made_again(tmp_path, kill, code, said):
    draw(tmp_path / "drawn", 1, 2)
    (tmp_path / "slow.py").write_text(SLOW)
    pid = tmp_path / "out.pid"
    words = ["imagenet", "--quiet", "--source", tmp_path / "drawn", "--output", tmp_path / "out"]
    started = subprocess.Popen(
        [sys.executable, tmp_path / "slow.py", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: pid.exists() and pid.read_text().endswith("."))
    looking = int(pid.read_text()[:-1])
    kill(started.pid, looking)
    _, complained = started.communicate(timeout=300)
    assert (started.returncode, said in complained, "Traceback" in complained) == (code, True, False), complained
    wait_for(lambda: not alive(looking))
    assert not (tmp_path / "out").exists()
    assert prepare(tmp_path / "drawn", tmp_path / "out") == 0
    assert photos.describe(tmp_path / "out")["images"] == 2


@pytest.mark.parametrize("words", [["photos"], ["imagenet", "--source", "drawn", "--format", "recordio"]])
def test_a_disk_that_is_full_keeps_nothing(drawn, tmp_path, words):
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    code = f"{limited}; from dlperf.data import __main__ as command; sys.exit(command.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *words, "--output", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "out: File too large. Nothing was kept.")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [drawn]
