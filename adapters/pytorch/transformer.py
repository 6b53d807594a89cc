"""Transformer in PyTorch: scaled_dot_product_attention, autocast, fused Adam."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import linear, masks, optimizers, runtime
from dlperf.adapters.pytorch.bert import Ways, narrow
from dlperf.adapters.pytorch.linear import Dense
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    dense, words = linear.function(job)
    ways = Ways(config.dropout * job.dropout, masks.dropout(job), dense)
    network = Network(config, ways)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "attention": "softmax written out" if ways.drop else "scaled_dot_product_attention",
        "masks": masks.words(ways.drop),
        "dense_layers": words,
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch)
    labels, smoothing = batch["labels"].flatten().long(), network.config.label_smoothing
    tokens = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none", label_smoothing=smoothing)
    return (tokens * batch["target_weights"].flatten()).sum() / batch["target_total"], (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.transformer. ways: see bert.Ways."""

    def __init__(self, config, ways):
        super().__init__()
        self.config, self.ways = config, ways
        self.shapes, self.compute_dtype = {}, None
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.register_buffer("positions", torch.from_numpy(transformer.positions(config)), persistent=False)
        self.encoder, self.decoder = (Side(config, ways, parts) for parts in transformer.SIDES.values())

    def forward(self, batch):
        columns = torch.arange(batch["source"].shape[1], device=batch["source"].device)
        padding = self._mask((columns < batch["source_lengths"][:, None])[:, None, None, :])
        later = self._mask(columns <= columns[:, None])
        memory = self.encoder(self._embed(batch["source"]), {"self_attention": padding})
        masks = {"self_attention": later, "cross_attention": padding}
        x = self.decoder(self._embed(batch["target"]), masks, memory)
        logits = self.ways.linear(x, self.embedding.weight)
        self.compute_dtype, self.shapes = logits.dtype, {"logits": tuple(logits.shape[1:])}
        return logits

    def _embed(self, tokens):
        x = self.embedding(tokens) * self.config.hidden**0.5 + self.positions
        return self.ways.dropped(x, self.training)

    def _mask(self, kept):
        """As attention takes it."""
        if not self.ways.drop:
            return kept
        return torch.zeros(kept.shape, dtype=self.positions.dtype, device=kept.device).masked_fill(~kept, -torch.inf)

    def kernels(self, batch, compiled):
        """For Trainer.effective."""
        if self.ways.drop:
            return {}
        dropout = self.ways.dropout if self.training else 0.0
        return runtime.attention_kernel(self.config, batch["source"], self.compute_dtype, dropout)


class Side(nn.Module):
    """The encoder or the decoder. parts: of a layer."""

    def __init__(self, config, ways, parts):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, ways, parts) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps) if config.pre_norm else None

    def forward(self, x, masks, memory=None):
        for layer in self.layers:
            x = layer(x, masks, memory)
        return self.norm(x) if self.norm else x


class Layer(nn.Module):
    def __init__(self, config, ways, parts):
        super().__init__()
        self.ways, self.pre_norm, self.parts = ways, config.pre_norm, parts
        for number, part in enumerate(parts, 1):
            self.add_module(part, (FeedForward if part == "feed_forward" else Attention)(config, ways))
            self.add_module(f"norm{number}", nn.LayerNorm(config.hidden, eps=config.norm_eps))

    def forward(self, x, masks, memory):
        for number, name in enumerate(self.parts, 1):
            norm, part = getattr(self, f"norm{number}"), getattr(self, name)
            inputs = norm(x) if self.pre_norm else x
            y = part(inputs, memory if name == "cross_attention" else inputs, masks.get(name))
            x = x + self.ways.dropped(y, self.training)
            x = x if self.pre_norm else narrow(norm(x), y.dtype)
        return x


class Attention(nn.Module):
    def __init__(self, config, ways):
        super().__init__()
        self.heads, self.ways = config.heads, ways
        for name in ("query", "key", "value", "output"):
            self.add_module(name, Dense(config.hidden, config.hidden, ways.linear, bias=False))

    def forward(self, x, memory, mask):
        inputs = ((self.query, x), (self.key, memory), (self.value, memory))
        inputs = (layer(of).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer, of in inputs)
        dropout = self.ways.dropout if self.training else 0.0
        if self.ways.drop:
            context = masks.attention(*inputs, mask, self.ways.drop, dropout)
        else:
            context = F.scaled_dot_product_attention(*inputs, attn_mask=mask, dropout_p=dropout)
        return self.output(context.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config, ways):
        super().__init__()
        self.ways = ways
        self.inner = Dense(config.hidden, config.intermediate, ways.linear)
        self.outer = Dense(config.intermediate, config.hidden, ways.linear)

    def forward(self, x, memory, mask):
        return self.outer(self.ways.dropped(F.relu(self.inner(x)), self.training))
