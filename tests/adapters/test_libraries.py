"""What loaded libraries of products tell of themselves."""

import ctypes
import shutil
import subprocess
import sys

import pytest

from dlperf.adapters import libraries

OPENBLAS = """
char *openblas_get_config(void) { return "OpenBLAS 0.3.21.dev DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64"; }
char *openblas_get_corename(void) { return "SkylakeX"; }
int dnnl_get_effective_cpu_isa(void) { return 0xe7; }
"""
MKL = """
void MKL_Get_Version_String(char *buffer, int length) {
    __builtin_snprintf(buffer, length, "Intel(R) Math Kernel Library Version 2019.0.5 Product Build 20190808");
}
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Builds a library of C and loads it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    for name in libraries.VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def load(name, source):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if compiler is None:
            pytest.skip("no C compiler is here")
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
        ctypes.CDLL(str(path))
        monkeypatch.setattr(libraries, "_loaded", lambda: real(tmp_path))
        return path

    whole = libraries._loaded

    def real(folder):
        return [path for path in whole() if path.startswith(str(folder))]

    return load


def test_versions_and_kernels_are_read(loaded, monkeypatch):
    loaded("libopenblas.so.0", OPENBLAS)
    loaded("libmklml_intel.so", MKL)
    assert libraries.told() == "MKL 2019.0.5, OpenBLAS 0.3.21 (kernels for SkylakeX), oneDNN (AVX-512 with bfloat16)"
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert libraries.told().endswith(", OPENBLAS_CORETYPE=Haswell")


def test_what_numpy_brings_for_itself_is_none_of_the_framework(loaded):
    loaded("numpy.libs/libopenblas.so.0", OPENBLAS)
    assert libraries.told() == ""


def test_this_interpreter_has_none_of_a_framework():
    code = "import numpy; from dlperf.adapters import libraries; print(repr(libraries.told()))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert ended.stdout == "''\n"
