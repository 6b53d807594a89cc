"""Command lines that are wrong, made from the table of flags: each ends at once with exit code 2 and a message that
names the flag, and nothing is made."""

import os
import random

import pytest
from commands import call

from dlperf import verify
from dlperf.catalog import reader
from dlperf.comparison import runner
from dlperf.flags import FLAGS
from dlperf.planning.arguments import MOST

#: lines that are tried, each of up to three wrong flags
LINES, SEED = 300, 20261124
BASE = ("--frameworks", "fake", "--env", "current", "--model", "bert_tiny", "--device", "cpu")

NO_TEXT = ("", " ", "--", "a\nb", "a\0b", "a\x1b[31m", "a\udcff")
NO_NUMBER = ("-1", "1.5.2", "nan", "inf", "-inf", "1e400", "9" * 20, "9" * 5000, "\uff12", "1_0", "0x10", "ten", "1;2")
NO_NAME = ("nonsense", ",", ",,", "no,such", "x" * 2000, "\u202ex", "$(touch made)", "-", "'", "0")
NO_PAIR = ("x", "=", "=1", "x=", "no.such=1", "x" * 2000)
NO_FOLDER = ("nowhere", "file", "file/x", "x" * 300, "x/" * 3000)
ODD = {
    "output": ("file", "file/x", "a:b", "x" * 300, "full", "x/" * 3000),
    "resume": (*NO_FOLDER, "full"),
    "data": NO_FOLDER,
    "source": (*NO_FOLDER, ",", "fake=nowhere"),
    "hosts": (",", "a,a", "a;b", "-x", "a:0", "a:-1", "a:" + "9" * 5000, "a..b", "h" * 300, "\u202ea"),
    "hostfile": (*NO_FOLDER, "full", "pipe", "/dev/zero", "binary"),
    "image": (",", "Mine Own", "a:1,b:1", "torch=a:1"),
    "spec": ("nowhere", "file/x", "x" * 300, "full", "pipe", "/dev/zero", "binary", "file.json"),
    "until": ("0", "0%", "100%", "2", "-2%", "\uff12%", "9" * 5000 + "%", "nan%"),
    "set": NO_PAIR,
    "container_arg": NO_PAIR,
    "launcher_arg": NO_PAIR,
}
#: what stands alone: it is told before others are looked at, or contradicts them
ALONE = {"attach", "only", "output", "resume", "spec"}


def wrong(flag, random):
    """A wrong value of a flag, and whether others are looked at, too."""
    if random.random() < 0.15:
        return random.choice(NO_TEXT), False
    if flag.key in ODD:
        value = random.choice(ODD[flag.key])
        return value, flag.key not in ALONE or value == "a:b"
    if flag.key in MOST:
        return random.choice(NO_NUMBER), True
    return random.choice(NO_NAME), flag.key not in ALONE


def lines():
    """Command, words, and the flags that are wrong there."""
    chance = random.Random(SEED)
    for _ in range(LINES):
        command = chance.choice(["compare", "compare", "verify"])
        known = [flag for flag in FLAGS if flag.takes != "nothing"]
        known = [flag for flag in known if (flag.compare if command == "compare" else flag.verify is not None)]
        words, named = [], []
        for flag in chance.sample(known, 3):
            value, together = wrong(flag, chance)
            if (command, value) == ("verify", "a:b"):  # no worker works there
                value, together = "full", False
            if together or not named:
                name = chance.choice(flag.names.split())
                words.append(name + value if len(name) == 2 else f"{name}={value}")
                named.append(flag)
            if not together:
                words, named = words[-1:], named[-1:]
                break
        yield command, words, named


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where commands are given; what would be a run is an error of the test."""
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    os.mkfifo(tmp_path / "pipe")
    adapters = reader.adapters()
    monkeypatch.setattr(reader, "adapters", lambda names=(): adapters)  # read once
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "Runner", None)
    monkeypatch.setattr(verify, "_certificates", None)
    return tmp_path


def test_wrong_command_lines_are_messages_that_name_the_flags(folder):
    before = sorted(folder.rglob("*"))
    for command, words, named in lines():
        given = {name for flag in named for name in flag.names.split()}
        rest = [word for pair in zip(BASE[::2], BASE[1::2], strict=True) if pair[0] not in given for word in pair]
        print(command, [word[:40] for word in words])
        ended = call(command, *([] if words[0].startswith("--resume") else rest), *words)
        line = f"{command} {words}: {ended.stderr[:2000]}"
        assert ended.returncode == 2, line
        assert "Traceback" not in ended.stderr, line
        assert len(ended.stderr) < 20_000, line
        for flag in named:
            assert any(name in ended.stderr for name in flag.names.split()), f"--{flag.key} is not named: {line}"
        assert sorted(folder.rglob("*")) == before, line
