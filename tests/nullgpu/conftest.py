"""Environments with CUDA builds of frameworks, and commands that run in them on a GPU that does nothing."""

import functools
import json
import os
import subprocess
from pathlib import Path

import pytest

from dlperf import cache
from dlperf.catalog import reader
from dlperf.envs import pythons
from dlperf.runs import bundle

HERE = Path(__file__).resolve().parent
#: JAX 0.11 needs it, and the machines with a GPU that `make gpu` was written for have it
PYTHON = "3.12"
#: by framework; nvidia-cuda-crt has headers that those of the runtime include, the rest is what dlperf's core imports
PACKAGES = {
    "torch": ["torch==2.11.0", "numpy==2.*", "nvidia-cuda-crt==13.0.*", "setuptools"],
    "jax": ["jax[cuda13]==0.11.2", "numpy==2.*"],
}
CORE = ["google-crc32c", "jinja2", "matplotlib", "packaging", "pandas", "pillow", "rich", "scipy", "tokenizers"]


@pytest.fixture(scope="session")
def python():
    """Framework -> the Python of its environment, made in dlperf's cache if it is not there: gigabytes."""

    @functools.cache
    def python(name):
        folder = cache.folder() / "nullgpu" / f"{name}-{PYTHON}"
        made = folder / "bin" / "python"
        if not (folder / "ready").exists():
            uv, base = pythons.uv(), pythons.find([PYTHON]).path
            subprocess.run([uv, "venv", "--clear", "--quiet", "--python", base, folder], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", made, *PACKAGES[name], *CORE], check=True)
            (folder / "ready").touch()
        return made

    return python


@pytest.fixture(scope="session")
def variables(python, tmp_path_factory):
    """Those under which a command of the environment with PyTorch sees an H200."""
    lib, code = tmp_path_factory.mktemp("lib"), tmp_path_factory.mktemp("code")
    subprocess.run([python("torch"), HERE / "build.py", lib], check=True)
    bundle.copy_code(code, [reader.adapters()["pytorch"]])
    return {
        **os.environ,
        "LD_PRELOAD": str(lib / "libnullcuda.so"),
        "LD_LIBRARY_PATH": str(lib),
        "TRITON_LIBCUDA_PATH": str(lib),
        "PATH": f"{HERE / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(code),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def step(python, variables):
    """Arguments of torch_step.py -> what it prints, made once."""

    @functools.cache
    def step(*words):
        command = [python("torch"), "-P", HERE / "torch_step.py", *map(str, words)]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1200)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return json.loads(ended.stdout.splitlines()[-1])

    return step
