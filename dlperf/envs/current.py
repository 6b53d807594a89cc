"""The interpreter that runs this, as an environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.catalog.locks import digest_of
from dlperf.envs.environment import Environment, installed, variables_of
from dlperf.envs.making import Session
from dlperf.errors import RunError

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter

VERSION = ".".join(map(str, sys.version_info[:3]))


def planned(adapter: Adapter, key: str, chosen: Mapping[str, str]) -> Environment:
    """The environment that `ensure` returns, without its digest."""
    import sysconfig

    spec = adapter.environments.get(key)
    variables = variables_of(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
    return Environment(adapter.name, key, "current", Path(sys.executable), VERSION, "", None, variables)


def commands(adapter: Adapter, key: str, chosen: Mapping[str, str]) -> list[str]:
    """None: it is there."""
    return []


def ensure(adapter: Adapter, key: str, chosen: Mapping[str, str], session: Session) -> Environment:
    """This interpreter, if it has the framework."""
    found = installed()
    if not any(name in found for name in adapter.distribution):
        names = " or ".join(adapter.distribution)
        message = f"{adapter.name} {key}: {names} is not installed in the running Python, {sys.executable}"
        raise RunError("environment", f"{message}; install it there, or leave out --env current")
    return replace(planned(adapter, key, chosen), digest=digest())


def digest() -> str:
    """Of this interpreter and the packages that it has."""
    found = installed()
    return digest_of(VERSION, *(f"{name}=={found[name]}" for name in sorted(found)))


def check(env: Environment) -> None:
    """Cheap: RunError if the interpreter has vanished since."""
    if not env.python.exists():
        raise RunError("environment", f"{env.adapter} {env.key}: its interpreter {env.python} has vanished")
