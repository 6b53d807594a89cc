"""BERT pretraining in OneFlow: nn.Graph over forward, backward, clipping and AdamW."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout * job.dropout)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, bert.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        # on CUDA a Graph multiplies by clip_norm / (norm + 1e-6): a last digit of float32
        "clip_norm": str(job.clip_norm or "off"),
        "dropout": str(network.dropout),
        "masked_positions": str(config.masked),
        "gelu": "erf",
        "attention": "matmul, softmax, matmul",
    }
    if network.dropout and ranks.world_size > 1:
        effective["dropout_masks"] = "the same on all ranks"  # the seed is in the Graph, which all share
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch)
    mlm, nsp = (flow._C.amp_black_identity(one) for one in logits)  # the losses in float32
    words = F.cross_entropy(mlm, batch["masked_ids"].flatten(), reduction="none")
    of_words = (words * batch["masked_weights"].flatten()).sum() / batch["masked_total"]
    follows = F.cross_entropy(nsp, batch["next_sentence_labels"], reduction="none")
    return of_words + follows.mean(), logits  # reduction="mean" divides by a count that ranks must exchange first


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.bert."""

    def __init__(self, config, dropout):
        super().__init__()
        self.config, self.dropout = config, dropout
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        self.bert = nn.ModuleDict(
            {
                "embeddings": Embeddings(config, dropout),
                "encoder": nn.ModuleDict(
                    {"layer": nn.ModuleList([Layer(config, dropout) for _ in range(config.layers)])}
                ),
                "pooler": nn.ModuleDict({"dense": nn.Linear(config.hidden, config.hidden)}),
            }
        )
        self.cls = nn.ModuleDict({"predictions": Predictions(config), "seq_relationship": nn.Linear(config.hidden, 2)})

    def forward(self, batch):
        rows, length = batch["input_ids"].shape
        hidden = self.bert["embeddings"](batch["input_ids"], batch["token_type_ids"])
        columns = counted(length, hidden)
        padding = (columns >= batch["lengths"].reshape(rows, 1)).to(hidden.dtype) * -10000.0
        mask = padding.reshape(rows, 1, 1, length)
        if not hidden.is_cuda:
            # the CPU's broadcasting addition is slow, so the mask is written out, once for all layers
            mask = mask.expand(rows, self.config.heads, length, length).contiguous()
        for layer in self.bert["encoder"]["layer"]:
            hidden = layer(hidden, mask)
        masked = flow._C.batch_gather(hidden, batch["masked_positions"]).flatten(0, 1)
        mlm = self.cls["predictions"](masked, self.bert["embeddings"].word_embeddings.weight)
        nsp = self.cls["seq_relationship"](flow.tanh(self.bert["pooler"]["dense"](hidden[:, 0])))
        self.shapes.update(mlm_logits=(mlm.shape[0] // rows, mlm.shape[1]), nsp_logits=tuple(nsp.shape[1:]))
        return mlm, nsp


class Embeddings(nn.Module):
    def __init__(self, config, dropout):
        super().__init__()
        self.dropout = dropout
        self.word_embeddings = nn.Embedding(config.vocabulary, config.hidden)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden)
        self.token_type_embeddings = nn.Embedding(config.token_types, config.hidden)
        self.LayerNorm = LayerNorm(config)

    def forward(self, words, types):
        positions = self.position_embeddings.weight[: words.shape[1]]
        x = self.word_embeddings(words) + self.token_type_embeddings(types) + positions
        return F.dropout(self.LayerNorm(x), self.dropout, self.training)


def attended(query, key, value, mask, heads, dropout):
    """softmax(query key' / sqrt(size) + mask), dropped by a function, times value: (batch, sequence, hidden) each."""

    def split(x):
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    shape, (query, key, value) = query.shape, [split(one) for one in (query, key, value)]
    scores = flow.matmul(query, key, transpose_b=True) * (1.0 / query.shape[3] ** 0.5) + mask
    return flow.matmul(dropout(flow.softmax(scores, dim=-1)), value).transpose(1, 2).reshape(*shape)


class Layer(nn.Module):
    def __init__(self, config, dropout):
        super().__init__()
        self.heads, self.dropout = config.heads, dropout
        hidden = config.hidden
        parts = {name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")}
        self.attention = nn.ModuleDict({"self": nn.ModuleDict(parts), "output": Output(hidden, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, config.intermediate)})
        self.output = Output(config.intermediate, config)

    def forward(self, x, mask):
        parts = [self.attention["self"][name](x) for name in ("query", "key", "value")]
        context = attended(*parts, mask, self.heads, self._dropped)
        x = self._add_norm(self.attention["output"], context, x)
        return self._add_norm(self.output, F.gelu(self.intermediate["dense"](x)), x)

    def _dropped(self, x):
        return F.dropout(x, self.dropout, self.training)

    def _add_norm(self, output, x, residual):
        return output.LayerNorm(residual + self._dropped(output.dense(x)))


class Output(nn.Module):
    def __init__(self, inputs, config):
        super().__init__()
        self.dense = nn.Linear(inputs, config.hidden)
        self.LayerNorm = LayerNorm(config)


class Predictions(nn.Module):
    """The MLM head; its decoder is the word embedding."""

    def __init__(self, config):
        super().__init__()
        self.transform = Output(config.hidden, config)
        self.bias = nn.Parameter(flow.zeros(config.vocabulary))

    def forward(self, x, embedding):
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        return flow.matmul(x, embedding, transpose_b=True) + self.bias


class LayerNorm(nn.LayerNorm):
    def __init__(self, config):
        super().__init__(config.hidden, eps=config.norm_eps)

    def forward(self, x):
        if x.is_cuda:
            return nn.LayerNorm.forward(self, x)  # a Graph calls this with a stand-in for self: super() raises
        # On the CPU flow.nn.LayerNorm is a composition whose broadcasts are 30 times slower than this: BatchNorm's
        # kernel, with each row as a channel of its own.
        width, ranks = x.shape[-1], flow.env.get_world_size()
        rows = x.numel() // width // ranks  # of one rank: each normalises its own
        one, zero = (filled([rows], value, x) for value in (1.0, 0.0))
        x_rows = x.reshape(ranks, rows, width)
        # a Graph of several ranks ends in a failed check where there are no running statistics; these stay as they are
        running = (zero, one) if x.is_global else (None, None)
        normal = flow._C.normalization(
            x_rows, *running, one, zero, axis=1, epsilon=self.eps, momentum=0.0, is_training=True
        )
        return normal.reshape(*x.shape) * self.weight + self.bias


def filled(shape, value, like):
    """A constant of the type of another tensor, where that one is."""
    if like.is_global:
        return flow._C.global_constant(
            shape, value, dtype=like.dtype, placement=like.placement, sbp=[flow.sbp.broadcast]
        )
    return flow._C.constant(shape, value, dtype=like.dtype, device=like.device)


def counted(count, like):
    """0, 1 ... as int32, where another tensor is."""
    if like.is_global:
        return flow.arange(count, dtype=flow.int32, placement=like.placement, sbp=flow.sbp.broadcast)
    return flow.arange(count, dtype=flow.int32, device=like.device)
