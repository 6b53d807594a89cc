"""The interpreter that runs this, as an environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.catalog.locks import digest_of
from dlperf.envs.environment import Environment, variables_of
from dlperf.errors import RunError

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter


def ensure_current(adapter: Adapter, key: str) -> Environment:
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
    digest = digest_of(version, *(f"{name}=={installed[name]}" for name in sorted(installed)))
    spec = adapter.environments.get(key)
    variables = variables_of(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
    return Environment(adapter.name, key, "current", Path(sys.executable), version, digest, None, variables)
