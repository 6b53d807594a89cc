"""The environments of the adapters: made on first use in the user's cache folder, shared by parallel callers.

An environment is a venv in `<cache>/envs/<adapter>-<key>-<digest>`, where key is its device, with a variant that
some options need ("cpu", "cpu-horovod"), and the digest is that of its lock and of what is built from source. It is
built by uv in a folder beside that one and moved into place whole. Its files are links to those of uv's cache where the
disk allows that. Whoever builds it, and every uv or pip that still writes to it, holds a file lock; so what lies in an
unlocked building folder is left over from a builder that died.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dlperf import indexes, pythons
from dlperf.catalog.locks import Requirement, logical_lines, read, wrong
from dlperf.errors import Problem, RunError, UsageError, did_you_mean, heed_signals
from dlperf.launchers.containers import ENGINES, Container
from dlperf.shell import quote

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter
    from dlperf.catalog.environment import EnvironmentSpec, SourceBuild

#: part of every digest: raise it when environments must be made anew although no lock changed
RECIPE = 2
#: written last inside an environment; one without it is not whole
MARKER = "dlperf-environment.json"
BUILDING = ".building-"
#: environments that `ensure_all` makes at the same time
AT_ONCE = 3
#: seconds without a word after which a line says that work goes on
BEAT_SECONDS = 20.0
#: downloads that are worth a line of progress, in MB
LARGE_MB = 50
Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Progress that nobody reads."""


@dataclass(frozen=True)
class Environment:
    """An environment that is ready to use.

    key: device, or device and variant: "cpu", "cpu-horovod". kind: "venv", or "current" for the interpreter that runs
    this, or an engine of containers. python: its interpreter. digest: of what defines it: locks, source build, Python
    version, recipe; for "current" of the names and versions installed; of an image its own. folder: None but for
    "venv". variables: to be set for every worker. image: its reference, or file; empty but for containers. public: the
    digest by which its registry has the image. emulated: the CPU that qemu-user emulates for its workers.
    """

    adapter: str
    key: str
    kind: str
    python: Path
    python_version: str
    digest: str
    folder: Path | None
    variables: Mapping[str, str]
    image: str = ""
    public: str = ""
    emulated: str = ""

    @property
    def stored(self) -> dict[str, str]:
        """What records and certificates say of it."""
        emulated = {"emulated_cpu": self.emulated} if self.emulated else {}
        image = {"image": self.image, "image_public_digest": self.public} if self.image else {}
        return {"kind": self.kind, "python": self.python_version, "digest": self.digest, **image, **emulated}

    @property
    def engine(self) -> str:
        """Of its containers; empty if it has none."""
        return self.kind if self.image else ""

    def container(self, device: str, arguments: Mapping[str, str], data: str | None = None) -> Container | None:
        """What its workers run in. arguments: --container-arg. data: a folder to read."""
        return Container(self.kind, self.image, device, data or "", arguments) if self.image else None


@dataclass(frozen=True)
class _Target:
    """Where an environment of an adapter is, or will be."""

    adapter: Adapter
    key: str
    spec: EnvironmentSpec
    digest: str
    root: Path

    @property
    def label(self) -> str:
        return f"{self.adapter.name} {self.key}"

    @property
    def folder(self) -> Path:
        return self.root / f"{self.adapter.name}-{self.key}-{self.digest[:12]}"

    @property
    def building(self) -> Path:
        return _leftover(self.folder)

    def error(self, message: str, lines: Sequence[str] = ()) -> RunError:
        return RunError("environment", f"{self.label}: {message}", lines[-15:])


