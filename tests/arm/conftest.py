"""One arm64 Debian for all tests that need one."""

import os
from pathlib import Path

import pytest
from debian import Debian, missing


@pytest.fixture(scope="session")
def debian(tmp_path_factory):
    """DLPERF_TEST_ARM names a folder that keeps it, with the frameworks' packages, for the next time."""
    if reason := missing():
        pytest.skip(reason)
    kept = os.environ.get("DLPERF_TEST_ARM")
    return Debian(Path(kept) if kept else tmp_path_factory.mktemp("arm"))
