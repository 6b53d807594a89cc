"""Whatever a worker writes, nothing but a row's failure comes of it: no traceback, and no changed figure."""

import json
import math
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from odd import ODD, changed, fields

from dlperf import report, stored
from dlperf.catalog import reader
from dlperf.comparison.runner import recorded
from dlperf.launchers import find
from dlperf.runs import bundle, conditions, events, failures, messages
from dlperf.runs.execute import Exit, Outcome
from dlperf.schema import Comparison, Job, to_json

JOB = Job("a", "fake", "fake", "Fake", "bert_tiny", "bert", "cpu", "fp32", "fp32", 2, "synthetic", None, {}, "cpu")
WINDOWS, SEED = 2, 20261123


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The lines of a run that did well."""
    folder = tmp_path_factory.mktemp("fake")
    options = {"clock": "virtual", "step_seconds": "0.01"}
    job = {"model": "bert_tiny", "device": "cpu", "precision": "fp32", "batch_size": 2, "options": options}
    job.update(windows=WINDOWS)
    (folder / "job.json").write_text(json.dumps({"adapter": "fake", "job": job}))
    bundle.copy_code(folder / "code", [reader.adapters()["fake"]])
    environ = {**os.environ, "PYTHONPATH": str(folder / "code")}
    command = [sys.executable, "-m", "dlperf.adapters.worker", "job.json", "."]
    assert subprocess.run(command, env=environ, cwd=folder, timeout=300).returncode == 0
    return (folder / "events.rank0.jsonl").read_bytes().splitlines()


def record(folder: Path, lines, world_size=1):
    for rank in range(world_size):
        (folder / f"events.rank{rank}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    stream = events.read_job(folder, world_size, WINDOWS)
    failure = failures.failure(Exit(0, False, 60.0, False), stream, folder, find("local"))
    return recorded(JOB, 0, "", {"kind": "venv", "digest": "0"}, Outcome("", 60.0, stream, failure))


@pytest.mark.slow
def test_each_field_of_each_event_in_turn(told, tmp_path):
    """Each with a few odd values of the list, by a seed; all of them together are over a thousand streams."""
    source, tried, kinds, told_done = random.Random(SEED), 0, {}, []
    whole = record(tmp_path, told)
    assert whole.done, whole.failure
    for number, line in enumerate(told):
        for path in fields(json.loads(line)):
            for text in (None, *source.sample(ODD, 12)):
                lines = [*told[:number], changed(json.loads(line), path, text).encode(), *told[number + 1 :]]
                found = record(tmp_path, lines, world_size=source.choice((1, 1, 2)))
                stored.record_from(json.loads(to_json(found)))
                tried += 1
                kinds[found.failure.kind if found.failure else "done"] = found
                if found.done and path[0] not in ("seconds", "samples", "steps"):
                    assert [one.seconds for one in found.windows] == [one.seconds for one in whole.windows]
                    told_done.append(found)
    print(f"{tried} streams: {', '.join(sorted(kinds))}")
    assert tried > 1000
    assert set(kinds) <= {"done", "bad_event", "crash", "no_figures"}
    several = [*source.sample(told_done, 50), *kinds.values()]
    shown = report.render(Comparison({}, {}, "", "", len(several), (JOB,), tuple(several), ()))
    assert "told something that cannot be" in shown["report.md"]


def test_lines_that_are_lost_twice_there_or_cut(told, tmp_path):
    source = random.Random(SEED)
    for number in range(len(told)):
        record(tmp_path, [*told[:number], *told[number + 1 :]])
        twice = record(tmp_path, [*told[: number + 1], *told[number:]])
        assert twice.done or twice.failure.kind == "bad_event"
        for at in source.sample(range(len(told[number])), 10):
            cut = record(tmp_path, [*told[:number], told[number][:at], *told[number + 1 :]])
            assert cut.failure is not None
    shuffled = list(told)
    for _ in range(50):
        source.shuffle(shuffled)
        record(tmp_path, shuffled)


def test_noise_is_no_event(tmp_path):
    source = random.Random(SEED)
    for _ in range(200):
        assert not record(tmp_path, [source.randbytes(source.randrange(200)) for _ in range(5)]).done


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"event": "window", "index": 0, "steps": 2, "samples": 4, "seconds": -1000}', "window.seconds is -1000"),
        ('{"event": "window", "index": 0, "steps": 2, "samples": 4, "seconds": 0}', "window.seconds is 0"),
        ('{"event": "window", "index": 0, "steps": 2, "seconds": 1}', "missing required field `samples`"),
        ('{"event": "warm", "effective": {"threads": 2}}', "expected `str`"),
        ('{"event": "trajectory", "losses": [1, "2"]}', "trajectory.losses[1] is"),
        ('{"event": "end", "time": "noon"}', 'end.time is "noon"'),
        ('["window"]', "it has no event"),
        ('{"event": "window"', "it is not JSON"),
    ],
)
def test_what_is_wrong_with_an_event_is_named(line, says):
    with pytest.raises(messages.BadEvent) as caught:
        messages.event(line.encode())
    assert says in str(caught.value)


def test_windows_come_in_order_and_all_of_them(told, tmp_path):
    windows = [number for number, line in enumerate(told) if b'"window"' in line]
    first, second = windows
    missing = record(tmp_path, told[:second] + told[second + 1 :])
    assert missing.failure.message == "it ended after 1 of 2 windows"
    late = record(tmp_path, told[:first] + told[second:])
    assert late.failure.message.endswith("window.index is 1, and the next one is 0")


def test_each_field_of_what_a_sampler_writes(tmp_path):
    card = {"sm_mhz": 1980, "watts": 700.5, "joules": 12.5, "throttle": 4, "ecc_errors": 0, "memory_bytes": 10**9}
    lines = [{"gpus": ["H200"], "python": "python3"}, *({"time": 1000.0 + at, "gpus": [card]} for at in range(5))]
    whole, path = [json.dumps(line) for line in lines], tmp_path / "gpu.rank0.jsonl"
    for number, line in enumerate(lines):
        for place in fields(line):
            for text in (None, *ODD):
                told = [*whole[:number], changed(line, place, text), *whole[number + 1 :]]
                path.write_text("".join(one + "\n" for one in told), encoding="utf-8")
                head, samples = conditions.read(path)
                assert all(map(math.isfinite, conditions.during(samples, 1001.0, 1003.0).values()))
                assert head.keys() & {"gpus", "not_sampled"} or not samples


def test_a_line_without_an_end_is_a_bad_event_and_not_in_memory(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with open(path, "wb") as file:
        file.truncate(10**9)
    tracemalloc.start()
    try:
        found = events.read(path)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
    assert found.bad_line == "line 1 of events.rank0.jsonl: it has more than 16,777,216 bytes"


def test_of_a_log_that_is_larger_than_memory_the_end_is_read(tmp_path):
    for name in ("stdout.log", "stderr.log"):
        with open(tmp_path / name, "wb") as file:
            file.seek(10**9)
            file.write(b"first\n" + b"y" * 5000 + b"\nlast words\n")
    tracemalloc.start()
    try:
        failure = failures.failure(Exit(1, False, 5.0, False), events.Stream(), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
    assert failure.message == "the worker exited without reporting an error: last words"
    assert failure.lines[-1] == "last words"
    assert max(map(len, failure.lines)) <= 1025
