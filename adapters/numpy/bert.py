"""BERT pretraining in NumPy, as the formulas of dlperf.models.bert: forward, backward and update written out."""

import numpy
from scipy.special import erf

from dlperf import models
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.optimizers import AdamW
from dlperf.adapters.numpy.runtime import cross_entropy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(job, config)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "dropout": str(network.dropout),
        "masked_positions": str(config.masked),
        "gelu": "erf",
        "attention": "products and a softmax",
    }
    return runtime.Trainer(job, ranks, network, AdamW(job, bert.optimizer(job.batch_size)), effective)


def loss(mlm, nsp, batch):
    """The sum of both, and the gradients of its outputs. mlm: (batch, masked, vocabulary); nsp: (batch, 2)."""
    weights = batch["masked_weights"].reshape(-1) / batch["masked_total"]
    of_words, d_mlm = cross_entropy(mlm.reshape(-1, mlm.shape[2]), batch["masked_ids"].reshape(-1), weights)
    each = numpy.full(len(nsp), 1 / len(nsp), nsp.dtype)
    of_order, d_nsp = cross_entropy(nsp, batch["next_sentence_labels"], each)
    return of_words + of_order, d_mlm.reshape(mlm.shape), d_nsp


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config, self.dropout = config, config.dropout * job.dropout

    def step(self, batch):
        c = self.config
        rows = numpy.arange(len(batch["lengths"]))[:, None]
        mask = numpy.where(numpy.arange(c.sequence) < batch["lengths"][:, None], 0, -10000)[:, None, None]
        (hidden, embed_back), backwards = self._embed(batch), []
        for index in range(c.layers):
            hidden, back = self._layer(f"bert.encoder.layer.{index}.", hidden, mask)
            backwards.append(back)
        mlm, mlm_back = self._predict(hidden[rows, batch["masked_positions"]])
        pooled, pool_back = self._then(self.dense("bert.pooler.dense", hidden[:, 0]), tanh)
        nsp, nsp_back = self.dense("cls.seq_relationship", pooled)
        self.shapes = {"mlm_logits": mlm.shape[1:], "nsp_logits": nsp.shape[1:]}

        value, d_mlm, d_nsp = loss(mlm, nsp, batch)
        d = numpy.zeros_like(hidden)
        numpy.add.at(d, (rows, batch["masked_positions"]), mlm_back(d_mlm))
        d[:, 0] += pool_back(nsp_back(d_nsp))
        for back in reversed(backwards):
            d = back(d)
        embed_back(d)
        return value, (mlm, nsp)

    def _embed(self, batch):
        prefix = "bert.embeddings."
        tables = [prefix + name + "_embeddings.weight" for name in ("word", "token_type", "position")]
        places = numpy.broadcast_to(numpy.arange(self.config.sequence), batch["input_ids"].shape)
        indices = [batch["input_ids"], batch["token_type_ids"], places]
        x, rows_back = self.look_up(tables, indices)
        y, back = self._then(self.layer_norm(prefix + "LayerNorm", x, self.config.norm_eps), self._drop)
        return y, lambda dy: rows_back(back(dy))

    def _layer(self, prefix, x, mask):
        attended, attention_back = self._attention(prefix + "attention.", x, mask)
        y, norm_back = self._add_norm(prefix + "attention.output.", attended, x)
        inner, inner_back = self._then(self.dense(prefix + "intermediate.dense", y), gelu)
        z, output_back = self._add_norm(prefix + "output.", inner, y)

        def backward(dz):
            d_inner, dy = output_back(dz)
            d_attended, dx = norm_back(dy + inner_back(d_inner))
            return dx + attention_back(d_attended)

        return z, backward

    def _attention(self, prefix, x, mask):
        heads = self.config.heads
        (q, q_back), (k, k_back), (v, v_back) = (self.dense(prefix + "self." + n, x) for n in ("query", "key", "value"))
        context, back = self.attend(*(split(one, heads) for one in (q, k, v)), mask, self._drop)

        def backward(dy):
            dq, dk, dv = back(split(dy, heads))
            return q_back(merge(dq)) + k_back(merge(dk)) + v_back(merge(dv))

        return merge(context), backward

    def _add_norm(self, prefix, x, residual):
        """LayerNorm(residual + dropout(dense(x))); its backward returns the gradients of x and of the residual."""
        y, back = self._then(self.dense(prefix + "dense", x), self._drop)
        z, norm_back = self.layer_norm(prefix + "LayerNorm", residual + y, self.config.norm_eps)

        def backward(dz):
            d = norm_back(dz)
            return back(d), d

        return z, backward

    def _drop(self, x):
        return self.drop(x, self.dropout)

    def _predict(self, x):
        """The MLM head; its decoder is the word embedding."""
        prefix = "cls.predictions."
        y, gelu_back = self._then(self.dense(prefix + "transform.dense", x), gelu)
        z, norm_back = self.layer_norm(prefix + "transform.LayerNorm", y, self.config.norm_eps)
        scores, back = self.project(z, "bert.embeddings.word_embeddings.weight", prefix + "bias")
        return scores, lambda d: gelu_back(norm_back(back(d)))

    @staticmethod
    def _then(first, function):
        """The function of an output, behind the layer that gave it."""
        x, back = first
        y, function_back = function(x)
        return y, lambda dy: back(function_back(dy))


def tanh(x):
    y = numpy.tanh(x)
    return y, lambda dy: dy * (1 - y * y)


def gelu(x):
    half = x.dtype.type(0.5)
    below = half * (1 + erf(x * x.dtype.type(0.5**0.5)))
    density = numpy.exp(-half * x * x) * x.dtype.type((2 * numpy.pi) ** -0.5)
    return x * below, lambda dy: dy * (below + x * density)


def split(x, heads):
    """(batch, sequence, hidden) -> (batch, heads, sequence, head size)."""
    return x.reshape((*x.shape[:2], heads, -1)).swapaxes(1, 2)


def merge(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)
