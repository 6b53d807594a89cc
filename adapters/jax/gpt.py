"""GPT-2 pretraining in JAX: pure functions over a dict of arrays, one jitted step with donated state."""

import jax
import jax.numpy as jnp

from dlperf import models
from dlperf.adapters.jax import optimizers, runtime
from dlperf.adapters.jax.bert import Parts, cross_entropy
from dlperf.adapters.jax.linear import linear, wide
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model), job)
    optimizer = optimizers.AdamW(job, gpt.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "attention": "jax.nn.dot_product_attention (cuDNN)" if network.fused else "softmax written out, fused by XLA",
        "norm_moments": "one pass" if network.one_pass else "two passes",
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, weights, statistics, batch, key):
    logits = network(weights, batch["input_ids"])
    return cross_entropy(logits, batch["labels"], network.device).mean(), (logits,), statistics


class Network:
    """weights: a dict of arrays under the canonical names of dlperf.models.gpt. What layers add up is in float32."""

    def __init__(self, config, job):
        self.config, self.dtype, self.device = config, runtime.DTYPES[job.precision], job.device
        #: as in `resnet.Network`
        self.one_pass = job.device == "cuda" and (job.mixed or job.precision == "tf32")
        self.fused = job.device == "cuda" and job.mixed  # cuDNN's attention has 16 bits only
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, weights, tokens):
        part = Parts(self.config, weights, None, self.device, self.one_pass)
        with jax.named_scope("embedding"):
            table = weights["transformer.wte.weight"]
            x = table[tokens] + weights["transformer.wpe.weight"][: tokens.shape[1]]
        for index in range(self.config.layers):
            name = f"transformer.h.{index}."
            context = self._attend(part.dense(self._norm(part, x, name + "ln_1"), name + "attn.c_attn"))
            x = x + part.dense(context, name + "attn.c_proj")
            inner = part.dense(self._norm(part, x, name + "ln_2"), name + "mlp.c_fc")
            with jax.named_scope("elementwise"):
                inner = jax.nn.gelu(wide(inner), approximate=True).astype(inner.dtype)  # 1 + tanh needs the digits
            x = x + part.dense(inner, name + "mlp.c_proj")
        x = self._norm(part, x, "transformer.ln_f")
        with jax.named_scope("product"):
            logits = linear(x.reshape(-1, x.shape[-1]), table, self.device).reshape(*x.shape[:-1], -1)
        self.compute_dtype = logits.dtype
        self.shapes.update(logits=logits.shape[1:])
        return logits

    def _norm(self, part, x, name):
        return part.norm(x, name).astype(self.dtype)

    @jax.named_scope("attention")
    def _attend(self, parts):
        """parts: (rows, tokens, 3 * hidden). Of all heads of all rows as one stack of matrices."""
        rows, tokens = parts.shape[:2]
        heads, size = self.config.heads, self.config.head_size
        parts = parts.reshape(rows, tokens, 3, heads, size)
        if self.fused:
            context = jax.nn.dot_product_attention(
                *(parts[:, :, i] for i in range(3)), is_causal=True, implementation="cudnn"
            )
            return context.reshape(rows, tokens, -1)
        query, key = (parts[:, :, i].transpose(0, 2, 1, 3).reshape(-1, tokens, size) for i in range(2))
        value = parts[:, :, 2].transpose(0, 2, 3, 1).reshape(-1, size, tokens)
        scores = wide(linear(query, key, self.device)) / size**0.5
        shares = jax.nn.softmax(jnp.where(jnp.tri(tokens, dtype=bool), scores, -jnp.inf)).astype(parts.dtype)
        context = linear(shares, value, self.device).reshape(rows, heads, tokens, size)
        return context.transpose(0, 2, 1, 3).reshape(rows, tokens, -1)
