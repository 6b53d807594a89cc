"""The cache of certificates: what is damaged, in whatever way, is refused, and never a traceback."""

from __future__ import annotations

import io
import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from odd import ODD, changed, fields

from dlperf import models
from dlperf.adapters import trace
from dlperf.proof import certificates
from dlperf.proof.certificates import CERTIFICATE, FROM_WORKER, SKETCHES
from dlperf.proof.judge import Evidence
from dlperf.schema import Trajectory
from dlperf.stored import DAMAGED, arrays, checksum

SEED, MODEL, STEPS = 20261124, "resnet_tiny_check", 3


def sketched() -> dict[str, Any]:
    """What a worker writes of a model."""
    family, config = models.family(MODEL), models.config(MODEL)
    tensors = {f"logits/{name}": (4, *shape) for name, shape in family.logits(config).items()}
    for one in family.parameters(config):
        names = [f"gradient/{one.name}", f"change/{one.name}"] if one.trained else [f"statistic/{one.name}"]
        tensors.update(dict.fromkeys(names, one.shape))
    return {name: trace.sketch(name, numpy.full(shape, 0.5)) for name, shape in tensors.items()}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evidence:
    """A trajectory in the cache."""
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    numpy.savez(tmp_path / FROM_WORKER, **sketched())
    made = Trajectory(
        *("a", "toy", "A", "resnet_tiny", MODEL, "resnet", "cpu", "fp64", 4, STEPS, 1, {}, "definition", "code"),
        environment={"kind": "venv", "digest": "e"},
        losses=(3.0, 2.0, 1.0),
        gradient_norms=(1.0, None, 1.0),
        step_seconds=(1.0, 1.0, 1.0),
        read_seconds=(0.0, 0.0, 0.0),
        sketches=certificates.digest(tmp_path / FROM_WORKER),
    )
    evidence = Evidence(made, arrays(tmp_path / FROM_WORKER))
    certificates.keep(evidence, tmp_path)
    return evidence


def refused(folder: Path, blank: Trajectory) -> bool:
    """Whether it is not taken from the cache; a certifier makes it again for any of these, and for nothing else."""
    try:
        certificates.read(folder, blank)
    except (OSError, *DAMAGED):
        return True
    return False


def test_what_was_kept_is_read_again_and_an_older_one_too(kept: Evidence) -> None:
    folder = certificates.place(kept.trajectory)
    assert certificates.read(folder, kept.trajectory).trajectory == kept.trajectory
    path = folder / CERTIFICATE
    path.write_text(path.read_text().replace('"checksum"', '"seal"'))
    assert not refused(folder, kept.trajectory)


@pytest.mark.parametrize("name", [CERTIFICATE, SKETCHES])
def test_what_is_cut_changed_or_noise_is_refused(kept: Evidence, name: str) -> None:
    source, folder = random.Random(SEED), certificates.place(kept.trajectory)
    whole = (folder / name).read_bytes()
    cut = [whole[:at] for at in source.sample(range(len(whole) - 2), 40)]
    noise = [source.randbytes(length) for length in range(0, 400, 10)]
    flipped = [whole[:at] + b"\x00" + whole[at + 1 :] for at in source.sample(range(len(whole) - 2), 40) if whole[at]]
    for data in (*cut, *noise, *flipped):
        (folder / name).write_bytes(data)
        assert refused(folder, kept.trajectory)
    (folder / name).unlink()
    assert refused(folder, kept.trajectory)
    (folder / name).mkdir()
    assert refused(folder, kept.trajectory)


def test_each_field_in_turn_with_a_checksum_that_fits(kept: Evidence) -> None:
    """Its checksum is made again, as an editor would: types and ranges decide."""
    source, folder = random.Random(SEED), certificates.place(kept.trajectory)
    data = json.loads((folder / CERTIFICATE).read_text())["certificate"]
    found = []
    for place in fields(data):
        for text in (None, *source.sample(ODD, 3)):
            edited = changed(data, place, text)
            try:
                sum_ = checksum(json.loads(edited))
            except (ValueError, RecursionError):
                sum_ = ""
            (folder / CERTIFICATE).write_text(f'{{"checksum": "{sum_}", "certificate": {edited}}}')
            found.append(refused(folder, kept.trajectory))
    print(f"{len(found)} tried, {sum(found)} refused")
    assert 0 < sum(found) < len(found)


WHOLE = numpy.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (numpy.array([1.0], "float32"), "is float32"),
        (numpy.array([[1.0]]), "of shape"),
        (numpy.array(1.0), "of shape"),
        (numpy.ones(128), "of shape"),
        (numpy.ones(10**6), "of shape"),
        (numpy.array([{"a": 1}], dtype=object), "is object"),
        (numpy.array(["x"]), "is <U1"),
    ],
)
def test_an_array_that_no_worker_writes_is_refused(tmp_path: Path, array: Any, says: str) -> None:
    numpy.savez(tmp_path / "a.npz", good=WHOLE, bad=array)
    with pytest.raises(ValueError, match=rf"a\.npz is damaged: bad.npy .*{says}"):
        arrays(tmp_path / "a.npz")


def test_an_archive_that_no_worker_writes_is_refused(tmp_path: Path) -> None:
    path, plain = tmp_path / "a.npz", io.BytesIO()
    numpy.savez_compressed(path, bomb=numpy.zeros(10**7))
    with pytest.raises(ValueError, match="is compressed"):
        arrays(path)
    numpy.save(plain, WHOLE)
    header = plain.getvalue()[:-16]
    for name, member, says in [
        ("huge", header.replace(b"(2,), }", b"(99999999999,), }")[:128], "of shape|cannot"),
        ("short", plain.getvalue()[:-1], "has 15 bytes of 16"),
        ("long", plain.getvalue() + b"x", "has 17 bytes of 16"),
        ("nested", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "damaged"),
        ("text", b"not an array", "damaged"),
    ]:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}.npy", member)
        with pytest.raises(ValueError, match=says):
            arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(40_000):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(ValueError, match="40000 arrays"):
        arrays(path)
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(2**27)  # a file with a hole: it takes no disk
    with pytest.raises(ValueError, match="bytes"):
        arrays(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"change/fc.weight": None}, "change/fc.weight is missing"),
        ({"change/other": WHOLE}, "change/other is not expected"),
        ({"change/fc.bias": WHOLE}, "change/fc.bias has 2 values"),
        ({"logits/logits": numpy.full(64, numpy.nan)}, "has values that are not finite"),
        ({"logits/logits": numpy.full(64, 1e200)}, "not finite, or beyond 1e.100"),
    ],
)
def test_a_trajectory_has_the_tensors_of_its_model(kept: Evidence, change: dict[str, Any], says: str) -> None:
    found = {name: array for name, array in {**kept.sketches, **change}.items() if array is not None}
    with pytest.raises(ValueError, match=says):
        certificates.whole(Evidence(kept.trajectory, found))


def test_a_trajectory_has_a_loss_of_each_step(kept: Evidence) -> None:
    with pytest.raises(ValueError, match="2 losses and 3 norms of 3 steps"):
        certificates.whole(replace(kept, trajectory=replace(kept.trajectory, losses=(1.0, 2.0))))
    hidden = {name: array for name, array in kept.sketches.items() if not name.startswith("gradient/")}
    certificates.whole(replace(kept, sketches=hidden))
