"""The kinds of environments: which there are, and how each is planned, made and looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dlperf.envs import current, venv
from dlperf.envs.environment import NO_IMAGES, Environment, Note, silent
from dlperf.envs.image import Images
from dlperf.envs.making import Session
from dlperf.errors import RunError
from dlperf.launchers.containers import ENGINES

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter

#: environments that `ensure_all` makes at the same time
AT_ONCE = 3


class Kind(Protocol):
    """One kind. chosen: images by adapter, as Spec.images; "" stands for all others."""

    def planned(self, adapter: Adapter, key: str, chosen: Mapping[str, str]) -> Environment:
        """The environment that `ensure` would return, whether it is there or not. Runs nothing."""

    def commands(self, adapter: Adapter, key: str, chosen: Mapping[str, str]) -> list[str]:
        """The shell commands that would make it. Runs nothing."""

    def ensure(self, adapter: Adapter, key: str, chosen: Mapping[str, str], session: Session) -> Environment:
        """See `ensure` of this module."""

    def check(self, env: Environment) -> None:
        """Cheap: RunError if the environment has vanished since."""


KINDS: Mapping[str, Kind] = {"venv": venv, "current": current, **{engine: Images(engine) for engine in ENGINES}}


def planned(adapter: Adapter, key: str, kind: str = "venv", chosen: Mapping[str, str] = NO_IMAGES) -> Environment:
    """See Kind."""
    return KINDS[kind].planned(adapter, key, chosen)


def commands(adapter: Adapter, key: str, kind: str = "venv", chosen: Mapping[str, str] = NO_IMAGES) -> list[str]:
    """See Kind."""
    return KINDS[kind].commands(adapter, key, chosen)


def check(env: Environment) -> None:
    """See Kind."""
    KINDS[env.kind].check(env)


def ensure(
    adapter: Adapter,
    key: str,
    kind: str = "venv",
    progress: Note = silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> Environment:
    """The environment, made first if needed. Several processes and threads may ask at once: one makes it. An image is
    not made, but pulled from its registry.

    RunError (kind "environment") if it cannot be made, with the last lines of uv or pip; nothing half-made is left
    then, nor after KeyboardInterrupt.
    """
    return KINDS[kind].ensure(adapter, key, chosen, Session(progress))


def ensure_all(
    wanted: Sequence[tuple[Adapter, str]],
    kind: str = "venv",
    progress: Note = silent,
    chosen: Mapping[str, str] = NO_IMAGES,
) -> list[Environment | RunError]:
    """`ensure` for several (adapter, key), some at a time.

    In the order of `wanted`; one that cannot be made is its RunError. `progress` is called by one thread at a time.
    """
    from concurrent.futures import ThreadPoolExecutor

    session = Session(progress)

    def one(pair: tuple[Adapter, str]) -> Environment | RunError:
        try:
            return KINDS[kind].ensure(*pair, chosen, session)
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
