"""Which libraries of matrix products are loaded in this process, and which kernels they take here, as they tell it."""

import ctypes
import os
import re
from typing import List

#: libraries that have products, by their files' names
FILES = re.compile(r"blas|mkl|dnn|torch_cpu|mxnet", re.IGNORECASE)
#: folders of those that numpy and others bring for themselves
OTHERS = re.compile(r"/(numpy|scipy|opencv_python\w*|pillow)\.libs/")
#: variables by which one names kernels; frameworks' adapters set them, the user's do not get here
VARIABLES = ("MKL_DEBUG_CPU_TYPE", "OPENBLAS_CORETYPE")
#: dnnl_cpu_isa_t, of oneapi/dnnl/dnnl_types.h
ISAS = {
    0x1: "SSE4.1",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2 with VNNI",
    0x1F: "AVX2 with VNNI 2",
    0x27: "AVX-512",
    0x67: "AVX-512 with VNNI",
    0xE7: "AVX-512 with bfloat16",
    0x1EF: "AVX-512 with float16",
    0xFEF: "AMX",
    0x1FEF: "AMX with float16",
}


def told() -> str:
    """In words; empty where none tells anything, as where they are built into a framework's own library."""
    found = {one: None for path in _loaded() for one in of(path)}
    named = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return ", ".join([*sorted(found), *named])


def _loaded() -> List[str]:
    """The files of libraries that this process has mapped; none where the system does not say."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.rstrip("\n").partition("/")[2] for line in file if ".so" in line}
    except OSError:
        return []
    return [
        f"/{path}" for path in sorted(paths) if FILES.search(os.path.basename(path)) and not OTHERS.search(f"/{path}")
    ]


def of(path: str) -> List[str]:
    """What the library in a file tells of itself, which is loaded already."""
    try:
        library = ctypes.CDLL(path)
    except OSError:  # it was replaced meanwhile
        return []
    found = []
    if hasattr(library, "openblas_get_config"):
        library.openblas_get_config.restype = library.openblas_get_corename.restype = ctypes.c_char_p
        version = re.search(r"OpenBLAS (\d+(?:\.\d+)*)", library.openblas_get_config().decode())
        kernels = library.openblas_get_corename().decode()
        found.append(f"OpenBLAS{' ' + version.group(1) if version else ''} (kernels for {kernels})")
    if hasattr(library, "MKL_Get_Version_String"):
        buffer = ctypes.create_string_buffer(256)
        library.MKL_Get_Version_String(buffer, len(buffer))
        version = re.search(r"Version (\d+(?:\.\d+)*)", buffer.value.decode())
        found.append(f"MKL{' ' + version.group(1) if version else ''}")
    if hasattr(library, "dnnl_get_effective_cpu_isa"):
        isa = library.dnnl_get_effective_cpu_isa()
        found.append(f"oneDNN ({ISAS.get(isa, hex(isa))})")
    return found
