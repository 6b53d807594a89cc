"""What the libraries of MXNet's wheel read when they are loaded, as they do OMP_NUM_THREADS, which the launcher sets.

Python runs this before any module of the package, and so before any of them imports mxnet.
"""

import ctypes
import os

from dlperf.adapters import cpu

# libgomp's threads spin for some milliseconds at each of a step's thousands of barriers: beside one other busy process
# on two cores, a step took up to four times as long as with this setting; alone, both took the same time
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if "avx2" in (cpu.flags() or ()):
    # OpenBLAS 0.3.13 takes SSE3 kernels on processors that it does not know; its best, in this wheel, are AVX2's
    os.environ.setdefault("OPENBLAS_CORETYPE", "HASWELL")
if "amx_bf16" in (cpu.flags() or ()) and not ctypes.CDLL(None).syscall(158, 0x1023, 18):
    # oneDNN 2.4.4 uses AMX only if told, and does not ask Linux for it: arch_prctl(ARCH_REQ_XCOMP_PERM,
    # XFEATURE_XTILEDATA). Without AMX its bfloat16 kernels are no faster than its float32 ones, or half as fast
    os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX")
if os.environ.get("DLPERF_ROLE") == "server":
    # a parameter server waits for each of its operations anyway, see communication.start
    os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
