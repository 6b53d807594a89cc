"""Disks that are full or read-only, under a comparison and under the user's cache: one message, no record is changed,
and the comparison goes on once there is room."""

import contextlib
import os
import subprocess

import pytest
import stubborn
from forked import Forked

from dlperf.comparison import store

WORDS = ("--frameworks", "fake", "--model", "bert_tiny", "--device", "cpu", "--env", "current", "--no-verify")
MORE = ("--set", "clock=virtual", "--repeats", 2, "--quiet")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@contextlib.contextmanager
def disk(folder, kilobytes):
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "dlperf", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def compare(folder, *words, **environ):
    """Its exit code and what it printed, in a file that is on another disk."""
    printed = folder.parent / "printed"
    printed.write_bytes(b"")
    code = Forked("compare", *words, printed=printed, environ=environ).wait()
    said = printed.read_text()
    assert "Traceback" not in said, said
    assert code in (0, 1, 2), said
    assert code == 0 or said, "it said nothing"
    assert not stubborn.left(folder)
    return code


def stored(out):
    path = out / store.RECORDS
    return path.read_bytes() if path.exists() else b""


def test_full_disks(campaign, tmp_path):
    for number in range(3 * campaign.times):
        folder, kilobytes = tmp_path / str(number), campaign.source.randrange(4, 1600)
        out = folder / "out"
        with campaign.fault("full disks", f"{kilobytes} KiB"), disk(folder, kilobytes):
            compare(folder, *WORDS, *MORE, "-o", out)
            before = stored(out)
            compare(folder, "--resume", out, "--quiet")
            assert stored(out).startswith(before), "records were changed"
            before = stored(out)
            remount(folder, "size=64m")
            if (out / store.MANIFEST).exists():
                assert compare(folder, "--resume", out, "--retry-failed", "--quiet") == 0
                assert stored(out).startswith(before), "records were changed"
                assert (out / "report.md").exists()
                assert len(list(store.open_folder(out).records)) == 2


def test_read_only_disks(campaign, tmp_path):
    for number in range(1 * campaign.times):
        folder = tmp_path / str(number)
        out = folder / "out"
        with campaign.fault("read-only disks", number), disk(folder, 64 << 10):
            if campaign.source.random() < 0.5:
                remount(folder, "ro")
                assert compare(folder, *WORDS, *MORE, "-o", out) == 2
                continue
            assert compare(folder, *WORDS, *MORE, "-o", out) == 0
            whole = stored(out)
            if campaign.source.random() < 0.5:
                (out / store.RECORDS).write_bytes(whole.splitlines(keepends=True)[0])
            before = stored(out)
            remount(folder, "ro")
            assert compare(folder, "--resume", out, "--quiet") != 0
            assert stored(out) == before
            remount(folder, "rw")
            assert compare(folder, "--resume", out, "--quiet") == 0
            assert len(list(store.open_folder(out).records)) == 2


def test_a_cache_that_is_full_or_read_only(campaign, tmp_path):
    for number in range(1 * campaign.times):
        folder, out = tmp_path / str(number), tmp_path / f"out{number}"
        options = campaign.source.choice(("ro", "size=4k"))
        with campaign.fault("caches that are full or read-only", options), disk(folder, 64):
            remount(folder, options)
            environ = {"XDG_CACHE_HOME": str(folder), "TMPDIR": str(folder)}
            assert compare(folder, *WORDS, *MORE, "-o", out, **environ) == 0
            assert (out / "report.md").exists()
