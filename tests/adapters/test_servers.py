"""Parameter servers: where they and their workers are, what a comparison makes of them, and what is left of them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from commands import FAKE, call, records
from processes import left_behind

from dlperf.adapters import ranks
from dlperf.adapters.ranks import Lost, Ranks
from dlperf.runs import events

PS = ("--parallelism", "parameter-server", "--ps-mode")
COUNTS = {"DLPERF_WORKER_COUNT": "2", "DLPERF_SERVER_COUNT": "1"}


def compare(folder, *words, mode="sync"):
    return call("compare", *FAKE, *PS, mode, "-r", 1, "-o", folder / "out", *words)


def meet(folder, role, number, count, environ=COUNTS):
    place = Ranks(number, count, number, count, role=role)
    return lambda: ranks.meet(place, str(folder), "h", 10.0 if environ is COUNTS else 0.1, dict(environ))


def test_servers_and_workers_learn_where_all_are(tmp_path):
    calls = [meet(tmp_path, "worker", 0, 2), meet(tmp_path, "worker", 1, 2), meet(tmp_path, "server", 0, 1)]
    with ThreadPoolExecutor(3) as pool:
        first, second, server = (one.result() for one in [pool.submit(call) for call in calls])
    assert first.workers == second.workers == server.workers == (first.endpoints[0], first.endpoints[1])
    assert first.servers == server.servers == (server.endpoints[0],)
    assert len({*first.workers, *first.servers}) == 3


def test_a_server_that_does_not_come_is_named(tmp_path):
    counts = {"DLPERF_WORKER_COUNT": "1", "DLPERF_SERVER_COUNT": "2"}
    found = meet(tmp_path, "worker", 0, 1, counts)
    with pytest.raises(Lost, match=r"servers 0, 1 of 2 did not come within 0.1 s"):
        found()


@pytest.mark.slow
def test_rows_with_servers_tell_what_these_used(tmp_path):
    ended = compare(tmp_path, "--servers", 2, "--workers", 2, "--set", "step_seconds=0.05", mode="async")
    assert ended.returncode == 0, ended.stderr
    (record,) = records(tmp_path / "out")
    folder = tmp_path / "out" / record.folder
    assert record.windows[0].samples == 2 * record.job.batch_size * record.windows[0].steps
    used = {"host", "seconds", "cpu_seconds", "imported_memory_bytes", "peak_memory_bytes"}
    assert [set(one) for one in record.servers] == [used | {"pushes", "stale_median", "stale_95"}] * 2
    first, second = ((one["pushes"], one["stale_median"], one["stale_95"]) for one in record.servers)
    assert first == second
    assert (first[0] % 2, *first[1:]) == (0, 0, 3)
    assert record.effective["communication"] == "parameter servers (async)"
    assert not record.communication, "there is no all-reduce to probe"
    told = [json.loads(line)["event"] for line in (folder / "events.server1.jsonl").read_text().splitlines()]
    assert told == ["start", "met", "imported", "end"]
    assert {"log.rank0.txt", "log.rank1.txt", "log.server0.txt", "log.server1.txt"} <= {
        p.name for p in folder.iterdir()
    }
    report = (tmp_path / "out" / "report.md").read_text()
    assert "### Parameter servers" in report
    assert "| async | 2 | 2 |" in report
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {one["host"] for one in results["records"][0]["servers"]} == {"host1"}, "no page has a host's name"
    assert not left_behind(tmp_path)


FAULTS = {
    "crash": ("crash", "server 0: RuntimeError: the fake framework crashed, as asked"),
    "killed": ("killed", "server 0 on {host}: ended by signal 9 (SIGKILL)"),
    "out_of_memory": ("out_of_memory", "server 0: MemoryError: the fake framework ran out of memory, as asked"),
}


@pytest.mark.slow
@pytest.mark.parametrize("behave", FAULTS)
def test_a_fault_of_a_server_is_a_row_that_names_it(tmp_path, behave):
    compare(tmp_path, "--workers", 2, "--set", f"behave={behave}", "--set", "rank=server0")
    (record,) = records(tmp_path / "out")
    kind, message = FAULTS[behave]
    assert (record.failure.kind, record.failure.message) == (kind, message.format(host=record.hosts[0]))
    assert not left_behind(tmp_path)


@pytest.mark.slow
def test_a_push_that_a_server_did_not_apply_is_a_failed_row(tmp_path):
    compare(tmp_path, "--workers", 2, "--set", "behave=lost_push", "--set", "rank=server0")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "lost_push"
    sent, applied = map(int, re.findall(r"\d+", record.failure.message))
    assert (sent % 2, sent - applied) == (0, 1)


def test_staleness_is_a_median_and_what_95_percent_are_not_beyond(tmp_path):
    lines = [{"event": "end", "time": 1.0, "pushes": 100, "stale": {"0": 40, "2": 54, "7": 6}}]
    (tmp_path / "events.server0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    used = events.read(tmp_path / "events.server0.jsonl").used
    assert (used["pushes"], used["stale_median"], used["stale_95"]) == (100, 2, 7)


@pytest.mark.slow
def test_a_server_that_does_not_end_by_itself_is_ended_and_its_row_is_whole(tmp_path):
    compare(tmp_path, "--set", "behave=stays")
    (record,) = records(tmp_path / "out")
    assert record.done
    assert record.servers == ()
    assert not left_behind(tmp_path)
    stream = events.read_job(tmp_path / "out" / record.folder, 1, servers=1)
    assert stream.servers[0].start
    assert stream.servers[0].end is None
