"""BERT pretraining in JAX: pure functions over a dict of arrays, one jitted step with donated state."""

import jax
import jax.numpy as jnp
from jax import lax

from dlperf import models
from dlperf.adapters.jax import derivatives, optimizers, runtime
from dlperf.adapters.jax.dropout import Dropout
from dlperf.adapters.jax.linear import linear, plus, wide
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, job)
    optimizer = optimizers.AdamW(job, bert.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "masked_positions": str(config.masked),
        "attention": "softmax written out, fused by XLA",
        "masks": Dropout.words(job.device),
        "norm_moments": "one pass" if network.one_pass else "two passes",
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


# named_scope: for dlperf.adapters.jax.profiling
def loss(network, weights, statistics, batch, key):
    mlm, nsp = network(weights, batch, key)
    words = cross_entropy(mlm, batch["masked_ids"], network.device)
    of_words = (words * batch["masked_weights"]).sum() / batch["masked_total"]
    return of_words + cross_entropy(nsp, batch["next_sentence_labels"], network.device).mean(), (mlm, nsp), statistics


@jax.named_scope("loss")
def cross_entropy(logits, labels, device, smoothing=0.0):
    """Of each label. smoothing: share of the target that is spread over all."""
    logs = jax.nn.log_softmax(wide(logits))
    if device == "cuda":  # summed, as the gradient of a look-up is a scatter
        right = jnp.where(jnp.arange(logs.shape[-1]) == labels[..., None], logs, 0).sum(-1)
    else:
        right = jnp.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
    return -((1 - smoothing) * right + smoothing * logs.mean(-1)) if smoothing else -right


KINDS = ("query", "key", "value")


class Network:
    """weights: a dict of arrays under the canonical names of dlperf.models.bert."""

    def __init__(self, config, job):
        self.config, self.dtype, self.device = config, runtime.DTYPES[job.precision], job.device
        self.dropout = config.dropout * job.dropout
        #: as in `resnet.Network`
        self.one_pass = job.device == "cuda" and (job.mixed or job.precision == "tf32")
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, weights, batch, key):
        """Logits of the masked words and of the next sentence."""
        part = Parts(self.config, weights, Dropout(self.dropout, key, self.device), self.device, self.one_pass)
        hidden = self._embed(part, weights, batch)
        columns = jnp.arange(hidden.shape[1])
        mask = (columns < batch["lengths"][:, None])[:, None, None, :]
        for index in range(self.config.layers):
            hidden = self._layer(part, hidden, mask, f"bert.encoder.layer.{index}.")
        masked = jnp.take_along_axis(hidden, batch["masked_positions"][..., None], axis=1)
        mlm = self._predict(part, weights, masked)
        nsp = part.dense(jnp.tanh(part.dense(hidden[:, 0], "bert.pooler.dense")), "cls.seq_relationship")
        self.compute_dtype = mlm.dtype
        self.shapes.update(mlm_logits=mlm.shape[1:], nsp_logits=nsp.shape[1:])
        return mlm, nsp

    @jax.named_scope("embedding")
    def _embed(self, part, weights, batch):
        name = "bert.embeddings."
        x = weights[name + "word_embeddings.weight"][batch["input_ids"]]
        x = x + weights[name + "token_type_embeddings.weight"][batch["token_type_ids"]]
        x = x + weights[name + "position_embeddings.weight"][: x.shape[1]]
        return part.dropout(part.norm(x, name + "LayerNorm").astype(self.dtype))

    def _layer(self, part, x, mask, name):
        context = self._attend(part, x, mask, name + "attention.self.")
        context = part.dropout(part.dense(context, name + "attention.output.dense"))
        x = part.norm(x + context, name + "attention.output.LayerNorm")
        inner = part.gelu(part.dense(x, name + "intermediate.dense"))
        return part.norm(x + part.dropout(part.dense(inner, name + "output.dense")), name + "output.LayerNorm")

    @jax.named_scope("attention")
    def _attend(self, part, x, mask, name):
        inputs = part.projected(x, name) if self.device == "cuda" else (part.dense(x, name + one) for one in KINDS)
        return part.attend(*inputs, mask, self.config.heads)

    def _predict(self, part, weights, x):
        name = "cls.predictions."
        x = part.gelu(part.dense(x, name + "transform.dense"))
        x = part.norm(x, name + "transform.LayerNorm")
        decoder = weights["bert.embeddings.word_embeddings.weight"]
        with jax.named_scope("product"):
            flat, bias = linear(x.reshape(-1, x.shape[-1]), decoder, self.device), weights[name + "bias"]
            flat = plus(flat, bias) if self.device == "cuda" else flat + bias.astype(x.dtype)
        return flat.reshape(*x.shape[:-1], -1)


