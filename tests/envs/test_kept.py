"""Whether the environment of a finished run is still here as it was."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dlperf.docker import engine
from dlperf.envs import venv
from dlperf.envs.kept import gone
from dlperf.envs.target import MARKER
from dlperf.shell import quote


def test_an_environment_that_is_gone_or_was_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "the cache"))
    folder = tmp_path / "the cache" / "envs" / "toy-cpu-0123456789ab"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    module = folder / "lib" / "python3" / "site-packages" / "toy.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    (folder / MARKER).write_text(json.dumps({"digest": "0123456789abcdef"}))
    script = f"exec {quote(folder / 'bin' / 'python')} -m dlperf.adapters.worker\n"
    stored = {"kind": "venv", "digest": venv.digest_in(folder)}
    assert stored["digest"]
    assert gone(stored, script) == ""
    later = (folder / MARKER).stat().st_mtime + 10
    os.utime(module, (later, later))
    assert "has changed since" in gone(stored, script)
    (folder / MARKER).unlink()
    assert "has changed since" in gone(stored, script)
    assert "its environment is not in" in gone(stored, script.replace("0123456789ab", "other"))


@pytest.mark.parametrize(("digest", "same"), [("0", True), ("1", False), (None, False)])
def test_an_image_is_the_one_that_ran(monkeypatch: pytest.MonkeyPatch, digest: str | None, same: bool) -> None:
    found = engine.Image("toy:1", digest, "", 0) if digest else None
    monkeypatch.setattr(engine, "find", lambda *asked: found)
    assert (gone({"kind": "docker", "image": "toy:1", "digest": "0"}, "") == "") == same
