"""The OpenBLAS of scipy's wheel in front of OneFlow's own, which is of 2021 and has kernels for AVX2 at best: OneFlow
looks its products up by name, and takes those that it finds first. Before oneflow is imported."""

import ctypes
import glob
import importlib.util
import os

import numpy

from dlperf.adapters import cpu, libraries

#: what its kernels for AVX-512 need
AVX512 = {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}
#: rows, columns and length of products that it must get right: odd ones, small and large
SHAPES = [(1, 5, 3), (7, 33, 129), (64, 64, 64), (257, 100, 301)]
ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112


def put_in_front():
    """What multiplies from now on, in words."""
    if AVX512.issubset(cpu.flags() or ()):
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    found = importlib.util.find_spec("scipy")
    if found is None:
        return "the wheel's own: there is no scipy in this environment"
    folder = os.path.join(os.path.dirname(found.submodule_search_locations[0]), "scipy.libs")
    try:
        for name in ("libquadmath", "libgfortran"):  # which it needs, and would not find
            for path in glob.glob(os.path.join(folder, name + "*")):
                ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        path = glob.glob(os.path.join(folder, "libopenblas*"))[0]
        library = ctypes.CDLL(path)
        library.openblas_set_num_threads(1)  # each of OneFlow's operations runs on one thread
        wrong = [shape for shape in SHAPES if not right(library, *shape)]
        if wrong:
            return f"the wheel's own: scipy's computes wrong products of {wrong[0]} here"
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except (OSError, AttributeError, IndexError) as error:
        return f"the wheel's own: scipy's cannot be used ({error})"
    return ", ".join(libraries.of(path)) + ", of scipy's wheel"


def right(library, rows, columns, length):
    """Whether a product of float32 is what float64 gives, with operands as they are and transposed."""
    random = numpy.random.RandomState(1)
    a, b = (random.standard_normal(shape).astype("float32") for shape in ((rows, length), (length, columns)))
    exact = a.astype("float64") @ b.astype("float64")
    for turned in (False, True):
        sides = [numpy.ascontiguousarray(one.T if turned else one) for one in (a, b)]
        made = numpy.zeros((rows, columns), "float32")
        layout = [TRANSPOSED if turned else AS_IT_IS] * 2
        steps = [one.shape[1] for one in (*sides, made)]
        pointers = [one.ctypes.data_as(ctypes.c_void_p) for one in (*sides, made)]
        one, none = ctypes.c_float(1.0), ctypes.c_float(0.0)
        library.cblas_sgemm(
            *(ROW_MAJOR, *layout, rows, columns, length),
            *(one, pointers[0], steps[0], pointers[1], steps[1], none, pointers[2], steps[2]),
        )
        if not numpy.allclose(made, exact, rtol=1e-4, atol=1e-4 * length**0.5):
            return False
    return True
