"""The JAX adapter's step for CUDA, without a GPU: what XLA makes of it for an H200, and its numbers, on a CPU."""

import functools
import json
import os
import re
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import jax_step

pytestmark = [pytest.mark.nullgpu, pytest.mark.framework]

#: kernels, GB, and the products that write float32, the gradients of weights that are matrices: as counted
COUNTED = {
    ("resnet50", "amp_bf16", 256): (884, 96.2, 34),
    ("bert_base", "amp_bf16", 64): (1028, 30.5, 52),
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
    return subprocess.run([python, "-P", *words], env=variables, capture_output=True, text=True)


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


DERIVED = """
import jax
import jax.numpy as jnp
from dlperf.adapters.jax import derivatives
jax.config.update("jax_enable_x64", True)
keys, seed = jax.random.split(jax.random.key(1), 6), jnp.array([3, 5], "uint32")
query, key, value, given = (jax.random.normal(one, (2, 3, 8, 4)) for one in keys[:4])
weights = tuple(jax.random.normal(one, (4, 4)) for one in keys[:3])
biases, (weight, bias) = tuple(weights[0][:3]), weights[1][:2]
mask = (jnp.arange(8) < jnp.array([[5], [8]]))[:, None, None]
def attention(query, key, value):
    shares = jax.nn.softmax(jnp.where(mask, query @ key.swapaxes(2, 3) / 2, -jnp.inf))
    return derivatives.dropped(shares, seed, 0.25) @ value
def norm(x, weight, bias):
    return jax.nn.standardize(x, epsilon=1e-6) * weight + bias
def normal(one_pass):
    return lambda *given: derivatives.norm(*given, 1e-6, one_pass)
def projected(x, weights, biases):
    return tuple(x @ weight.T + bias for weight, bias in zip(weights, biases))
flat = query.reshape(-1, 4)
for plain, ours, *inputs in (
    (attention, lambda *given: derivatives.attention(*given, mask, seed, 0.25), query, key, value),
    (lambda x: jax.nn.gelu(x, approximate=False), derivatives.gelu, query),
    (norm, normal(True), flat, weight, bias),
    (norm, normal(False), flat, weight, bias),
    (projected, derivatives.projected, flat, weights, biases),
):
    (one, back), (other, ours_back) = jax.vjp(plain, *inputs), jax.vjp(ours, *inputs)
    given = jax.tree.map(jnp.sin, one)
    for a, b in zip(jax.tree.leaves((one, back(given))), jax.tree.leaves((other, ours_back(given)))):
        assert abs(a - b).max() < 1e-12, plain
"""


def test_derivatives_are_those_that_jax_derives(jax_python, tmp_path):
    ended = run(jax_python, tmp_path, "-c", DERIVED, JAX_PLATFORMS="cpu")
    assert ended.returncode == 0, ended.stderr


MASKS = """
import jax
import jax.numpy as jnp
from dlperf.adapters.jax import derivatives
count, rate = 1 << 22, 0.1
seeds = [*jax.random.bits(jax.random.key(1), (3, 2), "uint32"), *jnp.array([[0, 0], [0, 1]], "uint32")]
masks = [derivatives.kept(seed, (count,), rate) - (1 - rate) for seed in seeds]
def sigmas(products):
    return abs(products.mean()) / (rate * (1 - rate)) * count**0.5
for mask in masks:
    assert abs(mask.mean()) < 5 * (rate * (1 - rate) / count) ** 0.5
    for shift in (1, 2, 3, 12, 64, 128, 512, 768, 1024, 4096, 1 << 16):
        assert sigmas(mask[shift:] * mask[:-shift]) < 5, shift
for index, mask in enumerate(masks):
    for other in masks[:index]:
        assert sigmas(mask * other) < 5
"""


def test_masks_of_dropout_have_their_rate_and_do_not_resemble_each_other(jax_python, tmp_path):
    """Within five standard deviations, with a fixed seed: neighbours at all distances of a model, and other seeds."""
    ended = run(jax_python, tmp_path, "-c", MASKS, JAX_PLATFORMS="cpu")
    assert ended.returncode == 0, ended.stderr


BUILT = """
from dlperf.adapters.api import Job
from dlperf.adapters.jax import resnet
from dlperf.adapters.ranks import Ranks
resnet.build(Job("resnet_tiny", "cuda", "fp32", 4), Ranks())
"""


def test_a_plugin_that_does_not_start_says_why(jax_python, tmp_path):
    said = run(jax_python, tmp_path, "-c", BUILT, CUDA_VISIBLE_DEVICES="").stderr.splitlines()[-1]
    assert re.match(r"dlperf\.adapters\.api\.Unsupported: JAX [\d.]+ finds no GPU: .+; nvidia-smi", said), said
