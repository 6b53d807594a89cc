"""Transformer in OneFlow: nn.Graph over forward, backward and Adam."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.bert import LayerNorm, attended, counted
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout * job.dropout)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "dropout": str(network.dropout),
        "label_smoothing": str(config.label_smoothing),
        "attention": "matmul, softmax, matmul",
        "norm_eps": f"{config.norm_eps}, as float32",  # an attribute of the kernel, in float64 too
    }
    if network.dropout and ranks.world_size > 1:
        effective["dropout_masks"] = "the same on all ranks"  # the seed is in the Graph, which all share
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits, smoothing = network(batch), network.config.label_smoothing
    scores = flow._C.amp_black_identity(logits).flatten(0, 1)  # the loss in float32
    tokens = F.cross_entropy(scores, batch["labels"].flatten(), label_smoothing=smoothing, reduction="none")
    return (tokens * batch["target_weights"].flatten()).sum() / batch["target_total"], (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.transformer."""

    def __init__(self, config, dropout):
        super().__init__()
        self.config, self.dropout = config, dropout
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.register_buffer("positions", flow.tensor(transformer.positions(config)), persistent=False)
        self.encoder, self.decoder = (Side(config, dropout, side) for side in transformer.SIDES)

    def forward(self, batch):
        (rows, length), heads = batch["source"].shape, self.config.heads
        x = self._embed(batch["source"])
        columns = counted(length, x)
        padding = (columns >= batch["source_lengths"].reshape(rows, 1)).to(x.dtype).reshape(rows, 1, 1, length)
        later = (columns.reshape(1, length) > columns.reshape(length, 1)).to(x.dtype)
        padding, later = padding * -10000.0, later * -10000.0
        if not x.is_cuda:  # as in bert.Network
            padding, later = (one.expand(rows, heads, length, length).contiguous() for one in (padding, later))
        memory = self.encoder(x, padding)
        x = self.decoder(self._embed(batch["target"]), later, memory, padding)
        logits = flow.matmul(x, self.embedding.weight, transpose_b=True)
        self.shapes.update(logits=tuple(logits.shape[1:]))
        return logits

    def _embed(self, tokens):
        x = self.embedding(tokens) * self.config.hidden**0.5 + self.positions
        return F.dropout(x, self.dropout, self.training)


class Side(nn.Module):
    """The encoder, or the decoder, which takes the encoder's output and its padding, too."""

    def __init__(self, config, dropout, side):
        super().__init__()
        self.layers = nn.ModuleList([Layer(config, dropout, side) for _ in range(config.layers)])
        self.norm = LayerNorm(config) if config.pre_norm else nn.Identity()

    def forward(self, x, mask, *memory):
        for layer in self.layers:
            x = layer(x, mask, *memory)
        return self.norm(x)


class Layer(nn.Module):
    def __init__(self, config, dropout, side):
        super().__init__()
        self.kinds, self.heads = transformer.SIDES[side], config.heads
        self.dropout, self.pre_norm = dropout, config.pre_norm
        hidden, inner = config.hidden, config.intermediate
        for number, kind in enumerate(self.kinds, 1):
            if kind == "feed_forward":
                part = {"inner": nn.Linear(hidden, inner), "outer": nn.Linear(inner, hidden)}
            else:
                part = {name: nn.Linear(hidden, hidden, bias=False) for name in ("query", "key", "value", "output")}
            setattr(self, kind, nn.ModuleDict(part))
            setattr(self, f"norm{number}", LayerNorm(config))

    def forward(self, x, mask, *memory):
        for number, kind in enumerate(self.kinds, 1):
            part, normalise = getattr(self, kind), getattr(self, f"norm{number}")
            inputs = normalise(x) if self.pre_norm else x
            if kind == "feed_forward":
                y = part["outer"](self._dropped(F.relu(part["inner"](inputs))))
            elif kind == "cross_attention":
                y = self._attend(part, inputs, *memory)
            else:
                y = self._attend(part, inputs, inputs, mask)
            x = x + self._dropped(y)
            x = x if self.pre_norm else normalise(x)
        return x

    def _attend(self, part, x, memory, mask):
        inputs = part["query"](x), part["key"](memory), part["value"](memory)
        return part["output"](attended(*inputs, mask, self.heads, self._dropped))

    def _dropped(self, x):
        return F.dropout(x, self.dropout, self.training)