def cache_folder() -> Path:
    """$DLPERF_CACHE, else dlperf in the user's cache folder."""
    own = os.environ.get("DLPERF_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dlperf"


def _target(adapter: Adapter, key: str) -> _Target:
    spec = adapter.environments.get(key)
    if spec is None:
        known = ", ".join(adapter.environments) or "none"
        raise RunError("environment", f"{adapter.name} has no environment {key}; it has: {known}")
    try:
        locks = [lock.read_bytes().decode(errors="replace") for lock in spec.locks]
    except FileNotFoundError as error:
        why = f"it has no lock for {os.uname().machine}: there is no {error.filename}"
        raise RunError("environment", f"{adapter.name} {key}: {why}") from None
    except OSError as error:
        raise RunError(
            "environment", f"{adapter.name} {key}: the lock {error.filename} cannot be read: {error}"
        ) from None
    build = [repr((sorted(spec.build.variables.items()), spec.build.replace))] if spec.build else []
    digest = _digest(str(RECIPE), os.uname().machine, *spec.python, *locks, *build)
    return _Target(adapter, key, spec, digest, cache_folder() / "envs")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


NO_IMAGES: Mapping[str, str] = {}


def images() -> Any:
    """dlperf.images, which needs this module."""
    from dlperf import images

    return images


def commands(adapter: Adapter, key: str) -> list[str]:
    """The shell commands that would make the environment. Runs nothing, and looks at nothing but the locks."""
    target = _target(adapter, key)
    lines = [
        ["mkdir", "-p", str(target.root)],
        _venv(target, target.spec.python[0]),
        _install(target),
        *_source_build(target),
        ["mv", str(target.building), str(target.folder)],
    ]
    ours = [pythons.uv(), *map(str, target.spec.locks)]
    return [" ".join(quote(_from_here(word) if word in ours else word) for word in line) for line in lines]


def _from_here(path: str) -> str:
    """Relative to the working folder if it lies inside."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def planned(adapter: Adapter, key: str, kind: str = "venv", chosen: Mapping[str, str] = NO_IMAGES) -> Environment:
    """The environment that `ensure` would return, whether it is there or not. Runs nothing.

    chosen: images by adapter, see dlperf.images; "" stands for all others.
    """
    if kind in ENGINES:
        wanted: Environment = images().planned(adapter, key, kind, chosen)
        return wanted
    if kind == "current":
        import sysconfig

        spec = adapter.environments.get(key)
        variables = _variables(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
        version = ".".join(map(str, sys.version_info[:3]))
        return Environment(adapter.name, key, kind, Path(sys.executable), version, "", None, variables)
    target = _target(adapter, key)
    version = target.spec.python[0]
    packages = target.folder / "lib" / f"python{version}" / "site-packages"
    python = target.folder / "bin" / "python"
    variables = _variables(target.spec, packages)
    return Environment(adapter.name, key, kind, python, version, target.digest, target.folder, variables)


def ensure(
    adapter: Adapter,
    key: str,
    kind: str = "venv",
    progress: Progress = _silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> Environment:
    """The environment, made first if needed. Several processes and threads may ask at once: one makes it. An image is
    not made, but pulled from its registry.

    RunError (kind "environment") if it cannot be made, with the last lines of uv or pip; nothing half-made is left
    then, nor after KeyboardInterrupt.
    """
    return _any(adapter, key, kind, chosen, _Session(progress))


def _any(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str], session: _Session) -> Environment:
    if kind in ENGINES:
        found: Environment = images().ensure(adapter, key, kind, chosen, session.say)
        return found
    return _current(adapter, key) if kind == "current" else _ensure(adapter, key, session)


def ensure_all(
    wanted: Sequence[tuple[Adapter, str]],
    kind: str = "venv",
    progress: Progress = _silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> list[Environment | RunError]:
    """`ensure` for several (adapter, key), some at a time.

    In the order of `wanted`; one that cannot be made is its RunError. `progress` is called by one thread at a time.
    """
    from concurrent.futures import ThreadPoolExecutor

    session = _Session(progress)

    def one(pair: tuple[Adapter, str]) -> Environment | RunError:
        try:
            return _any(*pair, kind, chosen, session)
        except RunError as error:
            return error

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        return list(pool.map(one, wanted))
    except BaseException:
        session.end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ensure(adapter: Adapter, key: str, session: _Session) -> Environment:
    target = _target(adapter, key)
    found = _ready(target)
    if found:
        return found
    try:
        target.root.mkdir(parents=True, exist_ok=True)
        with _guard(target.folder, _wait_for_other(target, session)) as held:
            return _ready(target) or _make(_Making(target, held, session))
    except OSError as error:
        raise _os_error(target, error) from None


def _wait_for_other(target: _Target, session: _Session) -> Callable[[], None]:
    started, said = time.monotonic(), float("-inf")

    def busy() -> None:
        nonlocal said
        if time.monotonic() - said >= BEAT_SECONDS:
            since = f": {time.monotonic() - started:.0f} s" if said > 0 else ""
            session.say(f"{target.label}: waiting for another process that makes it{since}")
            said = time.monotonic()
        session.check()
        time.sleep(0.1)

    return busy


def check(env: Environment) -> None:
    """Cheap: RunError if the environment has vanished since."""
    if env.image:
        images().check(env)
        return
    if env.folder is not None and not (env.folder / MARKER).exists():
        raise RunError("environment", f"{env.adapter} {env.key}: its environment {env.folder} has vanished")
    if not env.python.exists():
        raise RunError("environment", f"{env.adapter} {env.key}: its interpreter {env.python} has vanished")


def find_python(versions: Sequence[str]) -> Path:
    """An interpreter of the first of these minor versions that there is; else one that uv fetches. RunError says what
    to install."""
    return pythons.find(versions).path


def remove(adapter: Adapter, key: str) -> list[Path]:
    """Delete the environment, those of older locks too; RunError if one is being made. Returns what was deleted."""
    target = _target(adapter, key)
    removed = []
    try:
        for folder in [target.folder, *_older(target)]:
            if folder.exists() or _leftover(folder).exists() or _held(folder):
                with _guard(folder, busy=lambda: _refuse(target)):
                    removed += [folder] if folder.exists() else []
                    _discard(folder)
    except OSError as error:
        raise target.error(f"cannot be removed: {error}") from None
    return removed


def _refuse(target: _Target) -> NoReturn:
    raise target.error("another process is making it; wait for that, or end it, and remove then")


def _marker(folder: Path) -> dict[str, str]:
    """What the builder noted, or nothing where the environment is not whole."""
    try:
        noted = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(noted, dict) and (folder / "bin" / "python").exists()
    return {str(key): str(value) for key, value in noted.items()} if whole else {}


def _ready(target: _Target) -> Environment | None:
    """The environment if it is whole and its interpreter runs (the Python that it was made from may be gone)."""
    if not _marker(target.folder):
        return None
    python = target.folder / "bin" / "python"
    runs = pythons.interpreter(str(python))
    if runs is None:
        return None
    packages = target.folder / "lib" / f"python{pythons.minor(runs.version)}" / "site-packages"
    digest = _digest(target.digest, runs.version)
    variables = _variables(target.spec, packages)
    return Environment(target.adapter.name, target.key, "venv", python, runs.version, digest, target.folder, variables)


def _variables(spec: EnvironmentSpec, packages: Path) -> dict[str, str]:
    given = spec.variables or {}
    return {name: value.replace("{site_packages}", str(packages)) for name, value in given.items()}


def _current(adapter: Adapter, key: str) -> Environment:
    import importlib.metadata
    import sysconfig

    installed = {
        (one.metadata["Name"] or "").lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
    }
    if not any(name in installed for name in adapter.distribution):
        names = " or ".join(adapter.distribution)
        message = f"{adapter.name} {key}: {names} is not installed in the running Python, {sys.executable}"
        raise RunError("environment", f"{message}; install it there, or leave out --env current")
    version = ".".join(str(part) for part in sys.version_info[:3])
    digest = _digest(version, *(f"{name}=={installed[name]}" for name in sorted(installed)))
    spec = adapter.environments.get(key)
    variables = _variables(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
    return Environment(adapter.name, key, "current", Path(sys.executable), version, digest, None, variables)


def _leftover(folder: Path) -> Path:
    """Where an environment is built, and where it goes to be deleted."""
    return folder.parent / (BUILDING + folder.name)


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


@contextmanager
def _guard(folder: Path, busy: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of an environment. While another holds it, `busy` is called, which raises or waits a little.

    The file descriptor goes to every child that writes to the environment, so that the lock outlives a killed builder.
    """
    held = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _locked(held):
            busy()
        yield held
    finally:
        os.close(held)


def _locked(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(folder: Path) -> bool:
    """Whether some process makes or removes the environment now."""
    try:
        probe = os.open(_lock_file(folder), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


def _older(target: _Target) -> list[Path]:
    """Environments of the same adapter and key whose lock has changed since."""
    pattern = f"{target.adapter.name}-{target.key}-" + "[0-9a-f]" * 12
    return sorted(folder for folder in target.root.glob(pattern) if folder != target.folder)


def _discard(folder: Path) -> None:
    """Delete an environment and what its dead builders left. The caller holds its lock.

    Renamed first: an environment that is deleted halfway must not look whole.
    """
    leftover = _leftover(folder)
    shutil.rmtree(leftover, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(folder, leftover)
    if leftover.exists():
        shutil.rmtree(leftover)


def _sweep(root: Path) -> None:
    """Delete what dead builders of other environments left."""
    for leftover in root.glob(BUILDING + "*"):
        with suppress(BlockingIOError), _guard(root / leftover.name.removeprefix(BUILDING), busy=_give_up):
            shutil.rmtree(leftover, ignore_errors=True)


def _give_up() -> NoReturn:
    raise BlockingIOError


def _size(folder: Path) -> tuple[int, int]:
    """Bytes on disk, and how many of them are shared with files outside, as with uv's cache."""
    found: dict[tuple[int, int], tuple[int, int]] = {}  # a file: its bytes, and its links that lie outside
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.lstat(os.path.join(parent, name))
            _, outside = found.get((file.st_dev, file.st_ino), (0, file.st_nlink))
            found[file.st_dev, file.st_ino] = file.st_blocks * 512, outside - 1
    return sum(size for size, _ in found.values()), sum(size for size, outside in found.values() if outside)


class _Session:
    """What the threads of one call share: whom they tell, where packages come from, and their child processes, which
    end together."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._turn, self._looking, self._lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._sources: indexes.Sources | None = None
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def say(self, line: str) -> None:
        with self._turn:
            self._progress(line)

    def sources(self) -> indexes.Sources:
        """Found out once, for it may take seconds."""
        with self._looking:
            self._sources = self._sources or indexes.read(self.say, str(cache_folder() / "uv"))
            return self._sources

    def check(self) -> None:
        """Raise in a thread that must go no further."""
        if self._ended:
            raise KeyboardInterrupt

    @contextmanager
    def start(self, command: Sequence[str], environ: Mapping[str, str], held: int) -> Iterator[subprocess.Popen[str]]:
        with self._lock:
            self.check()
            process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # so that Ctrl-C reaches us alone, and that we can end its children too
                pass_fds=[held],
            )
            self._running.add(process)
        try:
            yield process
        except BaseException:
            _end(process)
            raise
        finally:
            self._running.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


@dataclass
class _Making:
    """One environment, or the folder of its wheels, being made by the holder of its lock `held`.

    step: what is being done; said: when a line was last said of it.
    """

    target: _Target
    held: int
    session: _Session
    step: str = "looking for a Python"
    said: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        self.said = time.monotonic()
        self.session.say(f"{self.target.label}: {line}")

    def begin(self, step: str) -> None:
        self.step = step
        self.say(step)

    def run(
        self, command: Sequence[str], environ: Mapping[str, str], each: Progress = _silent
    ) -> tuple[int, list[str]]:
        """Run a command that writes to the environment; its exit status and lines. It ends when we are interrupted."""
        lines: list[str] = []
        with self.session.start(command, environ, self.held) as process, self._never_silent(process):
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                each(lines[-1])
            code = process.wait()
        self.session.check()
        return code, lines

    @contextmanager
    def _never_silent(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Say every now and then how long a command has run, and what it has written."""
        over, started = threading.Event(), time.monotonic()

        def beat() -> None:
            while not over.wait(max(0.01, self.said + BEAT_SECONDS - time.monotonic())):
                if time.monotonic() - self.said >= BEAT_SECONDS:
                    self.say(f"{self.step}: {time.monotonic() - started:.0f} s{_written(process.pid)}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _written(pid: int) -> str:
    """ ", 612 MB written", what a process and those of its children that ended wrote; nothing where that is unknown or
    less than a megabyte."""
    with suppress(OSError):
        found = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
        return f", {_gigabytes(int(found[1]))} written" if found and int(found[1]) >= 1e6 else ""
    return ""


def _make(making: _Making) -> Environment:
    """Build aside, move into place."""
    target = making.target
    for lock in target.spec.locks:
        read(lock)
    _check_tools(target)
    _discard(target.folder)
    _sweep(target.root)
    started = time.monotonic()
    try:
        version = _build(making)
        size, shared = _size(target.building)
        noted = {"python": version, "digest": target.digest, "bytes": size}
        (target.building / MARKER).write_text(json.dumps(noted) + "\n", encoding="utf-8")
        os.rename(target.building, target.folder)
    finally:  # Ctrl-C and a full disk included
        shutil.rmtree(target.building, ignore_errors=True)
    made = _ready(target)
    if made is None:
        raise target.error(f"the interpreter in {target.folder} does not run; remove that folder and try again")
    linked = f", of which {_gigabytes(shared)} are links to uv's cache" if shared else ""
    making.say(f"ready after {time.monotonic() - started:.0f} s, {_gigabytes(size)}{linked}")
    return made


def _build(making: _Making) -> str:
    """Fill the building folder: a venv with what the locks list. Returns its Python version."""
    target, sources = making.target, making.session.sources()
    found = pythons.find(target.spec.python, making.begin, lambda command: making.run(command, sources.for_uv()))
    steps = 1 + len(target.spec.locks)
    making.begin(f"making an environment with Python {found.version} (1 of {steps})")
    command = _venv(target, str(found.path)) + (sources.uv_options() if target.spec.build else [])
    code, lines = making.run(command, sources.for_uv())
    if code:
        raise _explained(target, lines, f"uv cannot make a venv with {found.path}")
    making.begin(f"installing {_summary(target.adapter, read(target.spec.lock))} (2 of {steps})")
    _from_indexes(making, [*_install(target), *sources.uv_options()], sources.for_uv)
    if target.spec.build:
        source = _source(target.spec.build)
        making.begin(f"building {source} from source, which takes some minutes ({steps} of {steps})")
        _build_source(making)
    return found.version


def _summary(adapter: Adapter, requirements: Sequence[Requirement]) -> str:
    """ "torch 2.13.0 and 9 more", for people. A lock may list several versions, for several Pythons."""
    names = {one.name for one in requirements}
    main = [one for one in requirements if one.name in adapter.distribution] or list(requirements[:1])
    first = str(main[0]) if len(main) == 1 else main[0].name
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


#: as pip does: all indexes count, not the first that knows a package
BEST_MATCH = ["--index-strategy", "unsafe-best-match"]


def _venv(target: _Target, python: str) -> list[str]:
    """With pip where it is to fetch and build a source distribution. Its scripts survive the move."""
    seed = ["--seed", *BEST_MATCH] if target.spec.build else []
    return [pythons.uv(), "venv", *seed, "--relocatable", "--python", python, str(target.building)]


def _install(target: _Target) -> list[str]:
    """Everything is pinned with its hash, so nothing is resolved; wheels only, so nothing is built."""
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", *BEST_MATCH]
    python = str(target.building / "bin" / "python")
    return [pythons.uv(), "pip", "install", "--python", python, *options, "-r", str(target.spec.lock)]


def _from_indexes(making: _Making, command: list[str], environ: Callable[[Sequence[str]], dict[str, str]]) -> None:
    """Run uv or pip with the user's indexes; only if they lack a package, with adapter.toml's too."""

    def large(line: str) -> None:
        found = re.match(r"\s*Downloading (\S+) \(([\d.]+) ?(MB|GB|MiB|GiB)\)", line)
        size = float(found[2]) * {"MB": 1, "GB": 1e3, "MiB": 1.048576, "GiB": 1073.741824}[found[3]] if found else 0
        if found and size >= LARGE_MB:
            making.say(f"downloading {found[1].rpartition('/')[2]}, {_gigabytes(size * 1e6)}")

    extra, lock = making.target.spec.extra_index, making.target.spec.lock
    code, lines = making.run(command, environ(()), large)
    if code and extra and _missing(lines, lock) and not indexes.unreachable(lines):
        making.say(f"{_missing(lines, lock)} is not on the usual index; also looking at {', '.join(extra)}")
        code, lines = making.run(command, environ(extra), large)
    if code:
        raise _explained(making.target, lines, f"{Path(command[0]).name} failed")


# The wheels that an image is made from

#: in a folder of wheels: the lock, and the wheels
LOCKED, WHEELS = "requirements.txt", "wheels"


def _wheels_target(adapter: Adapter, key: str) -> _Target:
    return replace(_target(adapter, key), root=cache_folder() / "wheels")


def digest(adapter: Adapter, key: str) -> str:
    """Of what defines an environment, without the Python that it was made with."""
    return _target(adapter, key).digest


def wheels_folder(adapter: Adapter, key: str) -> Path:
    """Where `wheels` puts them."""
    return _wheels_target(adapter, key).folder


def wheels_commands(adapter: Adapter, key: str) -> list[str]:
    """The shell commands by which `wheels` would fill its folder."""
    target = _wheels_target(adapter, key)
    download = _pip_download(target)
    download[0] = "python3"  # any that has pip
    lines = [
        ["mkdir", "-p", str(target.building)],
        ["cp", str(target.spec.lock), str(target.building / LOCKED)],
        download,
        ["mv", str(target.building), str(target.folder)],
    ]
    return [
        " ".join(quote(_from_here(word) if word == str(target.spec.lock) else word) for word in line) for line in lines
    ]


def wheels(adapter: Adapter, key: str, progress: Progress = _silent) -> Path:
    """A folder with an environment's lock and all wheels that it lists, for the environment's Python: what an image is
    built from. Downloaded on first use, aside, and moved into place whole; errors as in `ensure`.
    """
    target, session = _wheels_target(adapter, key), _Session(progress)
    try:
        if not (target.folder / LOCKED).exists():
            target.root.mkdir(parents=True, exist_ok=True)
            with _guard(target.folder, _wait_for_other(target, session)) as held:
                if not (target.folder / LOCKED).exists():
                    _download(_Making(target, held, session))
    except OSError as error:
        raise _os_error(target, error) from None
    return target.folder


def _pip_download(target: _Target) -> list[str]:
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    place = ["--python-version", target.spec.python[0], "--dest", str(target.building / WHEELS)]
    return [sys.executable, "-I", "-m", "pip", "download", *options, *place, "-r", str(target.spec.lock)]


def _download(making: _Making) -> None:
    target = making.target
    making.begin(f"downloading {_summary(target.adapter, read(target.spec.lock))}")
    _discard(target.folder)
    _sweep(target.root)
    try:
        (target.building / WHEELS).mkdir(parents=True)
        _from_indexes(making, _pip_download(target), making.session.sources().for_pip)
        shutil.copy(target.spec.lock, target.building / LOCKED)
        os.rename(target.building, target.folder)
    finally:
        shutil.rmtree(target.building, ignore_errors=True)


# What is built from source

#: programs that a source build starts, and their Debian packages
TOOLS = {"make": "make", "g++": "g++"}
#: arguments: a file, what it must contain, and what takes its place
REPLACE = (
    "import pathlib, sys; file, old, new = sys.argv[1:]; file = pathlib.Path(file); text = file.read_text(); "
    "old in text or sys.exit(f'{file} has no {old!r} to replace'); file.write_text(text.replace(old, new))"
)


def _source(build: SourceBuild) -> Requirement:
    """The one package that is built from source."""
    return read(build.lock)[0]


def _check_tools(target: _Target) -> None:
    """RunError if the machine cannot build from source; said before anything is downloaded."""
    missing = [tool for tool in TOOLS if target.spec.build and shutil.which(tool) is None]
    if missing and target.spec.build:
        what = f"{_source(target.spec.build)} is built from source, and {' and '.join(missing)} is not on PATH"
        raise target.error(f"{what}. Install it: apt-get install {' '.join(TOOLS[tool] for tool in missing)}")


def _source_build(target: _Target) -> list[list[str]]:
    """The commands that fetch, unpack, change, build and install what comes from source; none if nothing does.

    pip can't look for anything then: what the build needs is in the lock.
    """
    build = target.spec.build
    if build is None:
        return []
    package, folder = _source(build), str(target.building / "source")
    packed = re.sub("[-_.]+", "_", package.name) + f"-{package.version}.tar.gz"  # PEP 625
    python = str(target.building / "bin" / "python")
    fetch = ["--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--progress-bar", "off"]
    variables = [f"{name}={_in_building(target, value)}" for name, value in build.variables.items()]
    return [
        [python, "-I", "-m", "pip", "download", *fetch, "--dest", folder, "-r", str(build.lock)],
        ["tar", "-xzf", f"{folder}/{packed}", "-C", folder, "--strip-components", "1"],
        *([python, "-I", "-c", REPLACE, f"{folder}/{one.file}", one.old, one.new] for one in build.replace),
        [
            "env",
            *variables,
            python,
            "-I",
            "-m",
            "pip",
            "install",
            "--no-build-isolation",
            "--no-deps",
            "--no-index",
            folder,
        ],
        ["rm", "-r", folder],
    ]


def _in_building(target: _Target, value: str) -> str:
    return value.replace("{bin}", str(target.building / "bin"))


def _build_source(making: _Making) -> None:
    """Build without the user's variables: his CXXFLAGS or HOROVOD_GPU_OPERATIONS would make another environment."""
    fetch, *others = _source_build(making.target)
    environ = making.session.sources().for_pip()
    code, lines = making.run(fetch, environ)
    if code:
        raise _explained(making.target, lines, "pip failed")
    kept = {name: environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in environ}
    for command in others:
        code, lines = making.run(command, kept)
        if code:
            raise _not_built(making.target, lines)


def _missing(lines: Iterable[str], lock: Path) -> str:
    """The package of the lock that pip or uv did not find, as `name==version`, or nothing."""
    text = " ".join(" ".join(lines).split())
    of_pip = re.search(r"No matching distribution found for (\S+)", text)
    of_uv = re.search(r"[Bb]ecause (?:there (?:is|are) no versions? of |only )?([\w.-]+?)(?:[=<>]\S+)? ", text)
    if of_pip or not of_uv:
        return of_pip[1] if of_pip else ""
    return next((f"{one.name}=={one.version}" for one in read(lock) if one.name == of_uv[1]), of_uv[1])


def _wrong_hash(text: str, target: _Target) -> RunError | None:
    """What pip or uv says of a file that is not the one that the lock means."""
    if "DO NOT MATCH THE HASHES" in text:
        text = text[text.index("DO NOT MATCH") :]
        found = re.search(r"^\s+(\S+) from \S+ \(from -r (.+) \(line (\d+)\)\)", text, re.MULTILINE)
        package, lock, line = found.groups() if found else ("a package", target.spec.lock, 1)
    elif found := re.search(r"Hash mismatch for `([^`]+)`", text):
        package, lock = found[1], target.spec.lock
        pinned = re.compile(re.escape(package.replace("==", "\0")).replace("\0", r"(\[.*\])?=="))
        line = next((number for number, said in logical_lines(lock) if pinned.match(said.lower())), 1)
    else:
        return None
    return wrong(Path(lock), int(line), f"the hash of {package} is not that of the file that the index offers")


def _explained(target: _Target, lines: Sequence[str], otherwise: str) -> RunError:
    """What the output of uv or pip means."""
    text, blamed = "\n".join(lines), indexes.blamed(lines)
    if re.search(r"No space left on device|Errno 28\b|Disk quota exceeded", text):
        return _full(target, lines)
    if text.endswith("No module named pip"):  # uv has nothing that downloads for another Python
        step = f"Install it: {pythons.uv()} pip install --python {sys.executable} pip"
        return target.error(f"the wheels of an image are downloaded by pip, which {sys.executable} lacks. {step}")
    if error := _wrong_hash(text, target):
        return RunError("environment", f"{target.label}: {error}", lines[-15:])
    missing = _missing(lines, target.spec.lock)
    if indexes.unreachable(lines):
        place = re.search(r"Failed to fetch: `?([^\s`]+)", text)
        what = f"uv cannot reach {place[1]}" if place else "a package index cannot be reached"
        return target.error(f"no network: {what}{f', so {missing} was not found' if missing else ''}{blamed}", lines)
    if missing:
        return target.error(f"no package index offers {missing} for this Python and machine{blamed}", lines)
    return target.error(f"{otherwise}: {indexes.reason(lines)}{blamed}", lines)


def _not_built(target: _Target, lines: Sequence[str]) -> RunError:
    """A source build that failed: the first error in its output, and what stands around it."""
    signs = re.compile(r"\berror:(?! subprocess-exited)|CMake Error|to replace$")
    first = next((number for number, line in enumerate(lines) if signs.search(line)), len(lines) - 1)
    if not lines or re.search(r"No space left on device|Disk quota exceeded", "\n".join(lines)):
        return _explained(target, lines, "the build from source failed")
    return target.error(f"the build from source failed: {lines[first].strip()}", lines[: first + 10])


def _full(target: _Target, lines: Sequence[str] = ()) -> RunError:
    free = ""
    with suppress(OSError):
        free = f" ({_gigabytes(shutil.disk_usage(target.root).free)} free in {target.root})"
    step = "free some, or set DLPERF_CACHE, UV_CACHE_DIR (uv's own cache) and TMPDIR to folders on another disk"
    return target.error(f"the disk is full{free}; {step}", lines)


def _os_error(target: _Target, error: OSError) -> RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(target)
    ours = str(error.filename or "").startswith(str(target.root.parent))
    return target.error(f"{error}{f'; DLPERF_CACHE names another folder than {target.root}' if ours else ''}")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m dlperf.envs`; returns the exit status."""
    heed_signals()
    try:
        return _command(arguments)
    except (UsageError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("interrupted; nothing half-made is left", file=sys.stderr)
        return 130


def _command(arguments: Sequence[str] | None) -> int:
    import argparse

    from dlperf.catalog.reader import adapters

    known = adapters()
    every_key = list(dict.fromkeys(key for one in known.values() for key in one.environments))
    parser = argparse.ArgumentParser(prog="python -m dlperf.envs", description="Environments of the frameworks.")
    parser.add_argument("verb", choices=["list", "install", "remove"], help="what to do")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="an adapter (default: all; to install, those of dlperf compare)"
    )
    about = "with a variant, as cpu-horovod, an environment that some options need; default: cpu to install, or all"
    parser.add_argument("--device", choices=every_key, help=about)
    asked = parser.parse_args(arguments)
    every = [one for one in known.values() if one.default or asked.verb != "install"]
    chosen = _chosen(asked.names, known) if asked.names else every
    keys = [asked.device] if asked.device else ["cpu"] if asked.verb == "install" else every_key
    # an environment may be missing or have no lock, but saying so is due only where one asked for it
    has = _has_lock if asked.verb != "install" else lambda one, key: bool(asked.names) or key in one.environments
    pairs = [(one, key) for one in chosen for key in keys if has(one, key)]
    if asked.verb == "list":
        print(_table(pairs))
        return 0
    return _install_all(pairs) if asked.verb == "install" else _remove_all(pairs)


def _has_lock(adapter: Adapter, key: str) -> bool:
    return key in adapter.environments and adapter.environments[key].lock.exists()


def _chosen(names: Sequence[str], known: Mapping[str, Adapter]) -> list[Adapter]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(Problem("NAME", name, ", ".join(known), did_you_mean(name, known)) for name in unknown)
    return [known[name] for name in dict.fromkeys(names)]


def _say(line: str) -> None:
    print(line, flush=True)


def _install_all(pairs: Sequence[tuple[Adapter, str]]) -> int:
    """1 if one failed, which is said; the others are made."""
    failed = 0
    for made in ensure_all(pairs, progress=_say):
        if isinstance(made, RunError):
            failed = 1
            print("".join(f"  {line}\n" for line in made.lines) + f"error: {made}", file=sys.stderr)
        else:
            _say(f"{made.adapter} {made.key}: ready in {made.folder}")
    return failed


def _remove_all(pairs: Sequence[tuple[Adapter, str]]) -> int:
    failed = removed = 0
    for adapter, key in pairs:
        try:
            for folder in remove(adapter, key):
                removed += 1
                _say(f"{adapter.name} {key}: removed {folder}")
        except RunError as error:
            failed = 1
            print(f"error: {error}", file=sys.stderr)
    if removed:
        _say(f"what was downloaded is still in uv's cache; `{_from_here(pythons.uv())} cache clean` deletes it")
    return failed


def _table(pairs: Sequence[tuple[Adapter, str]]) -> str:
    rows = [("adapter", "device", "state", "python", "size", "folder")]
    rows += [row for adapter, key in pairs for row in _rows(adapter, key)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _rows(adapter: Adapter, key: str) -> list[tuple[str, str, str, str, str, str]]:
    """One line for the environment, and one for each of an older lock."""
    target = _target(adapter, key)
    folders = [(target.folder, "building" if _held(target.folder) else ""), *((one, "stale") for one in _older(target))]
    rows = []
    for folder, state in folders:
        noted = _marker(folder)
        size = _gigabytes(int(noted.get("bytes", 0))) if noted else "-"
        shown = str(folder) if folder.exists() else "-"
        ready = "ready" if noted else "not made"
        rows.append((adapter.name, key, state or ready, noted.get("python", "-"), size, shown))
    return rows


if __name__ == "__main__":
    sys.exit(main())
