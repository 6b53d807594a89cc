"""One Docker engine for all tests that need one."""

import os
from pathlib import Path

import pytest
from bed import Bed, missing


@pytest.fixture(scope="session")
def bed(tmp_path_factory):
    """A Bed that is up. DLPERF_TEST_DOCKER names a folder that keeps its images for the next time."""
    if reason := missing():
        pytest.skip(reason)
    kept = os.environ.get("DLPERF_TEST_DOCKER")
    with Bed(Path(kept) if kept else tmp_path_factory.mktemp("docker")) as up:
        yield up
