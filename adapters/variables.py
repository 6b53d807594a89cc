"""What of the user's environment reaches a worker: what finds files, devices and other ranks, and what dlperf sets.

All else is dropped before the first library is loaded: ONEDNN_DEFAULT_FPMATH_MODE, XLA_FLAGS, NVIDIA_TF32_OVERRIDE and
their like change what a framework computes, or how fast, and a row says nothing of them. Python >= 3.7, standard
library only.
"""

import os
import sys
from typing import Dict, List, Mapping

#: names that dlperf's script sets besides, separated by spaces; where it is not set nothing is dropped, as in a
#: container, whose variables are the image's
SET = "DLPERF_SET"
#: names that were dropped, likewise
DROPPED = "DLPERF_DROPPED"
KEPT = frozenset(
    [
        # of a session and its files
        *("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TEMP", "TERM"),
        *("TMP", "TMPDIR", "TZ", "USER", "_"),
        # of the dynamic linker, which has read them
        *("LD_LIBRARY_PATH", "LD_PRELOAD"),
        # which devices there are
        *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
        # which the script of every worker sets
        *("OMP_NUM_THREADS", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUNBUFFERED"),
        # where compiled code is kept
        *("CUDA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        "TRITON_LIBCUDA_PATH",
        # which of the ranks this is
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME"),
        *("ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "JOB_COMPLETION_INDEX"),
    ]
)
#: of launchers, and of the networks that their sites have
PREFIXES = (
    *("DLPERF_", "LC_", "XDG_", "OMPI_", "OPAL_", "PMI", "PRTE_", "SLURM_", "HOROVOD_", "TORCHELASTIC_", "PET_"),
    *("KUBERNETES_", "NCCL_", "GLOO_", "UCX_", "FI_"),
)
#: of those that are kept, what may change what is computed
TOLD = ("LD_LIBRARY_PATH", "LD_PRELOAD", "NCCL_")
#: of those that are dropped, what a user may have set for a framework or its libraries
NOTABLE = (
    *("ATEN_", "BLIS_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "FLAGS_", "GLIBC_", "GOMP_", "JAX_", "KMP_", "MALLOC_"),
    *("MKL_", "MXNET_", "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_", "ONEFLOW_", "OPENBLAS_", "PYTHON", "PYTORCH_"),
    *("TF_", "TORCH", "TRITON_", "XLA_"),
)


def kept(name: str) -> bool:
    return name in KEPT or name.startswith(PREFIXES)


def foreign(environ: Mapping[str, str]) -> List[str]:
    """The names that a worker is not to see, in order; none where no script of dlperf's set any."""
    if SET not in environ:
        return []
    ours = environ[SET].split()
    return sorted(name for name in environ if name not in ours and not kept(name))


def clean() -> None:
    """Start this worker again without them, if there are any: interpreter and allocator have read theirs."""
    names = foreign(os.environ)
    if names:
        rest = {name: value for name, value in os.environ.items() if name not in names}
        rest[DROPPED] = " ".join(names)
        os.execve(sys.executable, [sys.executable, "-m", "dlperf.adapters.worker", *sys.argv[1:]], rest)


def dropped(environ: Mapping[str, str] = os.environ) -> List[str]:
    return environ.get(DROPPED, "").split()


def told(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Those that reach a worker and may change what it computes."""
    return {name: value for name, value in sorted(environ.items()) if name.startswith(TOLD)}
