"""What the command lines of several commands share."""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from dlperf import __version__
from dlperf.errors import (
    ENDING,
    Problem,
    RunError,
    UsageError,
    clean,
    did_you_mean,
    handle_signals,
    interrupted_code,
    interrupts,
    nearest,
    unprintable,
)
from dlperf.needs import running

Named = TypeVar("Named")

#: of `dlperf COMMAND`, each a module with `parser` and `main`
COMMANDS = {
    "archive": "pack a comparison into one file that anybody can check, check it, sign it",
    "audit": "look for what is wrong in published figures, tables and comparisons",
    "compare": "train the same models in several frameworks and report who was faster",
    "completion": "print what makes a shell complete commands, options and values",
    "data": "prepare text for BERT and images for ResNet",
    "diff": "say whether B's rows are slower than A's, what changed, and how sure that is",
    "doctor": "say what this machine is, which rows run on it, and what a comparison takes",
    "envs": "list, install and remove the frameworks' environments",
    "images": "build, list, run and inspect the frameworks' images",
    "importlogs": "read the figures in logs of others' training scripts, with file and line of each",
    "list": "list frameworks, models, options, and what is supported where",
    "publish": "put a comparison that is fit for it among published ones, with its archive",
    "repeat": "make a finished run again, in a new folder, and print its rate",
    "report": "render reports again, also of what others published",
    "scaling": "hold the model of scaling against DLPerf's published tables",
    "show": "show a comparison's rows, or all runs of one row",
    "site": "make a site of static pages over a folder of published reports",
    "table": "print the small tables of a comparison as Markdown, or renew them in a page",
    "verify": "prove that the frameworks do the same work",
    "why": "tell where the steps of two rows differ",
}
#: those that are packages, with a __main__
PACKAGES = frozenset(["archive", "audit", "data", "envs", "importlogs", "report"])


class Parser(argparse.ArgumentParser):
    """argparse, with --version, and a suggestion for a flag that does not exist."""

    def __init__(self, **given: Any):
        super().__init__(**{"allow_abbrev": False, **given})
        self.add_argument("--version", action="version", version=f"dlperf {__version__}")

    def parse_known_args(self, *given: Any, **more: Any) -> Any:  # a subcommand's words come here only
        """Texts that are empty, or that no file, script or report could have as they are, are refused."""
        found, extras = super().parse_known_args(*given, **more)
        for action in self._actions:
            value = getattr(found, action.dest, None)
            for one in value if isinstance(value, list) and value else [value]:
                one = "" if one == [] and action.nargs is None else one  # argparse makes [] of --flag=--
                text = str(one)
                is_given = isinstance(one, (str, Path)) and (one != action.default or value == [])
                wrong = unfit(text) if is_given else ""
                if wrong:
                    flag = max(action.option_strings, key=len, default=action.metavar or action.dest)
                    self.exit(2, f"{flag}: {text!r} {wrong}\n")
        return found, extras

    def error(self, message: str) -> NoReturn:
        flags = {flag.lstrip("-"): flag for action in self._actions for flag in action.option_strings}
        unknown = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        near = [nearest(word.partition("=")[0].lstrip("-"), flags) for word in unknown]
        hints = [f"Did you mean {flags[name]!r}?" for name in near if name]
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            hints += filter(None, [did_you_mean(choice[1], re.findall(r"[^', ]+", choice[2]))])
        if message.endswith("expected one argument"):
            hints.append("Where it begins with a dash, write --flag=VALUE")
        said = f"{self.prog}: {message}. {' '.join(hints)}".rstrip(". ")
        self.exit(2, said + ("\n" if said.endswith("?") else ".\n"))


def unfit(text: str) -> str:
    """Why a text of the command line cannot be used; empty if it can."""
    if not text.strip():
        return "is empty. Give it a value, or leave the flag out."
    why = unprintable(text)
    return f"{why}. Use other names." if why else ""


def exit_code(action: Callable[[], int | None], kept: str = "", interrupted: str = "") -> int:
    """Of a command that `action` carries out: its own; 2 for a wrong request, 1 for a failure on the way or a file that
    can't be written, 130 after Ctrl-C (143 after SIGTERM), 141 where nobody reads what it prints.

    kept: a sentence on what an error leaves. interrupted: one that Ctrl-C prints.
    """
    code = _exit_code(action, kept, interrupted)
    if code in {128 + number for number in ENDING} and running():
        # Python ends by SIGINT where a KeyboardInterrupt, caught or not, came through exec of a text, as in dataclasses
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _exit_code(action: Callable[[], int | None], kept: str, interrupted: str) -> int:
    try:
        handle_signals()
        _open_streams()
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that is not UTF-8 shows what it lacks as \\u2013
            sys.stdout.reconfigure(errors="backslashreplace")
        code = action() or 0
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except RunError as error:
        tell(error)
        return 1
    except (KeyboardInterrupt, RuntimeError) as error:
        if not interrupts(error):
            raise
        print(interrupted, end="\n" if interrupted else "", file=sys.stderr)
        return interrupted_code()
    except BrokenPipeError:  # as `| head` does; Python flushes once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        file = error.filename2 or error.filename or _unnamed()  # of a copy, where it goes
        print(f"{file}: {error.strerror or error}. {kept}".rstrip(), file=sys.stderr)
        return 1
    finally:
        if running():  # what is left is Python's own end, which would print a traceback
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
        else:
            handle_signals()


def _unnamed() -> str:
    """What an error without a file's name is of."""
    try:
        os.getcwd()
    except OSError:
        return "the working folder, which was removed"
    return "output"


def _open_streams() -> None:
    """What a shell closed (`>&-`) goes nowhere: Python has no stream then, and the next file would take its number."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


class Heedless:
    """A stream that goes on where nobody can read it any more: a terminal that is closed, a pipe's end, a full disk.
    What is written from then on is lost."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        """What the stream still holds, and what others write there, goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def heedless() -> Iterator[None]:
    """For what must not end because nobody reads what it prints."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Heedless(out), Heedless(err)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = out, err


def named(names: Sequence[str], known: Mapping[str, Named]) -> list[Named]:
    """Those that a command line names, each once. UsageError for all that are unknown."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(Problem("NAME", name, ", ".join(known), did_you_mean(name, known)) for name in unknown)
    return [known[name] for name in dict.fromkeys(names)]


def say(line: str) -> None:
    """A line of progress, at once."""
    print(line, flush=True)


def tell(error: RunError) -> None:
    """An error, after the last lines of what failed."""
    print(clean("".join(f"  {line}\n" for line in error.lines) + str(error)), file=sys.stderr, flush=True)
