"""BERT pretraining in MXNet: gluon, hybridized with static memory; batched products for attention, fused AdamW."""

import numpy as np
from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime
from dlperf.adapters.mxnet.layers import Dense, attend, multiplied, of_two_classes
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]

ERF_SLOPE_ERROR = float(np.sqrt(np.float32(np.pi))) / np.pi**0.5 - 1


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    precision = runtime.Precision(job)
    network = Network(config, config.dropout * job.dropout, precision, job.device == "cuda")
    runtime.load(network, job, device)
    optimizer = optimizers.AdamW(job, network, bert.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "masked_positions": str(config.masked),
        "attention": "batch_dot, softmax of each row's length" if network.counted else "batch_dot, softmax",
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(F, network, batch):
    mlm, nsp = network(*(batch[name] for name in ("input_ids", "token_type_ids", "lengths", "masked_positions")))
    words = F.pick(F.log_softmax(mlm), batch["masked_ids"]) * batch["masked_weights"]
    # exact, since where sentences that follow and others cancel 1e-6 is up to 1e-4 of the gradient of their biases
    follows = of_two_classes(F, nsp, batch["next_sentence_labels"])
    return F.mean(follows) - F.sum(words) / batch["masked_total"], (mlm, nsp)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.bert.

    With mixed precision the dense layers are 16 bits wide, and GELU, and with float16 the products of attention.
    counted: the softmax is told how long each row is, as on CUDA, where a mask would be read in each layer.
    """

    def __init__(self, config, dropout, precision, counted):
        super().__init__()
        self.config, self.dropout, self.precision, self.counted = config, dropout, precision, counted
        layers = nn.HybridSequential()
        layers.add(*[Layer(config, dropout, precision, counted) for _ in range(config.layers)])
        self.bert = Group(
            {
                "embeddings": Embeddings(config, dropout),
                "encoder": Group({"layer": layers}),
                "pooler": Group({"dense": Dense(precision, config.hidden, config.hidden)}),
            }
        )
        self.cls = Group(
            {
                "predictions": Predictions(config, precision, self.bert.embeddings.word_embeddings),
                "seq_relationship": Dense(precision, config.hidden, 2),
            }
        )

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"mlm_logits": self.cls.predictions, "nsp_logits": self.cls.seq_relationship}

    def hybrid_forward(self, F, words, types, lengths, masked_positions):
        hidden = self.bert.embeddings(words, types)
        mask = self._lengths(F, lengths) if self.counted else self._mask(F, words, lengths)
        for layer in self.bert.encoder.layer:
            hidden = layer(hidden, mask)
        rows = F.contrib.arange_like(lengths) * self.config.sequence
        masked = F.take(F.reshape(hidden, (-3, 0)), F.broadcast_add(F.expand_dims(rows, 1), masked_positions))
        mlm = self.cls.predictions(masked)
        first = F.reshape(F.slice_axis(hidden, axis=1, begin=0, end=1), (-3, 0))
        pooled = F.tanh(self.precision.up(F, self.bert.pooler.dense(self.precision.down(F, first))))
        nsp = self.cls.seq_relationship(self.precision.down(F, pooled))
        return self.precision.up(F, mlm, nsp)

    def _mask(self, F, words, lengths):
        """0, or -10000 on padding, as (batch * heads, sequence, sequence): adding an array of the same shape is
        several times faster than broadcasting one, in each of the layers."""
        columns = F.expand_dims(F.contrib.arange_like(words, axis=1), 0)
        outside = F.broadcast_greater_equal(columns, F.expand_dims(lengths, 1))
        mask = F.reshape(F.cast(outside, self.precision.dtype) * -10000.0, (0, 1, 1, -1))
        mask = F.broadcast_axis(mask, axis=(1, 2), size=(self.config.heads, self.config.sequence))
        return F.reshape(mask, (-3, 0, 0))

    def _lengths(self, F, lengths):
        """Of each row of scores, as int32 (batch * heads, sequence)."""
        of_each = F.reshape(F.cast(lengths, "int32"), (-1, 1, 1))
        of_each = F.broadcast_axis(of_each, axis=(1, 2), size=(self.config.heads, self.config.sequence))
        return F.reshape(of_each, (-3, 0))


class Group(HybridBlock):
    """Blocks under one name, as the canonical names have it."""

    def __init__(self, blocks):
        super().__init__()
        for name, block in blocks.items():
            setattr(self, name, block)


class Embeddings(HybridBlock):
    def __init__(self, config, dropout):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocabulary, config.hidden)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden)
        self.token_type_embeddings = nn.Embedding(config.token_types, config.hidden)
        self.LayerNorm = norm(config)
        self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, words, types):
        positions = F.expand_dims(self.position_embeddings(F.contrib.arange_like(words, axis=1)), 0)
        x = self.word_embeddings(words) + self.token_type_embeddings(types)
        return self.dropout(self.LayerNorm(F.broadcast_add(x, positions)))


class Layer(HybridBlock):
    def __init__(self, config, dropout, precision, counted):
        super().__init__()
        self.heads, self.scale, self.precision, self.counted = config.heads, config.head_size**-0.5, precision, counted
        parts = {name: Dense(precision, config.hidden, config.hidden) for name in ("query", "key", "value")}
        self.attention = Group({"self": Group(parts), "output": Output(config.hidden, config, precision)})
        self.intermediate = Group({"dense": Dense(precision, config.hidden, config.intermediate)})
        self.output = Output(config.intermediate, config, precision)
        self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x, mask):
        context = self._attend(F, self.precision.down(F, x), mask)
        x = self._add_norm(F, self.attention.output, context, x)
        inner = gelu(F, self.intermediate.dense(self.precision.down(F, x)), self.precision)
        return self._add_norm(F, self.output, inner, x)

    def _attend(self, F, x, mask):
        def weigh(scores):
            shares = F.softmax(scores, mask, use_length=True) if self.counted else F.softmax(scores + mask)
            return self.dropout(shares)

        parts = self.attention.self
        inputs = multiplied(F, self.precision, parts.query(x), parts.key(x), parts.value(x))
        return attend(F, self.precision, inputs, self.heads, self.scale, weigh)

    def _add_norm(self, F, output, x, residual):
        return output.LayerNorm(residual + self.dropout(self.precision.up(F, output.dense(x))))


class Output(HybridBlock):
    def __init__(self, inputs, config, precision):
        super().__init__()
        self.dense = Dense(precision, inputs, config.hidden)
        self.LayerNorm = norm(config)


class Predictions(HybridBlock):
    """The MLM head; its decoder is the word embedding."""

    def __init__(self, config, precision, embedding):
        super().__init__()
        self.vocabulary, self.precision = config.vocabulary, precision
        self.transform = Output(config.hidden, config, precision)
        self.decoder = embedding.weight
        self.bias = self.params.get("bias", shape=(config.vocabulary,), init="zeros")

    def hybrid_forward(self, F, x, decoder, bias):
        x = gelu(F, self.transform.dense(self.precision.down(F, x)), self.precision)
        x = self.transform.LayerNorm(self.precision.up(F, x))
        arrays = self.precision.down(F, x, decoder, bias)
        return F.FullyConnected(*arrays, num_hidden=self.vocabulary, flatten=False, name="fwd")


def norm(config):
    return nn.LayerNorm(epsilon=config.norm_eps, in_channels=config.hidden)


def gelu(F, x, precision):
    if precision.dtype != "float64":
        return F.LeakyReLU(x, act_type="gelu")  # erf form; on the CPU oneDNN's kernel, several times faster than F.erf
    # that kernel has sqrt(2) as a float32 in float64, and the slope of F.erf sqrt(pi): the second term puts it right
    erf = F.erf(x * 0.5**0.5)
    erf = erf + (erf - F.BlockGrad(erf)) * ERF_SLOPE_ERROR
    return x * (0.5 * (1 + erf))
