"""Comparisons through the real kubectl, on a stand-in for a cluster (`apiserver`): no real one has run them."""

import os
import shutil
import subprocess
import sys

import pytest
from apiserver import Cluster
from processes import left_behind, wait_for

from dlperf.comparison import store

pytestmark = pytest.mark.cluster

COMPARE = [sys.executable, "-m", "dlperf.compare"]
FAKE = ["--frameworks", "fake", "--env", "current", "--model", "bert_tiny", "--device", "cpu", "--no-verify"]
SIZES = ["--size", "1n1d,2n2d", "-r", 2, "--set", "step_seconds=0.5"]


@pytest.fixture
def cluster(tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on PATH: make test-cluster installs it")
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()
    wait_for(lambda: not left_behind(tmp_path))


def start(cluster, *words):
    given = {"image": "registry.example/dlperf:1", "claim": "bench", "mount": cluster.folder.parent / "volume"}
    given["python"] = sys.executable
    site = [f"{key} = {str(value)!r}" for key, value in given.items()]
    (cluster.folder / "dlperf.toml").write_text("\n".join(["launcher = 'kubernetes'", "[kubernetes]", *site]))
    return subprocess.Popen(
        [*COMPARE, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cluster.folder,
        env={**os.environ, "KUBECONFIG": str(cluster.config), "HOME": str(cluster.folder)},
    )


def ended(process):
    printed, _ = process.communicate(timeout=300)
    return process.returncode, printed


def compare(cluster, *words):
    """Exit code and output."""
    return ended(start(cluster, *FAKE, "-o", out(cluster), *words))


def out(cluster):
    return cluster.folder.parent / "out"


def records(cluster):
    return list(store.open_folder(out(cluster)).records.values())


def there(cluster):
    """The comparison's folder in the pods."""
    (found,) = (cluster.folder.parent / "volume").glob("out-*")
    return found


def test_one_job_holds_all_rows_and_its_results_come_back(cluster):
    code, printed = compare(cluster, *SIZES)
    assert code == 0, printed
    assert [(record.job.size, record.failure) for record in records(cluster)] == [("1n1d", None), ("2n2d", None)] * 2
    assert len(cluster.jobs) == 1
    assert "Report: " in printed
    assert "DLPERF RESULTS" not in printed
    whole = {path.relative_to(there(cluster)) for path in there(cluster).rglob("*") if path.is_file()}
    assert {path for path in whole if path.parts[0] not in ("allocation", "lock")} <= {
        path.relative_to(out(cluster)) for path in out(cluster).rglob("*")
    }
