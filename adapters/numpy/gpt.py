"""GPT-2 pretraining in NumPy, as the formulas of dlperf.models.gpt: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.optimizers import AdamW
from dlperf.adapters.numpy.runtime import cross_entropy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(job, models.config(job.model))
    effective = {"clip_norm": str(job.clip_norm or "off"), "gelu": "tanh", "attention": "products and a softmax"}
    return runtime.Trainer(job, ranks, network, AdamW(job, gpt.optimizer(job.batch_size)), effective)


def loss(logits, batch):
    """Its value, and the gradient of the logits: (batch, sequence, vocabulary)."""
    flat = logits.reshape(-1, logits.shape[2])
    each = numpy.full(len(flat), 1 / len(flat), flat.dtype)
    value, d = cross_entropy(flat, batch["labels"].reshape(-1), each)
    return value, d.reshape(logits.shape)


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config = config

    def step(self, batch):
        tables = ["transformer.wte.weight", "transformer.wpe.weight"]
        tokens = batch["input_ids"]
        indices = [tokens, numpy.broadcast_to(numpy.arange(tokens.shape[1]), tokens.shape)]
        (x, rows_back), backwards = self.look_up(tables, indices), []
        for index in range(self.config.layers):
            for part in (self._attend, self._feed_forward):
                y, back = part(f"transformer.h.{index}.", x)
                x = x + y
                backwards.append(back)
        normal, norm_back = self.layer_norm("transformer.ln_f", x, self.config.norm_eps)
        logits, head_back = self.project(normal, tables[0], None)
        self.shapes = {"logits": logits.shape[1:]}

        value, d = loss(logits, batch)
        d = norm_back(head_back(d))
        for back in reversed(backwards):
            d = d + back(d)
        rows_back(d)
        return value, (logits,)

    def _attend(self, layer, x):
        normal, norm_back = self.layer_norm(layer + "ln_1", x, self.config.norm_eps)
        parts, parts_back = self.dense(layer + "attn.c_attn", normal)
        sides = (*parts.shape[:2], 3, self.config.heads, -1)
        q, k, v = parts.reshape(sides).transpose(2, 0, 3, 1, 4)
        mask = numpy.where(numpy.tri(x.shape[1], dtype=bool), 0, -numpy.inf)
        context, context_back = self.attend(q, k, v, mask)
        y, back = self.dense(layer + "attn.c_proj", context.swapaxes(1, 2).reshape(x.shape))

        def backward(dy):
            d = back(dy).reshape(*x.shape[:2], self.config.heads, -1).swapaxes(1, 2)
            return norm_back(parts_back(numpy.stack(context_back(d)).transpose(1, 3, 0, 2, 4).reshape(parts.shape)))

        return y, backward

    def _feed_forward(self, layer, x):
        normal, norm_back = self.layer_norm(layer + "ln_2", x, self.config.norm_eps)
        inner, inner_back = self.dense(layer + "mlp.c_fc", normal)
        active, active_back = gelu(inner)
        y, back = self.dense(layer + "mlp.c_proj", active)
        return y, lambda dy: norm_back(inner_back(active_back(back(dy))))


def gelu(x):
    """The form with tanh."""
    slope, cubic, half = (x.dtype.type(one) for one in ((2 / numpy.pi) ** 0.5, 0.044715, 0.5))
    t = numpy.tanh(slope * (x + cubic * x**3))
    of_t = half * x * (1 - t * t) * slope * (1 + 3 * cubic * x * x)
    return half * x * (1 + t), lambda dy: dy * (half * (1 + t) + of_t)
