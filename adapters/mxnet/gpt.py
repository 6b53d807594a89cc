"""GPT-2 pretraining in MXNet: gluon, hybridized with static memory; batched products for attention, fused AdamW."""

import math

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime
from dlperf.adapters.mxnet.bert import Group, norm
from dlperf.adapters.mxnet.layers import Dense, attend, multiplied
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    network = Network(models.config(job.model), runtime.Precision(job))
    runtime.load(network, job, device)
    optimizer = optimizers.AdamW(job, network, gpt.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "gelu": "tanh, written out",
        "attention": "batch_dot, softmax",
        "norm_eps": f"{models.config(job.model).norm_eps}, as float32",  # the kernel's parameter, in float64 too
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(F, network, batch):
    logits = network(batch["input_ids"])
    return F.negative(F.mean(F.pick(F.log_softmax(logits), batch["labels"]))), (logits,)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.gpt. Types as in bert.Network."""

    def __init__(self, config, precision):
        super().__init__()
        self.config, self.precision = config, precision
        layers = nn.HybridSequential()
        layers.add(*[Layer(config, precision) for _ in range(config.layers)])
        table = nn.Embedding(config.vocabulary, config.hidden)
        places = nn.Embedding(config.positions, config.hidden)
        self.transformer = Group({"wte": table, "wpe": places, "h": layers, "ln_f": norm(config)})
        self.head = Head(config, precision, table)

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"logits": self.head}

    def hybrid_forward(self, F, tokens):
        part = self.transformer
        places = F.contrib.arange_like(tokens, axis=1)
        x = F.broadcast_add(part.wte(tokens), F.expand_dims(part.wpe(places), 0))
        mask = self._mask(F, tokens, places)
        for layer in part.h:
            x = layer(x, mask)
        return self.precision.up(F, self.head(self.precision.down(F, part.ln_f(x))))

    def _mask(self, F, tokens, places):
        """0, or -10000 after a position, as (batch * heads, sequence, sequence): see bert.Network."""
        after = F.broadcast_greater(F.expand_dims(places, 0), F.expand_dims(places, 1))
        after = F.reshape(F.cast(after, self.precision.dtype) * -10000.0, (1, 1, -1, self.config.sequence))
        none = F.reshape(F.zeros_like(F.cast(tokens, self.precision.dtype)), (0, 1, 1, -1))
        mask = F.broadcast_axis(F.broadcast_add(none, after), axis=1, size=self.config.heads)
        return F.reshape(mask, (-3, 0, 0))


class Head(HybridBlock):
    """Its weight is the token embedding."""

    def __init__(self, config, precision, table):
        super().__init__()
        self.vocabulary, self.precision = config.vocabulary, precision
        self.table = table.weight

    def hybrid_forward(self, F, x, table):
        weight = self.precision.down(F, table)
        return F.FullyConnected(x, weight, num_hidden=self.vocabulary, no_bias=True, flatten=False, name="fwd")


class Layer(HybridBlock):
    def __init__(self, config, precision):
        super().__init__()
        self.heads, self.scale, self.precision = config.heads, config.head_size**-0.5, precision
        hidden, inner = config.hidden, config.intermediate
        self.ln_1, self.ln_2 = norm(config), norm(config)
        self.attn = Group({"c_attn": Dense(precision, hidden, 3 * hidden), "c_proj": Dense(precision, hidden, hidden)})
        self.mlp = Group({"c_fc": Dense(precision, hidden, inner), "c_proj": Dense(precision, inner, hidden)})

    def hybrid_forward(self, F, x, mask):
        up, down = self.precision.up, self.precision.down
        x = x + up(F, self.attn.c_proj(self._attend(F, down(F, self.ln_1(x)), mask)))
        inner = gelu(up(F, self.mlp.c_fc(down(F, self.ln_2(x)))), F)
        return x + up(F, self.mlp.c_proj(down(F, inner)))

    def _attend(self, F, x, mask):
        inputs = F.split(multiplied(F, self.precision, self.attn.c_attn(x)), num_outputs=3, axis=2)
        return attend(F, self.precision, inputs, self.heads, self.scale, lambda scores: F.softmax(scores + mask))


def gelu(x, F):
    return 0.5 * x * (1 + F.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
