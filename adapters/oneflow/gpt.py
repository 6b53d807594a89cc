"""GPT-2 pretraining in OneFlow: nn.Graph over forward, backward, clipping and AdamW."""

import math

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.bert import LayerNorm, attended, counted
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    network = Network(models.config(job.model))
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, gpt.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "gelu": "tanh",
        "attention": "matmul, softmax, matmul",
        "norm_eps": f"{models.config(job.model).norm_eps}, as float32",  # an attribute of the kernel, in float64 too
    }
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["input_ids"])
    scores = flow._C.amp_black_identity(logits)  # the loss in float32
    losses = F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    return losses.mean(), (logits,)  # reduction="mean" divides by a count that ranks must exchange first


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.gpt."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.hidden),
                "wpe": nn.Embedding(config.positions, config.hidden),
                "h": nn.ModuleList([Layer(config) for _ in range(config.layers)]),
                "ln_f": LayerNorm(config),
            }
        )

    def forward(self, tokens):
        part, (rows, length) = self.transformer, tokens.shape
        x = part["wte"](tokens) + part["wpe"].weight[:length]
        places = counted(length, x)
        after = (places.reshape(1, length) > places.reshape(length, 1)).to(x.dtype) * -10000.0
        # as in bert.Network
        mask = after if x.is_cuda else after.expand(rows, self.config.heads, length, length).contiguous()
        for layer in part["h"]:
            x = layer(x, mask)
        logits = flow.matmul(part["ln_f"](x), part["wte"].weight, transpose_b=True)
        self.shapes.update(logits=tuple(logits.shape[1:]))
        return logits


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, hidden, inner = config.heads, config.hidden, config.intermediate
        self.ln_1, self.ln_2 = LayerNorm(config), LayerNorm(config)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(hidden, 3 * hidden), "c_proj": nn.Linear(hidden, hidden)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(hidden, inner), "c_proj": nn.Linear(inner, hidden)})

    def forward(self, x, mask):
        parts = self.attn["c_attn"](self.ln_1(x)).chunk(3, dim=2)
        x = x + self.attn["c_proj"](attended(*parts, mask, self.heads, lambda shares: shares))
        return x + self.mlp["c_proj"](gelu(self.mlp["c_fc"](self.ln_2(x))))


def gelu(x):
    """The form with tanh, whose kernel has constants in float32, in float64 too."""
    if x.dtype != flow.float64:
        return flow._C.fast_gelu(x)
    return 0.5 * x * (1 + flow.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
