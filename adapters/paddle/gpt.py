"""GPT-2 pretraining in PaddlePaddle: dygraph, AdamW; auto_cast and flash attention on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.bert import attention, flash_of
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    flash = flash_of(job)
    network = Network(config, flash)
    runtime.load(network, job)
    recipe = gpt.optimizer(job.batch_size * ranks.world_size)
    optimizer = optimizers.adamw(job, network, recipe)
    feed = runtime.Feed(job, ranks)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "gelu": "tanh",
        # attributes of kernels, in float64 too
        "weight_decay": f"{recipe.weight_decay}, as float32",
        "norm_eps": f"{config.norm_eps}, as float32",
        "attention": attention(flash),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["input_ids"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()), (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.gpt. flash: as in bert.Network."""

    def __init__(self, config, flash=None):
        super().__init__()
        self.config, self.flash = config, flash
        self.seen = {}  # see runtime.Replica
        self.transformer = nn.LayerDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.hidden),
                "wpe": nn.Embedding(config.positions, config.hidden),
                "h": nn.LayerList([Layer(config, flash) for _ in range(config.layers)]),
                "ln_f": nn.LayerNorm(config.hidden, epsilon=config.norm_eps),
            }
        )

    def forward(self, tokens):
        part, length = self.transformer, tokens.shape[1]
        x = part["wte"](tokens) + part["wpe"].weight[:length]
        mask = None if self.flash else paddle.triu(paddle.full([length, length], -10000.0, x.dtype), 1)
        for layer in part["h"]:
            x = layer(x, mask)
        logits = paddle.matmul(part["ln_f"](x), part["wte"].weight, transpose_y=True)
        self.seen = {"logits": logits.detach()}
        return logits


class Layer(nn.Layer):
    def __init__(self, config, flash):
        super().__init__()
        self.heads, self.head_size, self.flash = config.heads, config.head_size, flash
        hidden, inner = config.hidden, config.intermediate
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, epsilon=config.norm_eps) for _ in range(2))
        self.attn = nn.LayerDict({"c_attn": nn.Linear(hidden, 3 * hidden), "c_proj": nn.Linear(hidden, hidden)})
        self.mlp = nn.LayerDict({"c_fc": nn.Linear(hidden, inner), "c_proj": nn.Linear(inner, hidden)})

    def forward(self, x, mask):
        parts = self.attn["c_attn"](self.ln_1(x)).reshape([0, 0, 3, self.heads, self.head_size])
        context = self._flash(parts) if self.flash else self._attention(parts, mask)
        x = x + self.attn["c_proj"](context.flatten(2))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate=True))

    def _attention(self, parts, mask):
        query, key, value = parts.transpose([2, 0, 3, 1, 4]).unbind(0)
        weights = F.softmax(paddle.matmul(query * self.head_size**-0.5, key, transpose_y=True) + mask)
        return paddle.matmul(weights, value).transpose([0, 2, 1, 3])

    def _flash(self, parts):
        query, key, value = parts.astype(self.flash).unbind(2)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, training=self.training)