class Parts:
    """The layers that have weights, by name, and dropout."""

    def __init__(self, config, weights, dropout, device, one_pass):
        self._config, self._weights, self.dropout = config, weights, dropout
        self._device, self._one_pass = device, one_pass

    @jax.named_scope("product")
    def dense(self, x, name):
        bias = self._weights[name + ".bias"]
        flat = self.project(x.reshape(-1, x.shape[-1]), name + ".weight")
        flat = plus(flat, bias) if self._device == "cuda" else (wide(flat) + bias).astype(x.dtype)
        return flat.reshape(*x.shape[:-1], -1)

    @jax.named_scope("product")
    def project(self, x, weight):
        """By the name of the weight alone."""
        return linear(x.reshape(-1, x.shape[-1]), self._weights[weight], self._device).reshape(*x.shape[:-1], -1)

    def attend(self, query, key, value, mask, heads):
        """softmax(query key' / sqrt(size)), dropped, times value, of all heads of all rows as one stack of matrices.
        query, key, value: (rows, columns, hidden). mask: True for columns that count."""
        rows, columns, hidden = query.shape
        size = hidden // heads
        query, key, value = (one.reshape(rows, -1, heads, size) for one in (query, key, value))
        if self._device == "cuda":
            inputs = (one.transpose(0, 2, 1, 3) for one in (query, key, value))
            context = derivatives.attention(*inputs, mask, self.dropout.seed(), self.dropout.rate)
            return context.transpose(0, 2, 1, 3).reshape(rows, columns, hidden)
        query, key = (one.transpose(0, 2, 1, 3).reshape(rows * heads, -1, size) for one in (query, key))
        value = value.transpose(0, 2, 3, 1).reshape(rows * heads, size, -1)
        scores = wide(linear(query, key, self._device)).reshape(rows, heads, columns, -1) / size**0.5
        shares = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)).astype(query.dtype)
        context = linear(self.dropout(shares).reshape(rows * heads, columns, -1), value, self._device)
        return context.reshape(rows, heads, columns, size).transpose(0, 2, 1, 3).reshape(rows, columns, hidden)

    @jax.named_scope("product")
    def projected(self, x, name):
        """query, key and value."""
        kinds = [name + kind for kind in KINDS]
        weights, biases = (tuple(self._weights[kind + of] for kind in kinds) for of in (".weight", ".bias"))
        flat = derivatives.projected(x.reshape(-1, x.shape[-1]), weights, biases)
        return (one.reshape(x.shape) for one in flat)

    @jax.named_scope("elementwise")
    def gelu(self, x):
        return derivatives.gelu(x) if self._device == "cuda" else jax.nn.gelu(x, approximate=False)

    @jax.named_scope("normalisation")
    def norm(self, x, name):
        if self._device == "cuda":
            weight, bias, flat = (
                self._weights[name + ".weight"],
                self._weights[name + ".bias"],
                x.reshape(-1, x.shape[-1]),
            )
            return derivatives.norm(flat, weight, bias, self._config.norm_eps, self._one_pass).reshape(x.shape)
        values = wide(x)
        mean = values.mean(-1, keepdims=True)
        variance = jnp.square(values - mean).mean(-1, keepdims=True)
        normal = (values - mean) * lax.rsqrt(variance + self._config.norm_eps)
        return (normal * self._weights[name + ".weight"] + self._weights[name + ".bias"]).astype(x.dtype)
