"""Options of the test run, and what all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the code makes")


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings() -> Iterator[None]:
    """Tests have neither the user's settings of git, nor the repository of a hook or the allocation that runs them."""
    with pytest.MonkeyPatch.context() as patch:
        foreign = ("GIT_", "DLPERF_ADAPTERS", "DLPERF_LAUNCHER", "NNODES", "NODE_RANK")
        for name in [name for name in os.environ if name.startswith(foreign)]:
            patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield
