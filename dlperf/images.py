"""Images of the frameworks: built from the locks of their environments, or taken from a registry.

Ours is called dlperf/<adapter>:<key>-<digest>, where the digest is of the environment and of the Dockerfile, so that an
image of another lock is never taken for this one. dlperf is not inside: each run mounts the code that it uses.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import dlperf.docker
from dlperf import __version__, cache
from dlperf.catalog import locks
from dlperf.catalog.adapter import DEVICES, Adapter
from dlperf.catalog.reader import adapters
from dlperf.docker import engine
from dlperf.docker.engine import Image
from dlperf.envs import wheels
from dlperf.envs.environment import Environment, Progress
from dlperf.errors import Problem, RunError, UsageError, did_you_mean, heed_signals
from dlperf.launchers import containers
from dlperf.launchers.containers import NGC, SCHEMES, Container
from dlperf.shell import quote

#: public images of Python, by minor version: the newest when the locks were made. The same for all machines.
BASES = {
    "3.10": "python:3.10-slim-bookworm@sha256:68d914ec641a0b69267ce65184d000a2bc3a9ee2590ab702b82250ab2385735a",
    "3.11": "python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b",
}
#: builder -> the engine that has its images
BUILDERS = {"docker": "docker", "buildah": "podman", "podman": "podman"}
PREFIX = "dlperf/"
#: where an image has its environment
PLACE = "/opt/dlperf"
#: of the Dockerfiles
FOLDER = Path(dlperf.docker.__path__[0])


# --- names and texts: pure --------------------------------------------------------------------------------------------


def dockerfile(adapter: Adapter, key: str) -> str:
    """The Dockerfile of an environment."""
    from jinja2 import Environment as Templates
    from jinja2 import StrictUndefined

    spec = adapter.environments[key]
    packages = f"{PLACE}/lib/python{spec.python[0]}/site-packages"
    template = (FOLDER / "Dockerfile.j2").read_text(encoding="utf-8")
    return (
        Templates(undefined=StrictUndefined, keep_trailing_newline=True)
        .from_string(template)
        .render(
            title=adapter.title,
            adapter=adapter.name,
            device=key,
            python=spec.python[0],
            packages=_packages(adapter, key),
            base=BASES.get(spec.python[0], f"python:{spec.python[0]}-slim-bookworm"),
            variables=[
                (name, value.replace("{site_packages}", packages)) for name, value in (spec.variables or {}).items()
            ],
        )
    )


def _packages(adapter: Adapter, key: str) -> tuple[str, ...]:
    return adapter.images[key].packages if key in adapter.images else ()


def name(adapter: Adapter, key: str) -> str:
    """Our image of an environment. RunError if its lock cannot be read."""
    both = f"{locks.digest(adapter, key)}\0{dockerfile(adapter, key)}"
    return f"{PREFIX}{adapter.name}:{key}-{hashlib.sha256(both.encode()).hexdigest()[:12]}"


def _asked(adapter: Adapter, chosen: Mapping[str, str]) -> str:
    """What --image says of an adapter. chosen: as Spec.images."""
    return chosen.get(adapter.name) or chosen.get("", "")


def _reference(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str]) -> str:
    """What the engine is told, before anything is pulled: for apptainer a file or a registry's image."""
    asked = _asked(adapter, chosen)
    if asked == NGC:
        asked = adapter.images[key.partition("-")[0]].ngc
        return f"docker://{asked}" if kind == "apptainer" else asked
    return asked or name(adapter, key)


def _file(reference: str) -> Path:
    """Where apptainer's file of a registry's image, or of ours, is kept."""
    plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in reference)
    return cache.folder() / "sif" / f"{plain}.sif"


def _is_file(reference: str) -> bool:
    return not reference.startswith((*SCHEMES, PREFIX))


def planned(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str]) -> Environment:
    """The environment that `ensure` would return. Runs nothing."""
    reference = _reference(adapter, key, kind, chosen)
    image = str(_file(reference)) if kind == "apptainer" and not _is_file(reference) else reference
    spec = adapter.environments.get(key)
    given = (spec.variables or {}) if spec else {}
    # our images set all by themselves; in others, paths in an environment of ours mean nothing
    variables = {name: value for name, value in given.items() if "{site_packages}" not in value}
    version = spec.python[0] if spec else ""
    return Environment(adapter.name, key, kind, Path("python"), version, "", None, variables, image)


def commands(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str]) -> list[str]:
    """The shell commands by which an image comes to this machine."""
    reference = _reference(adapter, key, kind, chosen)
    ours = reference.startswith(PREFIX)
    made = [f"python -m dlperf.images build {adapter.name} --device {key}"] if ours else []
    if kind == "apptainer":
        source = f"docker-daemon:{reference}" if ours else reference
        verb = "build" if ours else "pull"
        return made + ([] if _is_file(reference) else [f"apptainer {verb} {quote(_file(reference))} {quote(source)}"])
    return made or [f"{kind} pull {quote(reference)}"]


# --- the environment of a run -----------------------------------------------------------------------------------------

_turn = threading.Lock()


def ensure(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str], progress: Progress) -> Environment:
    """The image, asked for its Python and its framework. RunError says why it cannot be had; none is built."""
    with _turn:  # one engine, one network: two at a time gain nothing
        try:
            return _ensure(adapter, key, kind, chosen, progress)
        except RunError as error:
            raise RunError(error.kind, f"{adapter.name} {key}: {error}", error.lines) from None


def _ensure(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str], progress: Progress) -> Environment:
    wanted = planned(adapter, key, kind, chosen)
    found = engine.find(kind, wanted.image)
    if found is None:
        reference = _reference(adapter, key, kind, chosen)
        if reference.startswith(PREFIX):
            steps = " && ".join(commands(adapter, key, kind, chosen))
            raise RunError("environment", f"its image {reference} is not built: {steps}")
        progress(f"{adapter.name} {key}: pulling {reference}")
        _pull(kind, reference, wanted.image)
        found = engine.find(kind, wanted.image)
    if found is None:
        raise RunError("environment", f"{wanted.image} was pulled, and is not there")
    python = engine.ask(kind, wanted.image, [*adapter.distribution, adapter.name])
    return Environment(
        adapter.name, key, kind, wanted.python, python, found.digest, None, wanted.variables, wanted.image, found.public
    )


def _pull(kind: str, reference: str, image: str) -> None:
    if kind != "apptainer":
        engine.pull(kind, reference)
        return
    Path(image).parent.mkdir(parents=True, exist_ok=True)
    aside = f"{image}.{os.getpid()}"
    asked = engine.call(kind, "pull", aside, reference, timeout=7200.0)
    if asked.returncode:
        Path(aside).unlink(missing_ok=True)
        raise engine.explained(kind, reference, asked.stderr)
    os.replace(aside, image)


def check(env: Environment) -> None:
    """Cheap: RunError if the image has vanished since."""
    there = Path(env.image).exists() if env.kind == "apptainer" else engine.find(env.kind, env.image) is not None
    if not there:
        raise RunError("environment", f"{env.adapter} {env.key}: its image {env.image} has vanished")


# --- building ---------------------------------------------------------------------------------------------------------


def labels(adapter: Adapter, key: str, base: str) -> dict[str, str]:
    """What an image says of itself. Given on the command line, so that a new revision does not build anew."""
    lock = adapter.environments[key].lock
    packages = [one for one in locks.read(lock) if one.name in adapter.distribution]
    return {
        "dlperf.adapter": adapter.name,
        "dlperf.device": key,
        "dlperf.lock": "sha256:" + hashlib.sha256(lock.read_bytes()).hexdigest(),
        "dlperf.python": adapter.environments[key].python[0],
        "dlperf.versions": ", ".join(map(str, packages)),
        "dlperf.base": base,
        "dlperf.version": __version__,
        "org.opencontainers.image.revision": _revision(),
        "org.opencontainers.image.title": f"{adapter.title} for dlperf, {key}",
    }


def _revision() -> str:
    """Of the source that builds, or "unknown"."""
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [
            "git",
            "-C",
            str(Path(__file__).parent),
            "describe",
            "--always",
            "--dirty",
            "--abbrev=40",
            "--exclude=*",
        ]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return asked.stdout.strip() or "unknown"
    return "unknown"


def build_command(builder: str, adapter: Adapter, key: str, base: str = "") -> list[str]:
    """The builder's command, in the folder of wheels, with the Dockerfile on its standard input."""
    shown = base or BASES.get(adapter.environments[key].python[0], "")
    words = [builder, "build", "--file", "-", "--tag", name(adapter, key)]
    # apt may be asked: by the machine's network, as a daemon need not have another
    words += ["--network", "host" if _packages(adapter, key) else "none"]
    words += ["--progress", "plain"] if builder == "docker" else ["--layers"]
    words += ["--build-arg", f"BASE={base}"] if base else []
    for label, value in labels(adapter, key, shown).items():
        words += ["--label", f"{label}={value}"]
    return [*words, str(wheels.folder(adapter, key))]


def build_commands(builder: str, adapter: Adapter, key: str, base: str = "") -> list[str]:
    """The shell commands of a build."""
    command = " ".join(map(quote, build_command(builder, adapter, key, base)))
    kit = "DOCKER_BUILDKIT=1 " if builder == "docker" else ""
    file = FOLDER / f"{adapter.name}.{key}.Dockerfile"
    source = f"< {quote(os.path.relpath(file))}" if file.exists() else f"<<'END'\n{dockerfile(adapter, key)}END"
    return [*wheels.commands(adapter, key), f"{kit}{command} {source}"]


def build(builder: str, adapter: Adapter, key: str, base: str, progress: Progress) -> str:
    """Build an image and return its name. RunError says what went wrong."""
    command = build_command(builder, adapter, key, base)
    if builder == "docker":
        command[0] = _docker_with_buildkit()
    elif shutil.which(builder) is None:
        raise engine.missing(builder, "choose another --builder")
    if builder != "buildah":
        list(engine.local(builder, PREFIX))  # whether it answers, before anything is downloaded
    wheels.fetch(adapter, key, progress)
    progress(f"{adapter.name} {key}: building {name(adapter, key)}")
    lines = []
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(dockerfile(adapter, key))
                process.stdin.close()
            lines = [line.rstrip() for line in process.stdout]
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = base or BASES.get(adapter.environments[key].python[0], "its base image")
        raise engine.explained(BUILDERS[builder], shown, "\n".join(lines), f"{adapter.name} {key}")
    return name(adapter, key)


def _docker_with_buildkit() -> str:
    """The first docker on PATH that builds with BuildKit: by its plug-in buildx, or, before version 23, by itself."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [path for path in dict.fromkeys(str(Path(folder, "docker")) for folder in folders if folder)]
    there = [path for path in found if os.access(path, os.X_OK)]
    if not there:
        raise engine.missing("docker", "choose another --builder")
    for path in there:
        if engine.call(path, "buildx", "version").returncode == 0:
            return path
        version = engine.call(path, "--version").stdout
        major = version.partition("version ")[2].partition(".")[0]
        if major.isdigit() and 18 < int(major) < 23:
            return path
    raise engine.explained("docker", "", "buildx component is missing", " and ".join(there))


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m dlperf.images`; returns the exit status."""
    heed_signals()
    try:
        return _command(arguments)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except RunError as error:
        _tell(error)
        return 1
    except KeyboardInterrupt:
        return 130


