"""GPT-2 of transformers: torch.optim.AdamW as it comes, gradients clipped with clip_grad_norm_."""

import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from dlperf import models
from dlperf.adapters.pytorch_plain.runtime import Trainer, configure, versions
from dlperf.models import gpt

__all__ = ["build", "versions"]


def build(job, ranks):
    device = configure(job)
    config = models.config(job.model)
    network = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocabulary,
            n_embd=config.hidden,
            n_layer=config.layers,
            n_head=config.heads,
            n_positions=config.positions,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            use_cache=False,
        )
    )
    network.to(device).train()
    recipe = gpt.optimizer(job.batch_size)
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare, recipe.clip_norm)


def prepare(batch):
    return {name: torch.tensor(array).long() for name, array in batch.items()}


def loss(network, batch):
    logits = network(batch["input_ids"]).logits
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
