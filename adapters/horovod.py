"""What Horovod needs before its `init`, in any framework: who is who, and where the ranks meet."""

import os
import threading
from typing import Dict

from dlperf.adapters.ranks import Ranks, await_port, interface


def prepare(ranks: Ranks, seconds: float) -> None:
    """Set the variables that `hvd.init()` reads, and serve the meeting of Gloo's ranks from rank 0; horovodrun has done
    both where it started them. Lost if rank 0 does not come within `seconds`."""
    if "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        return
    address, port = ranks.addresses[0], ranks.ports[0]
    own = ranks.addresses[ranks.rank]
    values: Dict[str, object] = {
        "RANK": ranks.rank,
        "SIZE": ranks.world_size,
        "LOCAL_RANK": ranks.local_rank,
        "LOCAL_SIZE": ranks.local_size,
        "CROSS_RANK": ranks.node_rank,
        "CROSS_SIZE": ranks.nnodes,
        "HOSTNAME": own,  # one word for each node
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
        "GLOO_RENDEZVOUS_ADDR": address,
        "GLOO_RENDEZVOUS_PORT": port,
    }
    if ranks.nnodes > 1:
        values["GLOO_IFACE"] = interface(own)
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in values.items()})
    if ranks.rank == 0:
        _serve(address, port)
    else:
        await_port(address, port, seconds)  # Horovod itself asks three times only


def _serve(address: str, port: int) -> None:
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((address, port), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
