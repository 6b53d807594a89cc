"""A framework whose children will not die, and what of a comparison's processes is alive."""

import contextlib
import os
import shutil
import time
from pathlib import Path

from places import ROOT
from processes import alive

#: what trains: the framework that sleeps, which has started children as soon as it is imported. Those ignore signals,
#: have a session of their own, are daemons elsewhere on the disk, and fork for ten seconds, faster than anybody looks.
MODULE = """\
import os, subprocess, sys, time
from dlperf.adapters.stubborn.resnet import build, product, versions

CHILDREN = '''
import os, signal, sys, time
def stay(ignores, daemon):
    if os.fork():
        return
    if daemon:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if ignores else ():
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)
    os._exit(0)
def run_away():
    if os.fork():
        return
    for _ in range(2000):
        if os.fork():
            os._exit(0)
        time.sleep(0.005)
for ignores in (False, True):
    for daemon in (False, True):
        stay(ignores, daemon)
run_away()
'''
#: the folder is in its command line, by which it is found wherever it works
subprocess.call([sys.executable, "-IS", "-c", CHILDREN, os.getcwd()])
time.sleep(0.2)
"""


def adapter(folder):
    """The framework, in a folder for DLPERF_ADAPTERS."""
    made = shutil.copytree(
        ROOT / "adapters" / "fake", folder / "stubborn", ignore=shutil.ignore_patterns("__pycache__")
    )
    (made / "bert.py").write_text(MODULE)
    return folder


def of_comparison(folder):
    """Processes that work in its folder or name it in their command line, with that line, but for this one."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = (process / "cwd").readlink().is_relative_to(folder.resolve())
            if (inside or str(folder) in words) and pid != os.getpid() and alive(pid):
                found[pid] = words
    return found


def left(folder):
    """Those that are alive after 2 s; more where this machine is so busy that 200 short sleeps take longer."""
    for _ in range(200):
        if not of_comparison(folder):
            return {}
        time.sleep(0.01)
    return of_comparison(folder)
