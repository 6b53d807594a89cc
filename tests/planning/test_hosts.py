"""--hosts and hostfiles: what is allowed, and what is said of the rest."""

import pytest

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
    "line", ["node2 slots=", "node2 slots=many", "node2 cpus=4", "node2:0", "node2:x", "no;de", ":4"]
)
def test_a_malformed_line_is_named(tmp_path, line):
    found, (problem,) = from_text(tmp_path, f"node1\n# comment\n{line}\n")
    assert found == (Host("node1", None),)
    assert "line 3" in problem
    assert line in problem


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


def test_names_that_do_not_resolve_are_found():
    assert list(hosts.unknown([Host("127.0.0.1", None), Host("no-such-host.invalid", None)])) == [
        "no-such-host.invalid"
    ]
