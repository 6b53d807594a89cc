"""GPT-2 pretraining in PyTorch: scaled_dot_product_attention, autocast, fused AdamW."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import linear, optimizers, runtime
from dlperf.adapters.pytorch.linear import Dense
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    dense, words = linear.function(job)
    network = Network(config, dense)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, gpt.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "attention": "scaled_dot_product_attention",
        "dense_layers": words,
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["input_ids"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten().long()), (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.gpt. dense: see linear.function."""

    def __init__(self, config, dense):
        super().__init__()
        self.config, self.product = config, dense
        self.shapes, self.compute_dtype = {}, None
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.hidden),
                "wpe": nn.Embedding(config.positions, config.hidden),
                "h": nn.ModuleList(Layer(config, dense) for _ in range(config.layers)),
                "ln_f": nn.LayerNorm(config.hidden, eps=config.norm_eps),
            }
        )

    def forward(self, tokens):
        part = self.transformer
        x = part["wte"](tokens) + part["wpe"].weight[: tokens.shape[1]]
        for layer in part["h"]:
            x = layer(x)
        logits = self.product(part["ln_f"](x), part["wte"].weight)
        self.compute_dtype, self.shapes = logits.dtype, {"logits": tuple(logits.shape[1:])}
        return logits

    def kernels(self, batch, compiled):
        """For Trainer.effective."""
        return runtime.attention_kernel(self.config, batch["input_ids"], self.compute_dtype, causal=True)


class Layer(nn.Module):
    def __init__(self, config, dense):
        super().__init__()
        self.heads, hidden, inner = config.heads, config.hidden, config.intermediate
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, eps=config.norm_eps) for _ in range(2))
        self.attn = nn.ModuleDict({"c_attn": Dense(hidden, 3 * hidden, dense), "c_proj": Dense(hidden, hidden, dense)})
        self.mlp = nn.ModuleDict({"c_fc": Dense(hidden, inner, dense), "c_proj": Dense(inner, hidden, dense)})

    def forward(self, x):
        parts = self.attn["c_attn"](self.ln_1(x)).unflatten(2, (3, self.heads, -1)).unbind(2)
        context = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts), is_causal=True)
        x = x + self.attn["c_proj"](context.transpose(1, 2).flatten(2))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))
