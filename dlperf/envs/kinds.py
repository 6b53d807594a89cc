"""The kinds of environments: which there are, and how each is planned, made and looked at."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf.envs.current import ensure_current
from dlperf.envs.environment import NO_IMAGES, Environment, Progress, silent, variables_of
from dlperf.envs.making import Session
from dlperf.envs.target import MARKER, target_of
from dlperf.envs.venv import ensure_venv
from dlperf.errors import RunError
from dlperf.launchers.containers import ENGINES

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter

#: environments that `ensure_all` makes at the same time
AT_ONCE = 3


def images() -> Any:
    """dlperf.images, which needs this module."""
    from dlperf import images

    return images


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
        variables = variables_of(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
        version = ".".join(map(str, sys.version_info[:3]))
        return Environment(adapter.name, key, kind, Path(sys.executable), version, "", None, variables)
    target = target_of(adapter, key)
    version = target.spec.python[0]
    packages = target.folder / "lib" / f"python{version}" / "site-packages"
    python = target.folder / "bin" / "python"
    variables = variables_of(target.spec, packages)
    return Environment(adapter.name, key, kind, python, version, target.digest, target.folder, variables)


def ensure(
    adapter: Adapter,
    key: str,
    kind: str = "venv",
    progress: Progress = silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> Environment:
    """The environment, made first if needed. Several processes and threads may ask at once: one makes it. An image is
    not made, but pulled from its registry.

    RunError (kind "environment") if it cannot be made, with the last lines of uv or pip; nothing half-made is left
    then, nor after KeyboardInterrupt.
    """
    return _any(adapter, key, kind, chosen, Session(progress))


def _any(adapter: Adapter, key: str, kind: str, chosen: Mapping[str, str], session: Session) -> Environment:
    if kind in ENGINES:
        found: Environment = images().ensure(adapter, key, kind, chosen, session.say)
        return found
    return ensure_current(adapter, key) if kind == "current" else ensure_venv(adapter, key, session)


def ensure_all(
    wanted: Sequence[tuple[Adapter, str]],
    kind: str = "venv",
    progress: Progress = silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> list[Environment | RunError]:
    """`ensure` for several (adapter, key), some at a time.

    In the order of `wanted`; one that cannot be made is its RunError. `progress` is called by one thread at a time.
    """
    from concurrent.futures import ThreadPoolExecutor

    session = Session(progress)

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


def check(env: Environment) -> None:
    """Cheap: RunError if the environment has vanished since."""
    if env.image:
        images().check(env)
        return
    if env.folder is not None and not (env.folder / MARKER).exists():
        raise RunError("environment", f"{env.adapter} {env.key}: its environment {env.folder} has vanished")
    if not env.python.exists():
        raise RunError("environment", f"{env.adapter} {env.key}: its interpreter {env.python} has vanished")
