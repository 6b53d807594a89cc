"""Every loader gives the network the same pixels: each adapter, its own pipeline and DALI's, each format it reads.

Against Pillow's decoder and a bilinear interpolation written out here. Random parts are off: the middle square, no
mirror. The bar: 2 of 255 levels for each pixel, half a level in the mean. A decoder may round a level otherwise (IEEE
1180 allows it), and a loader that scales integers rounds by half a level more.
"""

import json
import subprocess

import numpy
import pytest
from PIL import Image

from dlperf.catalog import reader
from dlperf.data.photos import Options, draw, prepare
from dlperf.models import photos
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

ADAPTERS = reader.adapters()
READERS = [
    pytest.param(name, input, format, marks=[pytest.mark.dali] if input == "dali" else [])
    for name, adapter in ADAPTERS.items()
    for input, formats in adapter.formats.items()
    for format in formats
    if input == "native" or "cpu-dali" in adapter.environments
]
CLASSES = 10
SIZE = 64  # of resnet_tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One image in each class, so that the label names it."""
    root = tmp_path_factory.mktemp("images")
    draw(root / "drawn", CLASSES, 1)
    options = Options(root / "drawn", root / "data", photos.FORMATS, shards=3)
    prepare(options, quiet=True)
    return root


@pytest.fixture(scope="module")
def expected(data):
    """label -> pixels from 0 to 255, (SIZE, SIZE, 3)."""
    files = sorted((data / "drawn").glob("*/*.jpg"))
    return {label: middle(numpy.asarray(Image.open(file), "float64")) for label, file in enumerate(files)}


def middle(pixels):
    top, left, side, _ = photos.middle_part(*pixels.shape[:2])
    return bilinear(pixels[top : top + side, left : left + side])


def bilinear(square):
    """The point between the pixels' centres, by rows and then by columns."""
    for axis in (0, 1):
        side = square.shape[axis]
        at = numpy.clip((numpy.arange(SIZE) + 0.5) * side / SIZE - 0.5, 0, side - 1)
        low = numpy.minimum(at.astype(int), side - 2)
        share = (at - low).reshape([-1 if one == axis else 1 for one in range(3)])
        square = square.take(low, axis) * (1 - share) + square.take(low + 1, axis) * share
    return square


def written(folder, data, environment, adapter, input, format):
    """label -> what the network would get, (3, SIZE, SIZE)."""
    options = {one.name: one.default("cpu") for one in adapter.options_of("resnet").values()}
    job = {"model": "resnet_tiny", "device": "cpu", "precision": "fp32", "batch_size": 2, "options": options}
    job.update(input=input, format=format, data_dir=str(data / "data"), pixels=CLASSES)
    (folder / "job.json").write_text(json.dumps({"adapter": adapter.name, "job": job}))
    bundle.copy_code(folder / "code", [adapter])
    command = [environment.python, "-m", "dlperf.adapters.worker", "job.json", "."]
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "code"), **environment.variables}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    found = numpy.load(folder / "pixels.npz")
    return dict(zip(found["labels"].tolist(), found["images"], strict=True))


@pytest.mark.parametrize(("name", "input", "format"), READERS)
def test_every_loader_gives_the_same_pixels(name, input, format, data, expected, environment, tmp_path):
    prepared = environment(name, "cpu-dali" if input == "dali" else "cpu")
    found = written(tmp_path, data, prepared, ADAPTERS[name], input, format)
    assert set(found) == set(expected), "each image once, with its own label"
    errors = {label: error(found[label], expected[label]) for label in expected}
    print(f"{name} {input} {format}: at most {max(worst for worst, _ in errors.values()):.2f} of 255 levels")
    assert max(worst for worst, _ in errors.values()) <= 2, errors
    assert max(mean for _, mean in errors.values()) <= 0.5, errors


def error(image, pixels):
    """Of what the network gets, in levels from 0 to 255: the largest and the mean."""
    found = image.transpose(1, 2, 0).astype("float64") * photos.DEVIATION + photos.MEAN
    return abs(found - pixels).max(), abs(found - pixels).mean()
