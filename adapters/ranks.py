"""Where this process stands among the processes of a job."""

import os
from typing import NamedTuple


class Ranks(NamedTuple):
    """rank of world_size processes; local_rank of local_size on this node. One process has one device."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1


def from_environment(environ=os.environ):
    """The ranks that the launcher set, in torchrun's names; one process where it set none."""
    names = {
        "rank": "RANK",
        "world_size": "WORLD_SIZE",
        "local_rank": "LOCAL_RANK",
        "local_size": "LOCAL_WORLD_SIZE",
    }
    defaults = Ranks()._asdict()
    return Ranks(**{field: int(environ.get(name, defaults[field])) for field, name in names.items()})
