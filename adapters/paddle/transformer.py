"""Transformer in PaddlePaddle: dygraph, Adam; auto_cast and flash attention on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.bert import Attending, attention, flash_of, padding, rates
from dlperf.adapters.paddle.resnet import smoothed
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    flash = flash_of(job)
    network = Network(config, config.dropout * job.dropout, flash)
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {
        "dropout": rates(network),
        "label_smoothing": str(config.label_smoothing),
        "norm_eps": f"{config.norm_eps}, as float32",  # an attribute of the kernel, in float64 too
        "attention": attention(flash),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits, config = network(batch), network.config
    targets = smoothed(batch["labels"].flatten(), config.vocabulary, config.label_smoothing)
    flat = logits.flatten(0, 1).astype(targets.dtype)
    tokens = F.cross_entropy(flat, targets, soft_label=True, reduction="none").flatten()
    return (tokens * batch["target_weights"].flatten()).sum() / batch["target_total"], (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.transformer. flash: as in bert.Network."""

    def __init__(self, config, dropout, flash=None):
        super().__init__()
        self.config, self.dropout, self.flash = config, dropout, flash
        self.seen = {}  # see runtime.Replica
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        dtype = paddle.get_default_dtype()
        # the root as a tensor, because in a graph every Python float is a float32
        self.root = paddle.full([1], config.hidden**0.5, dtype)
        self.positions = paddle.to_tensor(transformer.positions(config), dtype)
        self.encoder, self.decoder = (Side(config, dropout, flash, side) for side in transformer.SIDES)

    def forward(self, batch):
        rows, columns = batch["source"].shape
        inside = padding(batch["source_lengths"], rows, columns, self.positions.dtype, self.flash)
        later = paddle.triu(paddle.full([columns, columns], -10000.0, self.positions.dtype), 1)
        if self.flash:
            later = later.expand([rows, 1, columns, columns]).astype(self.flash)
        memory = self.encoder(self._embed(batch["source"]), {"self_attention": inside})
        masks = {"self_attention": later, "cross_attention": inside}
        x = self.decoder(self._embed(batch["target"]), masks, memory)
        logits = paddle.matmul(x, self.embedding.weight, transpose_y=True)
        self.seen = {"logits": logits.detach()}
        return logits

    def _embed(self, tokens):
        x = self.embedding(tokens) * self.root + self.positions
        return F.dropout(x, self.dropout, training=self.training)


class Side(nn.Layer):
    """The encoder, or the decoder, which takes the encoder's output."""

    def __init__(self, config, dropout, flash, side):
        super().__init__()
        self.layers = nn.LayerList([Layer(config, dropout, flash, side) for _ in range(config.layers)])
        self.norm = norm(config) if config.pre_norm else None

    def forward(self, x, masks, memory=None):
        for layer in self.layers:
            x = layer(x, masks, memory)
        return self.norm(x) if self.norm else x


class Layer(nn.Layer):
    def __init__(self, config, dropout, flash, side):
        super().__init__()
        self.kinds, self.dropout, self.pre_norm = transformer.SIDES[side], dropout, config.pre_norm
        for number, kind in enumerate(self.kinds, 1):
            part = FeedForward(config, dropout) if kind == "feed_forward" else Attention(config, dropout, flash)
            setattr(self, kind, part)
            setattr(self, f"norm{number}", norm(config))

    def forward(self, x, masks, memory):
        for number, kind in enumerate(self.kinds, 1):
            part, normalise = getattr(self, kind), getattr(self, f"norm{number}")
            inputs = normalise(x) if self.pre_norm else x
            y = part(inputs, memory if kind == "cross_attention" else inputs, masks.get(kind))
            x = x + F.dropout(y, self.dropout, training=self.training)
            x = x if self.pre_norm else normalise(x)
        return x


class Attention(Attending):
    def __init__(self, config, dropout, flash):
        super().__init__(config, dropout, flash)
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(config.hidden, config.hidden, bias_attr=False))

    def forward(self, x, memory, mask):
        return self.output(self.attend(self.query(x), self.key(memory), self.value(memory), mask))


class FeedForward(nn.Layer):
    def __init__(self, config, dropout):
        super().__init__()
        self.dropout = dropout
        self.inner = nn.Linear(config.hidden, config.intermediate)
        self.outer = nn.Linear(config.intermediate, config.hidden)

    def forward(self, x, memory, mask):
        return self.outer(F.dropout(F.relu(self.inner(x)), self.dropout, training=self.training))


def norm(config):
    return nn.LayerNorm(config.hidden, epsilon=config.norm_eps)
