"""What must be settled before OneFlow is imported: its kernels for products, and where its ranks meet.

Python runs this before any module of the package, and so before any of them imports oneflow.
"""

import os

from dlperf.adapters import cpu
from dlperf.adapters.ranks import await_port, from_environment


def _choose_blas():
    # The wheel's OpenBLAS is older than most processors it meets, and where it does not know one it takes its SSE3
    # kernels, which multiply matrices at 0.4 times the speed. "Haswell" names its AVX2 kernels, the best it has.
    flags = cpu.flags() or ()
    if "avx2" in flags and "fma" in flags:
        os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")


def _prepare_to_meet():
    """OneFlow's import starts its control plane, which meets the other ranks where MASTER_ADDR and its like say; the
    worker has set them. Where rank 0 does not listen yet, OneFlow looks again 10 seconds later: so it is awaited."""
    place = from_environment()
    if place.world_size == 1:
        for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"):
            os.environ.pop(name, None)  # of somebody's allocation, whose ranks OneFlow would look for
        return
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        os.environ.pop(name, None)  # the control plane is gRPC, which would look for all ranks behind it
    if place.rank > 0:
        await_port(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 60)


#: what multiplies, in words: for Trainer.effective
PRODUCTS = ["the wheel's own"]


def prepare(job):
    """Called by the worker, see dlperf.adapters.api."""
    if job.device == "cpu" and job.options.get("openblas") == "scipy":
        from dlperf.adapters.oneflow import blas

        PRODUCTS[0] = blas.put_in_front()


_choose_blas()
_prepare_to_meet()
