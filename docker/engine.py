"""Asks a container engine, ends what it left, and says in a sentence what its errors mean."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlperf.errors import RunError
from dlperf.launchers.containers import ENGINES, LABEL

#: exit codes of `docker run` that are not the command's: its own error, a command that can't run or isn't there
REFUSED = (125, 126, 127)
#: an image must bring this, see adapters/
LEAST_PYTHON = (3, 7)
#: what an image is asked; arguments: distributions or modules of which one must be there. As old a Python as may be
ASK = """
import json, sys, importlib.util as look
try:
    from importlib.metadata import version
except ImportError:
    version = None
def there(name):
    try:
        return bool(version and version(name))
    except Exception:
        return False
found = [name for name in sys.argv[1:] if there(name) or look.find_spec(name.replace("-", "_"))]
print("dlperf:" + json.dumps({"python": "%d.%d.%d" % sys.version_info[:3],
                              "numpy": bool(look.find_spec("numpy")), "found": found}))
"""


@dataclass(frozen=True)
class Image:
    """An image on this machine. digest: that of its contents. public: digest under which its registry has it."""

    reference: str
    digest: str
    public: str = ""
    bytes: int = 0
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def call(engine: str, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run the engine's command and keep what it prints. RunError if it is not installed or does not answer."""
    try:
        return subprocess.run(
            [engine, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            start_new_session=True,  # Ctrl-C reaches us alone, who end its containers
        )
    except FileNotFoundError:
        raise missing(engine) from None
    except subprocess.TimeoutExpired:
        raise RunError("environment", f"{engine} {words[0]} did not end within {timeout:g} s") from None
    except OSError as error:
        raise RunError("environment", f"{engine} cannot be started: {error.strerror}") from None


def missing(program: str, otherwise: str = "choose another --env") -> RunError:
    where = ENGINES.get(program, f"Debian's {program}")
    return RunError("environment", f"{program} is not on PATH. Install it ({where}), or {otherwise}")


def find(engine: str, reference: str) -> Image | None:
    """The image, if this machine has it. RunError if the engine cannot say."""
    if engine == "apptainer":
        return _file(reference)
    asked = call(engine, "image", "inspect", reference)
    if asked.returncode:
        if re.search(r"no such image|image not known|no such object|failed to find image", asked.stderr, re.IGNORECASE):
            return None
        raise explained(engine, reference, asked.stderr)
    return _image(reference, json.loads(asked.stdout)[0])


def _image(reference: str, told: Mapping[str, Any]) -> Image:
    public = next((one.partition("@")[2] for one in told.get("RepoDigests") or ()), "")
    return Image(
        reference=reference,
        digest=str(told["Id"]).removeprefix("sha256:"),
        public=public,
        bytes=int(told.get("Size", 0)),
        created=str(told.get("Created", ""))[:19],
        labels=(told.get("Config") or {}).get("Labels") or {},
    )


def _file(path: str) -> Image | None:
    """Apptainer's images are files, or folders, whose digest is that of what apptainer says of them."""
    if not Path(path).exists():
        return None
    if Path(path).is_dir():
        asked = call("apptainer", "inspect", "--all", path)
        if asked.returncode:
            raise explained("apptainer", path, asked.stderr)
        return Image(path, hashlib.sha256(asked.stdout.encode()).hexdigest())
    with open(path, "rb") as file:
        return Image(path, hashlib.file_digest(file, "sha256").hexdigest(), bytes=os.path.getsize(path))


def pull(engine: str, reference: str) -> None:
    """Fetch an image from its registry. RunError says why it cannot be had."""
    asked = call(engine, "pull", "--quiet", reference, timeout=7200.0)
    if asked.returncode:
        raise explained(engine, reference, asked.stderr)


def ask(engine: str, reference: str, names: Sequence[str]) -> str:
    """The version of the Python in an image, which has numpy and one of the distributions. RunError: what it lacks."""
    words = ["exec"] if engine == "apptainer" else ["run", "--rm", "--pull", "never", "--label", f"{LABEL}=question"]
    asked = call(engine, *words, reference, "python", "-c", ASK, *names, timeout=300.0)
    line = re.search(r"^dlperf:(\{.*\})$", asked.stdout, re.MULTILINE)
    if line is None:
        raise explained(engine, reference, asked.stderr or asked.stdout)
    told = json.loads(line[1])
    version = tuple(int(part) for part in told["python"].split("."))
    lacks = []
    if version < LEAST_PYTHON:
        lacks.append(f"Python {'.'.join(map(str, LEAST_PYTHON))} or newer (its python is {told['python']})")
    lacks += [] if told["numpy"] else ["numpy"]
    lacks += [] if told["found"] else [" or ".join(names)]
    if lacks:
        raise RunError("environment", f"the image {reference} lacks {' and '.join(lacks)}. Name another with --image")
    return str(told["python"])


def end(engine: str, folder: Path) -> None:
    """Remove what containers a run in this folder left on this machine: those that a killed client did not end."""
    if engine == "apptainer":  # its containers are children of the run
        return
    with suppress(RunError):
        listed = call(engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={folder.resolve()}")
        if listed.stdout.split():
            call(engine, "rm", "--force", *listed.stdout.split())


def local(engine: str, prefix: str) -> Iterator[Image]:
    """The images on this machine whose names begin with a prefix. RunError if the engine cannot say."""
    form = "{{.Repository}}:{{.Tag}}|{{.ID}}|{{.Size}}|{{.CreatedAt}}"
    asked = call(engine, "images", "--no-trunc", "--format", form)
    if asked.returncode:
        raise explained(engine, "", asked.stderr)
    for line in asked.stdout.splitlines():
        name, digest, size, created = line.split("|", 3)
        name = name.removeprefix("localhost/")  # podman's
        if name.startswith(prefix):
            yield Image(name, digest.removeprefix("sha256:"), created=created[:16], labels={"size": size})


# --- what went wrong, in a sentence -----------------------------------------------------------------------------------

#: in what an engine or a builder prints -> what it means; {engine}, {image}, {registry} and groups of the pattern
MEANINGS: tuple[tuple[str, str], ...] = (
    (
        r"permission denied.*(?:docker|daemon|sock)|dial unix.*permission denied",
        "you may not use the socket of docker's daemon. Join the group docker (sudo usermod -aG docker $USER, then log "
        "in again), or use --env podman",
    ),
    (
        r"Cannot connect to the Docker daemon|failed to connect to the docker API|Is the docker daemon running|"
        r"error during connect",
        "docker's daemon does not answer at {host}. Start it (sudo systemctl start docker), or set DOCKER_HOST",
    ),
    (
        r"No space left on device|disk quota exceeded",
        "the disk is full where {engine} keeps its images. Free some: {engine} system df shows what they take, "
        "{engine} system prune removes what nothing uses",
    ),
    (
        r"buildx component is missing|BuildKit is enabled but|the --mount option requires BuildKit",
        "this docker has no BuildKit: its plug-in buildx is missing. Install it (Debian's docker-buildx, or Docker's "
        "docker-buildx-plugin), or choose --builder podman or buildah",
    ),
    (
        r"E: Unable to locate package|E: Failed to fetch|Temporary failure resolving|E: Unable to fetch",
        "the base image lacks a library, and Debian's packages cannot be reached from the build. Name a base that has "
        "what the Dockerfile asks apt for, with --base-image",
    ),
    (
        r"(python\d*\.\d+)[\"']?: (?:executable file )?not found",
        "the base image has no {0}. Name one with --base-image",
    ),
    (r"\bpython['\"]?: (?:executable file )?not found|'python': No such file", "{image} has no python on its PATH"),
    (
        r"ensurepip is not available|No module named '?(?:venv|ensurepip)",
        "the base image's Python makes no environments: it lacks venv or ensurepip. Name another with --base-image",
    ),
    (
        r"pull access denied|unauthorized|authentication required|no basic auth credentials|denied: |Access Denied",
        "the registry {registry} does not give out {image}: it does not exist, or wants a login "
        "({engine} login {registry})",
    ),
    (
        r"manifest unknown|manifest for .* not found|failed to resolve reference .*: not found|: not found$",
        "the registry {registry} has no {image}. Look up its tags there",
    ),
    (
        r"no such host|dial tcp|i/o timeout|connection refused|Temporary failure in name resolution|network is "
        r"unreachable|TLS handshake|context deadline exceeded|Client\.Timeout|x509: ",
        "{image} cannot be pulled: the registry {registry} cannot be reached. Pull it where there is a network, and "
        "carry it over with {engine} save and {engine} load",
    ),
    (
        r"could not select device driver|nvidia-container-cli|unresolvable CDI devices",
        "{engine} cannot give a container GPUs. Install the NVIDIA Container Toolkit, or set --container-arg gpus=none",
    ),
    (r"bind source path does not exist: (\S+)", "{0} is not there on the host of the container"),
    (
        r"no such image|unable to find image|image not known|No such object",
        "{image} is not on the host of the container. Pull or build it there",
    ),
)


def explained(engine: str, image: str, text: str, what: str = "") -> RunError:
    """What an engine's error means. what: whose error it is, if not the image's."""
    registry = _registry(image)
    host = os.environ.get("DOCKER_HOST") or "its usual socket"
    lines = [line for line in text.splitlines() if line.strip()]
    head = f"{what}: " if what else ""
    for pattern, meaning in MEANINGS:
        found = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
        if found:
            said = meaning.format(*found.groups(), engine=engine, image=image, registry=registry, host=host)
            return RunError("environment", head + said, lines[-15:])
    last = lines[-1].strip() if lines else "it printed nothing"
    return RunError("environment", f"{head}{engine} failed{f' with {image}' if image else ''}: {last}", lines[-15:])


def _registry(reference: str) -> str:
    first = reference.partition("://")[2] or reference
    host, slash, _ = first.partition("/")
    return host if slash and ("." in host or ":" in host or host == "localhost") else "docker.io"
