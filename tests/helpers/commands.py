"""dlperf's commands, in this process or in one of their own; the framework that sleeps; what a comparison stored."""

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from dlperf.__main__ import PACKAGES
from dlperf.comparison import store

#: one row of the framework that sleeps, without a proof
FAKE = ("--frameworks", "fake", "--env", "current", "--model", "bert_tiny", "--device", "cpu", "--no-verify")


def command(name, *words):
    """What a user types."""
    return [sys.executable, "-m", f"dlperf.{name}", *map(str, words)]


def run(name, *words, timeout=600, **given):
    """A command in a process of its own, to its end."""
    return subprocess.run(command(name, *words), capture_output=True, text=True, timeout=timeout, **given)


def call(name, *words, **environ):
    """The same in this process, with more variables: no interpreter starts, which takes most of a short command."""
    printed, complained = io.StringIO(), io.StringIO()
    redirected = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained)
    with redirected[0], redirected[1], mock.patch.dict(os.environ, environ), _handlers_kept():
        try:
            module = f"dlperf.{name}.__main__" if name in PACKAGES else f"dlperf.{name}"
            code = importlib.import_module(module).main([str(word) for word in words])
        except SystemExit as ended:  # argparse
            code = ended.code
    return subprocess.CompletedProcess(words, code, printed.getvalue(), complained.getvalue())


@contextlib.contextmanager
def _handlers_kept():
    """A command makes its own, of Ctrl-C and SIGTERM."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def records(folder):
    """Those of the comparison in a folder."""
    return list(store.open_folder(Path(folder)).records.values())
