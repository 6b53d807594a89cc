"""One rank, in an adapter's Horovod environment: all-reduce float64 values, print what came out.

argv: Horovod's module for the framework, and the port at which rank 0 serves the rendezvous, or nothing where
horovodrun does.
"""

import importlib
import json
import os
import socket
import sys
import threading
import time

import numpy


def main(name, port=None):
    if port:
        meet(int(os.environ["HOROVOD_RANK"]), int(port))
    hvd = importlib.import_module("horovod." + name)
    hvd.init()
    ones = numpy.ones(3) * (hvd.rank() + 1) + 1e-12  # which float32 cannot hold
    mean = hvd.allreduce(tensor(name, ones), name="ones", op=hvd.Average)
    mean = mean.asnumpy() if name == "mxnet" else mean.numpy()
    result = {"rank": hvd.rank(), "size": hvd.size(), "dtype": mean.dtype.name, "mean": mean.tolist()}
    os.write(1, ("\n" + json.dumps(result) + "\n").encode())
    hvd.shutdown()


def meet(rank, port):
    """Rank 0 serves the rendezvous from a thread; the others wait for it: Horovod itself asks three times only."""
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    os.environ.update(HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1", HOROVOD_GLOO_RENDEZVOUS_PORT=str(port))
    if rank == 0:
        server = RendezvousHTTPServer(("127.0.0.1", port), RendezvousHandler, 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)


def tensor(name, values):
    if name == "torch":
        import torch

        return torch.from_numpy(values)
    if name == "tensorflow":
        import tensorflow

        return tensorflow.constant(values)
    import mxnet

    return mxnet.nd.array(values, dtype=values.dtype)


if __name__ == "__main__":
    main(*sys.argv[1:])
