"""Transformer of torch.nn.Transformer, as PyTorch's tutorial on translation has it: torch.optim.Adam as it comes."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dlperf import models
from dlperf.adapters.pytorch_plain.runtime import Trainer, configure, versions
from dlperf.models import transformer

__all__ = ["build", "versions"]


def build(job, ranks):
    device = configure(job)
    network = Network(models.config(job.model)).to(device).train()
    recipe = transformer.optimizer(job.batch_size)
    optimizer = torch.optim.Adam(
        network.parameters(), lr=recipe.learning_rate, betas=(recipe.beta1, recipe.beta2), eps=recipe.eps
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare)


class Network(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.register_buffer("positions", torch.from_numpy(transformer.positions(config)).float())
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Transformer(
            config.hidden,
            config.heads,
            config.layers,
            config.layers,
            config.intermediate,
            config.dropout,
            batch_first=True,
            norm_first=config.pre_norm,
        )

    def forward(self, source, padding, target):
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        x = self.layers(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return x @ self.embedding.weight.T

    def embed(self, tokens):
        return self.dropout(self.embedding(tokens) * self.config.hidden**0.5 + self.positions)


def prepare(batch):
    tensors = {name: torch.tensor(batch[name]).long() for name in ("source", "target", "labels", "source_lengths")}
    tensors["padding"] = torch.arange(tensors["source"].shape[1]) >= tensors.pop("source_lengths")[:, None]
    return {**tensors, "weights": torch.tensor(batch["target_weights"]).flatten()}


def loss(network, batch):
    logits = network(batch["source"], batch["padding"], batch["target"])
    smoothing = network.config.label_smoothing
    losses = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none", label_smoothing=smoothing)
    return (losses * batch["weights"]).sum() / batch["weights"].sum()
