"""BERT pretraining in PyTorch: scaled_dot_product_attention, autocast, fused AdamW."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import linear, masks, optimizers, runtime
from dlperf.adapters.pytorch.linear import Dense
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    # its gradient is NaN at odd multiples of 64 in torch 2.11 (pytorch#196678); then another kernel is taken
    torch.backends.cuda.enable_cudnn_sdp(config.sequence % 128 != 64)
    dense, words = linear.function(job)
    ways = Ways(config.dropout * job.dropout, masks.dropout(job), dense)
    network = Network(config, ways)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, bert.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "masked_positions": str(config.masked),
        "attention": "softmax written out" if ways.drop else "scaled_dot_product_attention",
        "masks": masks.words(ways.drop),
        "dense_layers": words,
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    mlm, nsp = network(batch)
    words = F.cross_entropy(mlm.flatten(0, 1), batch["masked_ids"].flatten().long(), reduction="none")
    of_words = (words * batch["masked_weights"].flatten()).sum() / batch["masked_total"]
    return of_words + F.cross_entropy(nsp, batch["next_sentence_labels"].long()), (mlm, nsp)


class Ways(NamedTuple):
    """By what a network is computed. dropout: the rate. drop: see masks.dropout. linear: see linear.function."""

    dropout: float
    drop: Any
    linear: Any

    def dropped(self, x, training):
        return (self.drop or F.dropout)(x, p=self.dropout, training=training)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.bert."""

    def __init__(self, config, ways):
        super().__init__()
        self.config, self.ways = config, ways
        self.shapes, self.compute_dtype = {}, None
        self.bert = nn.ModuleDict(
            {
                "embeddings": Embeddings(config, ways),
                "encoder": nn.ModuleDict({"layer": nn.ModuleList(Layer(config, ways) for _ in range(config.layers))}),
                "pooler": nn.ModuleDict({"dense": Dense(config.hidden, config.hidden, ways.linear)}),
            }
        )
        self.cls = nn.ModuleDict(
            {"predictions": Predictions(config, ways), "seq_relationship": Dense(config.hidden, 2, ways.linear)}
        )

    def forward(self, batch):
        hidden = self.bert["embeddings"](batch["input_ids"], batch["token_type_ids"])
        columns = torch.arange(hidden.shape[1], device=hidden.device)
        mask = (columns < batch["lengths"][:, None])[:, None, None, :]
        if self.ways.drop:
            mask = torch.zeros(mask.shape, dtype=hidden.dtype, device=mask.device).masked_fill(~mask, -torch.inf)
        for layer in self.bert["encoder"]["layer"]:
            hidden = layer(hidden, mask)
        rows = torch.arange(hidden.shape[0], device=hidden.device)[:, None]
        masked = hidden[rows, batch["masked_positions"].long()]
        mlm = self.cls["predictions"](masked, self.bert["embeddings"].word_embeddings.weight)
        nsp = self.cls["seq_relationship"](torch.tanh(self.bert["pooler"]["dense"](hidden[:, 0])))
        self.compute_dtype = mlm.dtype
        self.shapes = {"mlm_logits": tuple(mlm.shape[1:]), "nsp_logits": tuple(nsp.shape[1:])}
        return mlm, nsp

    def kernels(self, batch, compiled):
        """For Trainer.effective."""
        if self.ways.drop:
            return {}
        dropout = self.ways.dropout if self.training else 0.0
        return runtime.attention_kernel(self.config, batch["input_ids"], self.compute_dtype, dropout)


class Embeddings(nn.Module):
    def __init__(self, config, ways):
        super().__init__()
        self.ways = ways
        self.word_embeddings = nn.Embedding(config.vocabulary, config.hidden)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden)
        self.token_type_embeddings = nn.Embedding(config.token_types, config.hidden)
        self.LayerNorm = nn.LayerNorm(config.hidden, eps=config.norm_eps)

    def forward(self, words, types):
        positions = self.position_embeddings.weight[: words.shape[1]]
        x = self.word_embeddings(words) + self.token_type_embeddings(types) + positions
        return self.ways.dropped(self.LayerNorm(x), self.training)


class Layer(nn.Module):
    def __init__(self, config, ways):
        super().__init__()
        self.heads, self.ways = config.heads, ways
        hidden = config.hidden
        parts = {name: Dense(hidden, hidden, ways.linear) for name in ("query", "key", "value")}
        self.attention = nn.ModuleDict({"self": nn.ModuleDict(parts), "output": Output(hidden, config, ways)})
        self.intermediate = nn.ModuleDict({"dense": Dense(hidden, config.intermediate, ways.linear)})
        self.output = Output(config.intermediate, config, ways)

    def forward(self, x, mask):
        inputs = (one.transpose(1, 2) for one in projected(self.attention["self"].values(), x, self.heads))
        dropout = self.ways.dropout if self.training else 0.0
        if self.ways.drop:
            context = masks.attention(*inputs, mask, self.ways.drop, dropout)
        else:
            context = F.scaled_dot_product_attention(*inputs, attn_mask=mask, dropout_p=dropout)
        x = self._add_norm(self.attention["output"], context.transpose(1, 2).flatten(2), x)
        return self._add_norm(self.output, F.gelu(self.intermediate["dense"](x)), x)

    def _add_norm(self, output, x, residual):
        x = output.dense(x)
        return narrow(output.LayerNorm(residual + self.ways.dropped(x, self.training)), x.dtype)


def projected(layers, x, heads):
    """query, key, value: (batch, sequence, heads, head size). On CUDA by one product."""
    if x.is_cuda:
        return together(list(layers), x, heads)
    return [layer(x).unflatten(2, (heads, -1)) for layer in layers]


def together(layers, x, heads):
    """As `projected`: a product of all weights reads x once and adds up its gradient inside."""
    weight, bias = torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])
    return F.linear(x, weight, bias).unflatten(2, (len(layers), heads, -1)).unbind(2)


def narrow(x, dtype):
    """On CUDA, what autocast's LayerNorm gives in float32, in the type of the products that read it."""
    return x.to(dtype) if x.is_cuda else x


class Output(nn.Module):
    def __init__(self, inputs, config, ways):
        super().__init__()
        self.dense = Dense(inputs, config.hidden, ways.linear)
        self.LayerNorm = nn.LayerNorm(config.hidden, eps=config.norm_eps)


class Predictions(nn.Module):
    """The MLM head; its decoder is the word embedding."""

    def __init__(self, config, ways):
        super().__init__()
        self.product = ways.linear
        self.transform = Output(config.hidden, config, ways)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, x, embedding):
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        return self.product(x, embedding, self.bias)
