"""What must be so before anything else of the core can be imported; each command imports this module first."""

import signal
import sys


def running() -> bool:
    """Whether this process is one of our commands, not one that imports it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.partition(".")[0] == "dlperf"


# until a command handles signals, Ctrl-C ends it without a traceback of what it was importing
if running() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lacking() -> str:
    """What is missing, and what to do; empty where nothing is."""
    import platform
    from importlib.util import find_spec

    import dlperf

    if platform.system() != "Linux":  # on Windows the modules do not even import
        places = "a Linux container or virtual machine (on Windows: WSL 2)"
        return f"dlperf needs Linux; on macOS or Windows run it in {places}"
    if getattr(dlperf, "__file__", None) is None:  # a folder of that name, such as the clone, seen from above
        folder = next(iter(dlperf.__path__))
        return f"{folder}: Python takes this folder for the package dlperf. Run the command in it, or somewhere else."
    if not (find_spec("dlperf.launchers") and find_spec("msgspec")):
        step = "In the clone: make setup, then . .venv/bin/activate, or run .venv/bin/python"
        return f"dlperf is not installed for {sys.executable}. {step}."
    return ""


if why := lacking():
    sys.exit(why)
