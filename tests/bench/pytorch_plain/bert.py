"""BERT of transformers: torch.optim.AdamW as it comes, gradients clipped with clip_grad_norm_."""

import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForPreTraining

from dlperf import models
from dlperf.adapters.pytorch_plain.runtime import Trainer, configure, versions
from dlperf.models import bert

__all__ = ["build", "versions"]


def build(job, ranks):
    device = configure(job)
    config = models.config(job.model)
    network = Heads(
        BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.intermediate,
            max_position_embeddings=config.positions,
        )
    )
    network.to(device).train()
    recipe = bert.optimizer(job.batch_size)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, eps=recipe.eps, weight_decay=recipe.weight_decay
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare, recipe.clip_norm)


class Heads(torch.nn.Module):
    """BertForPreTraining, with the MLM head on the masked positions only: on all 128 it has six times the work."""

    def __init__(self, config):
        super().__init__()
        self.network = BertForPreTraining(config)

    def forward(self, masked_positions, **inputs):
        states, pooled = self.network.bert(**inputs)[:2]
        positions = masked_positions[:, :, None].expand(-1, -1, states.shape[2])
        return self.network.cls(torch.gather(states, 1, positions), pooled)


def prepare(batch):
    tensors = {name: torch.tensor(array) for name, array in batch.items()}
    tensors = {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in tensors.items()}
    columns = torch.arange(tensors["input_ids"].shape[1])
    tensors["attention_mask"] = (columns < tensors.pop("lengths")[:, None]).long()
    return tensors


def loss(network, batch):
    inputs = {name: batch[name] for name in ("masked_positions", "input_ids", "token_type_ids", "attention_mask")}
    words, sentences = network(**inputs)
    losses = cross_entropy(words.flatten(0, 1), batch["masked_ids"].flatten(), reduction="none")
    weights = batch["masked_weights"].flatten()
    return (losses * weights).sum() / weights.sum() + cross_entropy(sentences, batch["next_sentence_labels"])
