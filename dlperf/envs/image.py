"""Images as environments: ours, or one from a registry. dlperf is not inside: each run mounts the code that it uses."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlperf import cache
from dlperf.catalog.adapter import Adapter
from dlperf.docker import dockerfile, engine
from dlperf.docker.dockerfile import PREFIX
from dlperf.envs.environment import Environment
from dlperf.envs.making import Session
from dlperf.errors import RunError
from dlperf.launchers.containers import NGC, SCHEMES
from dlperf.shell import quote


def _asked(adapter: Adapter, chosen: Mapping[str, str]) -> str:
    """What --image says of an adapter. chosen: as Spec.images."""
    return chosen.get(adapter.name) or chosen.get("", "")


def _reference(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str]) -> str:
    """What the engine is told, before anything is pulled: for apptainer a file or a registry's image."""
    asked = _asked(adapter, chosen)
    if asked == NGC:
        asked = adapter.images[key.partition("-")[0]].ngc
        return f"docker://{asked}" if kind == "apptainer" else asked
    return asked or dockerfile.name(adapter, key)


def _file(reference: str) -> Path:
    """Where apptainer's file of a registry's image, or of ours, is kept."""
    plain = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in reference)
    return cache.folder() / "sif" / f"{plain}.sif"


def _is_file(reference: str) -> bool:
    return not reference.startswith((*SCHEMES, PREFIX))


_turn = threading.Lock()


@dataclass(frozen=True)
class Images:
    """The kind of environment that an engine's containers are; `chosen`, the images by adapter, is as Spec.images."""

    engine: str

    def planned(self, adapter: Adapter, key: str, chosen: Mapping[str, str]) -> Environment:
        """The environment that `ensure` would return. Runs nothing."""
        reference = _reference(adapter, key, self.engine, chosen)
        image = str(_file(reference)) if self.engine == "apptainer" and not _is_file(reference) else reference
        spec = adapter.environments.get(key)
        given = (spec.variables or {}) if spec else {}
        # our images set all by themselves; in others, paths in an environment of ours mean nothing
        variables = {name: value for name, value in given.items() if "{site_packages}" not in value}
        version = spec.python[0] if spec else ""
        return Environment(adapter.name, key, self.engine, Path("python"), version, "", None, variables, image)

    def commands(self, adapter: Adapter, key: str, chosen: Mapping[str, str]) -> list[str]:
        """The shell commands by which an image comes to this machine."""
        reference = _reference(adapter, key, self.engine, chosen)
        ours = reference.startswith(PREFIX)
        made = [f"python -m dlperf.images build {adapter.name} --device {key}"] if ours else []
        if self.engine == "apptainer":
            source = f"docker-daemon:{reference}" if ours else reference
            verb = "build" if ours else "pull"
            file = [] if _is_file(reference) else [f"apptainer {verb} {quote(_file(reference))} {quote(source)}"]
            return made + file
        return made or [f"{self.engine} pull {quote(reference)}"]

    def ensure(self, adapter: Adapter, key: str, chosen: Mapping[str, str], session: Session) -> Environment:
        """The image, asked for its Python and its framework. RunError says why it cannot be had; none is built."""
        with _turn:  # one engine, one network: two at a time gain nothing
            try:
                return self._found(adapter, key, chosen, session)
            except RunError as error:
                raise RunError(error.kind, f"{adapter.name} {key}: {error}", error.lines) from None

    def _found(self, adapter: Adapter, key: str, chosen: Mapping[str, str], session: Session) -> Environment:
        wanted = self.planned(adapter, key, chosen)
        found = engine.find(self.engine, wanted.image)
        if found is None:
            reference = _reference(adapter, key, self.engine, chosen)
            if reference.startswith(PREFIX):
                steps = " && ".join(self.commands(adapter, key, chosen))
                raise RunError("environment", f"its image {reference} is not built: {steps}")
            session.say(f"{adapter.name} {key}: pulling {reference}")
            self._pull(reference, wanted.image)
            found = engine.find(self.engine, wanted.image)
        if found is None:
            raise RunError("environment", f"{wanted.image} was pulled, and is not there")
        python = engine.ask(self.engine, wanted.image, [*adapter.distribution, adapter.name])
        return replace(wanted, python_version=python, digest=found.digest, public=found.public)

    def _pull(self, reference: str, image: str) -> None:
        if self.engine != "apptainer":
            engine.pull(self.engine, reference)
            return
        Path(image).parent.mkdir(parents=True, exist_ok=True)
        aside = f"{image}.{os.getpid()}"
        asked = engine.call(self.engine, "pull", aside, reference, timeout=7200.0)
        if asked.returncode:
            Path(aside).unlink(missing_ok=True)
            raise engine.explained(self.engine, reference, asked.stderr)
        os.replace(aside, image)

    def check(self, env: Environment) -> None:
        """Cheap: RunError if the image has vanished since."""
        file = self.engine == "apptainer"
        there = Path(env.image).exists() if file else engine.find(self.engine, env.image) is not None
        if not there:
            raise RunError("environment", f"{env.adapter} {env.key}: its image {env.image} has vanished")