def _command(arguments: Sequence[str] | None) -> int:
    known = adapters()
    parser = argparse.ArgumentParser(prog="python -m dlperf.images", description="Images of the frameworks.")
    parser.add_argument("verb", choices=["build", "list", "run", "inspect"], help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="an adapter; default: those of dlperf compare")
    parser.add_argument("--device", choices=DEVICES, help="default: cpu, and to list both")
    about = "instead of the public image of Python: one that has the adapter's Python, with venv and pip"
    parser.add_argument("--base-image", metavar="REF", default="", help=about)
    parser.add_argument("--builder", choices=BUILDERS, default="docker", help="default: docker")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    asked = parser.parse_args(given[:cut])
    chosen = _chosen(asked.names, known)
    store = BUILDERS[asked.builder]
    if asked.verb == "list":
        devices = [asked.device] if asked.device else list(DEVICES)
        print(_table(store, [(one, key) for one in chosen for key in devices if _possible(one, key)]))
        return 0
    pairs = [(one, asked.device or "cpu") for one in chosen]
    for one, key in pairs:
        if not _possible(one, key):
            raise RunError("environment", f"{one.name} has no environment {key}, so no image of it can be built")
    if asked.verb == "build":
        return _build_all(pairs, asked.builder, asked.base_image, asked.dry_run)
    if asked.verb == "inspect":
        return _inspect(store, pairs)
    if len(pairs) != 1:
        raise UsageError([Problem("NAME", " ".join(asked.names), "one adapter, to run its image")])
    return _run(store, *pairs[0], given[cut + 1 :], asked.dry_run)


def _chosen(names: Sequence[str], known: Mapping[str, Adapter]) -> list[Adapter]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(Problem("NAME", name, ", ".join(known), did_you_mean(name, known)) for name in unknown)
    return [known[name] for name in dict.fromkeys(names)] or [one for one in known.values() if one.default]


def _possible(adapter: Adapter, key: str) -> bool:
    return key in adapter.environments and adapter.environments[key].lock.exists()


def _say(line: str) -> None:
    print(line, flush=True)


def _tell(error: RunError) -> None:
    print("".join(f"  {line}\n" for line in error.lines) + f"error: {error}", file=sys.stderr, flush=True)


def _build_all(pairs: Sequence[tuple[Adapter, str]], builder: str, base: str, dry_run: bool) -> int:
    """1 if one failed, which is said; the others are built."""
    failed = 0
    for adapter, key in pairs:
        if dry_run:
            print(f"# {name(adapter, key)}", *build_commands(builder, adapter, key, base), sep="\n")
            continue
        try:
            _say(f"{adapter.name} {key}: built {build(builder, adapter, key, base, _say)}")
        except RunError as error:
            failed = 1
            _tell(error)
    return failed


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
        image = found.get(name(adapter, key))
        told = ("built", image.labels["size"], image.created) if image else (state, "-", "-")
        rows.append((adapter.name, key, *told, name(adapter, key)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _inspect(store: str, pairs: Sequence[tuple[Adapter, str]]) -> int:
    for adapter, key in pairs:
        image = _built(store, adapter, key)
        told = {"image": image.reference, "digest": image.digest, "size": f"{image.bytes / 1e9:.2f} GB"}
        for field, value in {**told, "created": image.created, **dict(sorted(image.labels.items()))}.items():
            print(f"{field}: {value}")
        print()
    return 0


def _built(store: str, adapter: Adapter, key: str) -> Image:
    image = engine.find(store, name(adapter, key))
    if image is None:
        step = f"python -m dlperf.images build {adapter.name} --device {key}"
        raise RunError("environment", f"{name(adapter, key)} is not built: {step}")
    return image


def _run(store: str, adapter: Adapter, key: str, command: Sequence[str], dry_run: bool) -> int:
    """A command, or a shell, in the image, with the working folder mounted as a run's is."""
    words = " ".join(map(quote, command or ["sh"]))
    one = Container(store, name(adapter, key), key)
    text = containers.script(one, "$PWD", words, terminal=sys.stdin.isatty() and sys.stdout.isatty())
    if dry_run:
        print(text, end="")
        return 0
    _built(store, adapter, key)
    sys.stdout.flush()
    os.execvp("sh", ["sh", "-c", text])


if __name__ == "__main__":
    sys.exit(main())
