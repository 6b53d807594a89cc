"""`python -m dlperf.images`: builds, lists, runs and inspects the images of the frameworks."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import os
import sys
from collections.abc import Sequence

from dlperf.catalog.adapter import DEVICES, Adapter
from dlperf.catalog.reader import adapters
from dlperf.cli import Parser, exit_code, named, say, tell
from dlperf.docker import build, dockerfile, engine
from dlperf.docker.build import BUILDERS
from dlperf.docker.dockerfile import PREFIX
from dlperf.docker.engine import Image
from dlperf.envs import wheels
from dlperf.errors import Problem, RunError, UsageError
from dlperf.launchers import containers
from dlperf.launchers.containers import Container
from dlperf.shell import quote
from dlperf.words import columns


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m dlperf.images`; returns the exit status."""
    return exit_code(lambda: _command(arguments))


def parser() -> Parser:
    made = Parser(prog="python -m dlperf.images", description="Images of the frameworks.")
    made.add_argument("verb", choices=["build", "list", "run", "inspect"], help="what to do")
    made.add_argument("names", nargs="*", metavar="NAME", help="an adapter; default: those of dlperf compare")
    made.add_argument("--device", choices=DEVICES, help="default: cpu, and to list both")
    about = "instead of the public image of Python: one that has the adapter's Python, with venv and pip"
    made.add_argument("--base-image", metavar="REF", default="", help=about)
    made.add_argument("--builder", choices=BUILDERS, default="docker", help="default: docker")
    made.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    return made


def _command(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = adapters(given)
    cut = given.index("--") if "--" in given else len(given)
    asked = parser().parse_args(given[:cut])
    chosen = named(asked.names, known) or [one for one in known.values() if one.default]
    store = BUILDERS[asked.builder]
    if asked.verb == "list":
        devices = [asked.device] if asked.device else list(DEVICES)
        print(_table(store, [(one, key) for one in chosen for key in devices if one.has_lock(key)]))
        return 0
    pairs = [(one, asked.device or "cpu") for one in chosen]
    for one, key in pairs:
        if not one.has_lock(key):
            raise RunError("environment", f"{one.name} has no environment {key}, so no image of it can be built")
    if asked.verb == "build":
        return _build_all(pairs, asked.builder, asked.base_image, asked.dry_run)
    if asked.verb == "inspect":
        return _inspect(store, pairs)
    if len(pairs) != 1:
        raise UsageError([Problem("NAME", " ".join(asked.names), says="name one adapter, whose image is to run.")])
    return _run(store, *pairs[0], given[cut + 1 :], asked.dry_run)


def _build_all(pairs: Sequence[tuple[Adapter, str]], builder: str, base: str, dry_run: bool) -> int:
    """1 if one failed, which is said; the others are built."""
    failed = 0
    for adapter, key in pairs:
        if dry_run:
            line = build.shell(builder, adapter, key, wheels.folder(adapter, key), base)
            print(f"# {dockerfile.name(adapter, key)}", *wheels.commands(adapter, key), line, sep="\n")
            continue
        try:
            _build(adapter, key, builder, base)
        except RunError as error:
            failed = 1
            tell(error)
    return failed


def _build(adapter: Adapter, key: str, builder: str, base: str) -> None:
    program, name = build.program(builder), dockerfile.name(adapter, key)
    folder = wheels.fetch(adapter, key, say)
    say(f"{adapter.name} {key}: building {name}")
    build.build(program, builder, adapter, key, folder, base)
    say(f"{adapter.name} {key}: built {name}")


def _table(store: str, pairs: Sequence[tuple[Adapter, str]]) -> str:
    found: dict[str, Image] = {}
    state = "not built"
    try:
        found = {one.reference: one for one in engine.local(store, PREFIX)}
    except RunError as error:
        state = "no engine"
        print(f"{store}: {error}", file=sys.stderr)
    rows = [("adapter", "device", "state", "size", "created", "image")]
    for adapter, key in pairs:
        image = found.get(dockerfile.name(adapter, key))
        told = ("built", image.labels["size"], image.created) if image else (state, "-", "-")
        rows.append((adapter.name, key, *told, dockerfile.name(adapter, key)))
    return columns(rows)


def _inspect(store: str, pairs: Sequence[tuple[Adapter, str]]) -> int:
    for adapter, key in pairs:
        image = _built(store, adapter, key)
        told = {"image": image.reference, "digest": image.digest, "size": f"{image.bytes / 1e9:.2f} GB"}
        for field, value in {**told, "created": image.created, **dict(sorted(image.labels.items()))}.items():
            print(f"{field}: {value}")
        print()
    return 0


def _built(store: str, adapter: Adapter, key: str) -> Image:
    image = engine.find(store, dockerfile.name(adapter, key))
    if image is None:
        step = f"python -m dlperf.images build {adapter.name} --device {key}"
        raise RunError("environment", f"{dockerfile.name(adapter, key)} is not built: {step}")
    return image


def _run(store: str, adapter: Adapter, key: str, command: Sequence[str], dry_run: bool) -> int:
    """A command, or a shell, in the image, with the working folder mounted as a run's is."""
    words = " ".join(map(quote, command or ["sh"]))
    one = Container(store, dockerfile.name(adapter, key), key)
    text = containers.script(one, "$PWD", words, terminal=sys.stdin.isatty() and sys.stdout.isatty())
    if dry_run:
        print(text, end="")
        return 0
    _built(store, adapter, key)
    sys.stdout.flush()
    os.execvp("sh", ["sh", "-c", text])


if __name__ == "__main__":
    sys.exit(main())
