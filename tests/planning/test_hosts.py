"""--hosts and hostfiles: what is allowed, and what is said of the rest."""

import os
from pathlib import Path

import pytest

from dlperf.errors import UsageError
from dlperf.planning import hosts
from dlperf.planning.hosts import Host


def from_text(tmp_path, text):
    (tmp_path / "hosts").write_text(text)
    problems = []
    return hosts.from_file(str(tmp_path / "hosts"), problems), [str(problem) for problem in problems]


def test_a_flag_names_hosts_with_or_without_slots():
    problems = []
    assert hosts.from_flag("a, b:4,10.0.0.3:1", problems) == (Host("a", None), Host("b", 4), Host("10.0.0.3", 1))
    assert not problems


def test_a_hostfile_as_open_mpi_has_it(tmp_path):
    text = "# the cluster\nnode1 slots=8\nnode2 slots=8 max_slots=16\n\nnode3\nnode4:2  # small\n"
    found, problems = from_text(tmp_path, text)
    assert found == (Host("node1", 8), Host("node2", 8), Host("node3", None), Host("node4", 2))
    assert not problems


@pytest.mark.parametrize(
    "line",
    [
        *("node2 slots=", "node2 slots=many", "node2 cpus=4", "node2:0", "node2:x", "no;de", ":4"),
        *(
            "node2 slots=0",
            "node2 slots=-1",
            "node2 slots=" + "9" * 5000,
            "node2 slots=２",
            "-oProxyCommand",
            "n" * 300,
        ),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line):
    found, (problem,) = from_text(tmp_path, f"node1\n# comment\n{line}\n")
    assert found == (Host("node1", None),)
    assert "line 3" in problem
    assert line[:1000] in problem


def test_a_host_that_stands_twice_is_named_with_both_places(tmp_path):
    _, (problem,) = from_text(tmp_path, "node1\nnode2\nnode1 slots=2\n")
    assert "line 3" in problem
    assert "named twice, first in " in problem
    assert "line 1. Name it once." in problem


def test_an_empty_file_and_one_that_is_not_there_are_told(tmp_path):
    _, (problem,) = from_text(tmp_path, "# nobody\n")
    assert "it names no host" in problem
    problems = []
    assert hosts.from_file(str(tmp_path / "none"), problems) == ()
    assert "No such file" in str(problems[0])
    assert hosts.from_file("\0", problems) == ()
    assert "is no name of a file" in str(problems[1])


def test_names_that_do_not_resolve_are_found():
    assert list(hosts.unknown([Host("127.0.0.1", None), Host("no-such-host.invalid", None)])) == [
        "no-such-host.invalid"
    ]


@pytest.mark.parametrize("name", ["a..b", "n" * 70])
def test_a_name_that_no_resolver_takes_is_unknown(name):
    assert list(hosts.unknown([Host(name, None)])) == [name]


def test_what_is_no_file_of_hosts_is_one_message_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("node1\n" * 200_000)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "zeros").write_bytes(bytes(100))
    says = {
        tmp_path / "pipe": "no regular file",
        Path("/dev/zero"): "no regular file",
        tmp_path: "a folder",
        tmp_path / "large": "more than 1,000,000 bytes",
        tmp_path / "binary": "not a text file",
        tmp_path / "zeros": "not a text file",
    }
    for path, words in says.items():
        problems = []
        assert hosts.from_file(str(path), problems) == ()
        (problem,) = problems
        assert words in str(problem), path


def test_a_file_with_something_wrong_on_each_line_is_a_message_that_can_be_read(tmp_path):
    (tmp_path / "hosts").write_text("no;de\n" * 10_000)
    problems = []
    hosts.from_file(str(tmp_path / "hosts"), problems)
    said = str(UsageError(problems)).splitlines()
    assert len(said) == 51
    assert said[-1] == "... and 9,950 more."
