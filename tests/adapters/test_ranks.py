"""Ranks: which one a process is, how they meet, and what a comparison makes of several."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from commands import FAKE, call, command, records
from processes import left_behind, time_is_up_when, wait_for, working_in

from dlperf.adapters import ranks
from dlperf.adapters.ranks import Lost, Ranks
from dlperf.catalog import reader
from dlperf.runs import bundle, events
from dlperf.runs.events import Stream
from dlperf.schema import Window


def compare(folder, *words):
    return call("compare", *FAKE, "-r", 1, "-o", folder / "out", *words)


# --- which rank, and where ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", [*ranks.VARIABLES, "somebody's own"])
def test_each_launcher_s_variables_say_which_rank_this_is(launcher):
    names = ranks.VARIABLES.get(launcher, ranks.VARIABLES["env"])
    environ = {"DLPERF_LAUNCHER": launcher, **dict(zip(names, ["5", "8", "1", "4"], strict=True))}
    place = ranks.from_environment(environ)
    assert place[:4] == (5, 8, 1, 4)
    assert (place.nnodes, place.node_rank) == (2, 1)


def test_variables_of_an_allocation_that_is_not_ours_are_passed_over():
    assert ranks.from_environment({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}) == Ranks()


def meet(folder, number, world_size=3, seconds=60.0):
    return ranks.meet(Ranks(number, world_size, number, world_size), str(folder), f"h{number}", seconds, {})


def at_once(*calls):
    """What each call returns or raises, all called at the same time."""
    found = [None] * len(calls)

    def one(index, call):
        try:
            found[index] = call()
        except Lost as error:
            found[index] = error

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_learn_each_other_s_addresses(tmp_path):
    places = at_once(*(lambda number=number: meet(tmp_path, number) for number in range(3)))
    assert [place.rank for place in places] == [0, 1, 2]
    assert {place.addresses for place in places} == {("127.0.0.1",) * 3}
    assert len({place.ports for place in places}) == 1
    assert places[0].endpoints[2] == f"127.0.0.1:{places[0].ports[2]}"


def test_frameworks_that_meet_as_they_are_imported_find_the_variables(tmp_path):
    environ = {}
    place = ranks.meet(Ranks(0, 1, 0, 1), str(tmp_path), "h0", 5.0, environ)
    assert environ == {
        **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(place.ports[0])},
    }


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(tmp_path):
    found = [at_once(lambda number=number: meet(tmp_path, number, seconds=0.2))[0] for number in (0, 2, 0)]
    assert [str(one) for one in found[1:]] == [
        "rank 1 of 3 did not come within 0.2 s; there are ranks 0, 2, on h0, h2"
    ] * 2


def test_different_versions_on_two_hosts_are_named(tmp_path):
    def agree(number):
        ranks.agree(Ranks(number, 2, number, 2), str(tmp_path), f"h{number}", {"torch": f"1.{number}"}, 60.0)

    found = at_once(*(lambda n=n: agree(n) for n in range(2)))
    message = "rank 1 on h1 has torch 1.1, rank 0 on h0 has torch 1.0: all must have the same"
    assert [str(one) for one in found] == [message] * 2


def test_the_interface_of_an_address():
    assert ranks.interface("127.0.0.1") == "lo"
    assert ranks.interface("192.0.2.1") is None  # of documentation: nobody's


@pytest.mark.slow
def test_a_worker_whose_partner_never_comes_says_so_in_its_stream(tmp_path):
    bundle.copy_code(tmp_path / "code", [reader.adapters()["fake"]])
    job = {"model": "bert_tiny", "device": "cpu", "precision": "fp32", "batch_size": 2, "meeting_seconds": 0.3}
    (tmp_path / "job.json").write_text(json.dumps({"adapter": "fake", "job": job}))
    place = {"DLPERF_LAUNCHER": "env", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    ended = subprocess.run(
        [sys.executable, "-m", "dlperf.adapters.worker", "job.json", "."],
        env={**os.environ, **place, "PYTHONPATH": str(tmp_path / "code")},
        cwd=tmp_path,
        timeout=300,
    )
    failure = events.read_job(tmp_path, 2).failure
    assert ended.returncode == 1
    assert failure.kind == "lost"
    assert "rank 1 of 2 did not come within 0.3 s" in failure.message


# --- several streams as one -----------------------------------------------------------------------------------------


def stream(seconds, **changes):
    windows = tuple(Window(i, 2, 16, s, 0.5, 2.0) for i, s in enumerate(seconds))
    fields = {"start": {"machine": {"host": "h"}}, "built": {"seconds": 1.0}, "windows": windows, "end": {"peak": 1}}
    return Stream(**{**fields, **changes})


def test_a_window_takes_as_long_as_its_slowest_rank():
    merged = events.merged([stream([1.0, 2.0]), stream([1.5, 1.0])])
    assert [(w.seconds, w.skew_seconds, w.samples, w.cpu_seconds) for w in merged.windows] == [
        (1.5, 0.5, 16, 1.0),
        (2.0, 1.0, 16, 1.0),
    ]
    assert merged.failure is None
    assert merged.hosts == ("h", "h")


def test_the_rank_that_failed_first_is_the_cause():
    late = stream([], end=None, failed={"kind": "crash", "message": "connection reset", "time": 20.0})
    first = stream([], end=None, failed={"kind": "out_of_memory", "message": "no memory", "time": 10.0})
    failure = events.merged([late, first]).failure
    assert (failure.kind, failure.message) == ("out_of_memory", "rank 1 on h: no memory")


def test_a_rank_that_others_lost_is_named_before_them():
    lost = {"kind": "crash", "message": "RuntimeError: Connection closed by peer", "time": 10.0}
    failure = events.merged([stream([], end=None, failed=lost), stream([], end=None)]).failure
    expected = "rank 1 on h exited without reporting an error; rank 0 on h: RuntimeError: Connection closed by peer"
    assert (failure.kind, failure.message) == ("killed", expected)


def test_a_rank_without_its_end_fails_the_job():
    failure = events.merged([stream([1.0]), stream([1.0], end=None)]).failure
    assert failure.message == "rank 1 on h: the worker exited without reporting an error"


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_number_of_ranks_is_a_row_with_all_its_samples(tmp_path):
    ended = compare(tmp_path, "--nproc-per-node", "1,2", "--set", "step_seconds=0.1", "-b", 4)
    assert ended.returncode == 0, ended.stderr
    found = {record.job.world_size: record for record in records(tmp_path / "out")}
    assert [window.samples for window in found[2].windows] == [2 * 4 * 2] * 3
    assert len(found[2].hosts) == 2
    assert found[2].communication["gradient_bytes"] == 4 * found[2].parameter_count
    assert found[2].communication["all_reduce_seconds"] > 0
    assert re.search(r"^1n2d +\([\d.,]+\)", ended.stdout, re.MULTILINE), "a rate in brackets, since nothing is proven"


@pytest.mark.slow
def test_strong_scaling_divides_the_global_batch(tmp_path):
    compare(tmp_path, "--nproc-per-node", "1,2,4", "--global-batch-size", 8)
    found = records(tmp_path / "out")
    sizes = {r.job.world_size: (r.job.batch_size, r.windows[0].samples // r.windows[0].steps) for r in found}
    assert sizes == {1: (8, 8), 2: (4, 8), 4: (2, 8)}


@pytest.mark.slow
def test_the_slowest_rank_counts_and_the_skew_is_recorded(tmp_path):
    words = ["--set", "behave=slow", "--set", "rank=1", "--set", "clock=virtual", "--set", "step_seconds=0.1"]
    compare(tmp_path, "--nproc-per-node", 2, *words)
    (record,) = records(tmp_path / "out")
    for window in record.windows:
        assert window.seconds == pytest.approx(2 * 0.2)
        assert window.skew_seconds == pytest.approx(2 * 0.1)


FAULTS = {
    "crash": ("crash", "rank 1 on {host}: RuntimeError: the fake framework crashed, as asked"),
    "killed": ("killed", "rank 1 on {host}: ended by signal 9 (SIGKILL)"),
    "out_of_memory": ("out_of_memory", "rank 1 on {host}: MemoryError: the fake framework ran out of memory, as asked"),
    "nan": ("nan", "rank 1 on {host}: NotFinite: the loss is nan after step 1"),
}


@pytest.mark.slow
def test_a_port_that_somebody_has_taken_is_a_row_that_names_who_needed_it(tmp_path):
    """Between the moment that it was found free and the framework's own bind."""
    compare(tmp_path, "--nproc-per-node", 2, "--set", "behave=port_taken", "--set", "rank=0")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "port_taken"
    assert record.failure.message.startswith(f"rank 0 on {record.hosts[0]}: OSError: ")
    assert not left_behind(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("behave", FAULTS)
def test_a_fault_of_one_rank_is_a_row_that_names_it(tmp_path, behave):
    compare(tmp_path, "--nproc-per-node", 2, "--set", f"behave={behave}", "--set", "rank=1")
    (record,) = records(tmp_path / "out")
    kind, message = FAULTS[behave]
    assert (record.failure.kind, record.failure.message) == (kind, message.format(host=record.hosts[1]))
    assert not left_behind(tmp_path)


@pytest.mark.slow
def test_a_rank_that_hangs_ends_with_the_timeout_and_is_named(tmp_path, monkeypatch):
    time_is_up_when(monkeypatch, lambda: "sleep 1000 " in working_in(tmp_path))
    compare(tmp_path, "--nproc-per-node", 2, "--set", "behave=hang", "--set", "rank=1")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "timeout"
    assert "rank 1 on" in record.failure.message
    assert not left_behind(tmp_path)


@pytest.mark.slow
def test_a_killed_command_leaves_no_rank_behind(tmp_path):
    words = command("compare", *FAKE, "--nproc-per-node", 3, "--set", "step_seconds=5", "-o", tmp_path / "out")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(left_behind(tmp_path)) >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not left_behind(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [16, pytest.param(64, marks=pytest.mark.long)])
def test_many_ranks_start_and_end_on_one_machine(ranks, tmp_path):
    ended = compare(tmp_path, "--nproc-per-node", ranks, "-b", 1)
    assert ended.returncode == 0, ended.stdout
    (record,) = records(tmp_path / "out")
    assert record.windows[0].samples == ranks * 2


def test_the_loaders_of_all_ranks_add_up():
    ranks = [Stream(input={"samples": samples, "seconds": seconds}) for samples, seconds in ((80, 2.0), (120, 2.5))]
    assert events.merged(ranks).input == {"samples": 200, "seconds": 2.5}
    assert events.merged([Stream(), Stream()]).input == {}


def test_the_slowest_product_of_several_hosts_is_told_with_its_rank():
    told = [{"size": 512, "large_size": size, "large_seconds": seconds} for size, seconds in [(1000, 0.1), (2000, 1.6)]]
    apart = [Stream(start={"machine": {"host": f"node{n}"}}, product=one) for n, one in enumerate(told, 1)]
    assert events.merged(apart).product == {**told[0], "slowest_rank": 1, "slowest_share": 0.5}
    together = [replace(one, start={}) for one in apart]
    assert events.merged(together).product == told[0]
    assert events.merged([apart[0], replace(apart[1], product={})]).product == told[0]


def test_ranks_end_with_what_started_them_before_python_runs_in_them(tmp_path):
    """`sleep` asks for nothing; a rank that is still a shell does not either."""
    words = [sys.executable, "-m", "dlperf.adapters.spawn", "2", "sleep", "1000"]
    process = subprocess.Popen(words, cwd=tmp_path)
    wait_for(lambda: working_in(tmp_path).count("sleep 1000 ") == 2)
    process.kill()
    process.wait()
    wait_for(lambda: working_in(tmp_path) == [])
