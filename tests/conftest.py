"""Options of the test run, and what all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from processors import BF16

from dlperf.adapters import cpu
from dlperf.given import VARIABLES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the code makes")
    parser.addoption("--faults", type=int, default=10, help="how many times the short campaign the long one is")
    parser.addoption("--faults-seed", default="20261124", help="of the campaign of tests/faults")


def pytest_configure() -> None:
    """Ctrl-C interrupts, also where a shell started the tests in the background and had it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings() -> Iterator[None]:
    """Tests have neither the user's settings of git, nor the repository of a hook or the allocation that runs them."""
    with pytest.MonkeyPatch.context() as patch:
        foreign = ("GIT_", "DLPERF_ADAPTERS", "DLPERF_LAUNCHER", "NNODES", "NODE_RANK")
        for name in [name for name in os.environ if name.startswith(foreign) or name in VARIABLES]:
            patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process a processor that has it, whichever runs the tests."""
    monkeypatch.setattr(cpu, "flags", lambda: BF16)
