"""The JAX adapter's step for CUDA, without a GPU: what XLA makes of it for an H200, and its numbers, on a CPU."""

import functools
import json
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import jax_step

pytestmark = [pytest.mark.nullgpu, pytest.mark.framework]

#: kernels, GB, and the products that write float32, the gradients of weights that are matrices: as counted
COUNTED = {
    ("resnet50", "amp_bf16", 256): (989, 98.2, 34),
    ("bert_base", "amp_bf16", 64): (1326, 43.0, 52),
}
ASKED = [pytest.param(one, id="-".join(map(str, one))) for one in COUNTED]
#: of losses: what is summed in another order, or rounded elsewhere
SAME = {"fp64": 1e-12, "fp32": 1e-5, "amp_bf16": 2e-2}


@pytest.fixture(scope="session")
def jax_python(python):
    return str(python("jax"))


@pytest.fixture(scope="session")
def step(jax_python):
    return functools.cache(lambda *asked: jax_step.Step(*asked, jax_step.optimised(*asked, python=jax_python)))


def run(python, folder, *words, **variables):
    variables = {**os.environ, "PYTHONPATH": jax_step.package(folder), **variables}
    return subprocess.run([python, *words], env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("asked", ASKED)
def test_a_step_has_no_more_kernels_and_bytes_than_were_counted(step, asked):
    made, (kernels, gigabytes, _) = step(*asked), COUNTED[asked]
    assert len(made.kernels) <= kernels, made.row()
    assert made.gigabytes <= gigabytes, made.row()


@pytest.mark.parametrize("asked", ASKED)
def test_no_product_is_in_float32_and_only_gradients_of_weights_are_written_so(step, asked):
    made = step(*asked)
    assert not made.wide_products()
    assert len(made.products_in("f32")) == COUNTED[asked][2]


def test_xla_compiles_resnet_with_its_default_flags(jax_python):
    """It aborted on a slice before a product: triton_tiling_propagation.cc:703."""
    assert jax_step.optimised("resnet50", "amp_bf16", 256, "", jax_python)


@pytest.mark.parametrize("model", ["resnet_tiny", "bert_tiny"])
@pytest.mark.parametrize("precision", SAME)
def test_the_step_for_cuda_computes_what_the_cpus_does(jax_python, tmp_path, model, precision):
    told = run(jax_python, tmp_path, jax_step.__file__, model, precision, "--losses")
    losses = json.loads(told.stdout.splitlines()[-1])
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=SAME[precision])


POOLED = """
import jax
from dlperf.adapters.jax.resnet import max_pool, max_pool_by_shifts
for shape in ((2, 8, 12, 3), (2, 7, 9, 3)):
    x = jax.random.randint(jax.random.key(1), shape, -3, 4).astype("bfloat16")
    given = jax.random.randint(jax.random.key(2), max_pool(x).shape, -8, 8).astype("bfloat16")
    one, other = (jax.vjp(of, x)[1](given)[0] for of in (max_pool, max_pool_by_shifts))
    assert (one == other).all(), shape
"""


def test_max_pools_gradient_is_jaxs(jax_python, tmp_path):
    """To the bit, with many ties, of even and odd sizes."""
    ended = run(jax_python, tmp_path, "-c", POOLED, JAX_PLATFORMS="cpu")
    assert ended.returncode == 0, ended.stderr


BUILT = """
from dlperf.adapters.api import Job
from dlperf.adapters.jax import resnet
from dlperf.adapters.ranks import Ranks
resnet.build(Job("resnet_tiny", "cuda", "fp32", 4), Ranks())
"""


def test_a_plugin_that_does_not_start_says_why(jax_python, tmp_path):
    said = run(jax_python, tmp_path, "-c", BUILT, CUDA_VISIBLE_DEVICES="").stderr.splitlines()[-1]
    assert said.startswith("dlperf.adapters.api.Unsupported: JAX finds no GPU: ")
    assert not said.endswith(": ")
