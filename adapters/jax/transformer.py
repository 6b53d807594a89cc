"""Transformer in JAX: pure functions over a dict of arrays, one jitted step with donated state."""

import jax
import jax.numpy as jnp

from dlperf import models
from dlperf.adapters.jax import optimizers, runtime
from dlperf.adapters.jax.bert import Parts, cross_entropy
from dlperf.adapters.jax.dropout import Dropout
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]

TABLE = "embedding.weight"


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, job)
    optimizer = optimizers.AdamW(job, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {
        "label_smoothing": str(config.label_smoothing),
        "attention": "softmax written out, fused by XLA",
        "masks": Dropout.words(job.device),
        "norm_moments": "one pass" if network.one_pass else "two passes",
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, weights, statistics, batch, key):
    logits = network(weights, batch, key)
    tokens = cross_entropy(logits, batch["labels"], network.device, network.config.label_smoothing)
    return (tokens * batch["target_weights"]).sum() / batch["target_total"], (logits,), statistics


class Network:
    """weights: a dict of arrays under the canonical names of dlperf.models.transformer. What pre-norm layers add up
    is in float32."""

    def __init__(self, config, job):
        self.config, self.dtype, self.device = config, runtime.DTYPES[job.precision], job.device
        self.dropout = config.dropout * job.dropout
        #: as in `resnet.Network`
        self.one_pass = job.device == "cuda" and (job.mixed or job.precision == "tf32")
        self.shapes, self.compute_dtype = {}, None
        self._positions = transformer.positions(config)

    def __call__(self, weights, batch, key):
        part = Parts(self.config, weights, Dropout(self.dropout, key, self.device), self.device, self.one_pass)
        columns = jnp.arange(self.config.sequence)
        padding = (columns < batch["source_lengths"][:, None])[:, None, None, :]
        later = columns <= columns[:, None]
        memory = self._side(part, "encoder", self._embed(part, weights, batch["source"]), {"self_attention": padding})
        masks = {"self_attention": later, "cross_attention": padding}
        x = self._side(part, "decoder", self._embed(part, weights, batch["target"]), masks, memory)
        logits = part.project(x, TABLE)
        self.compute_dtype = logits.dtype
        self.shapes.update(logits=logits.shape[1:])
        return logits

    @jax.named_scope("embedding")
    def _embed(self, part, weights, tokens):
        table = weights[TABLE]
        x = table[tokens] * self.config.hidden**0.5 + jnp.asarray(self._positions, table.dtype)
        return part.dropout(x if self.config.pre_norm else x.astype(self.dtype))

    def _side(self, part, side, x, masks, memory=None):
        """The encoder, or the decoder, which takes the encoder's output."""
        pre_norm = self.config.pre_norm
        for index in range(self.config.layers):
            layer = f"{side}.layers.{index}."
            for number, kind in enumerate(transformer.SIDES[side], 1):
                norm = f"{layer}norm{number}"
                inputs = part.norm(x, norm).astype(self.dtype) if pre_norm else x
                if kind == "feed_forward":
                    y = self._feed_forward(part, inputs, layer + kind)
                else:
                    of = memory if kind == "cross_attention" else inputs
                    y = self._attend(part, inputs, of, masks[kind], layer + kind)
                x = x + part.dropout(y)
                x = x if pre_norm else part.norm(x, norm)
        return part.norm(x, f"{side}.norm").astype(self.dtype) if pre_norm else x

    @jax.named_scope("attention")
    def _attend(self, part, x, memory, mask, name):
        inputs = ((x, "query"), (memory, "key"), (memory, "value"))
        query, key, value = (part.project(of, f"{name}.{kind}.weight") for of, kind in inputs)
        context = part.attend(query, key, value, mask, self.config.heads)
        return part.project(context, f"{name}.output.weight")

    def _feed_forward(self, part, x, name):
        inner = part.dense(x, name + ".inner")
        with jax.named_scope("elementwise"):
            inner = jax.nn.relu(inner)
        return part.dense(part.dropout(inner), name + ".outer")
