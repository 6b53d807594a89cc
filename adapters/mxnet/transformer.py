"""Transformer in MXNet: gluon, hybridized with static memory; batched products for attention, fused Adam."""

from mxnet import nd
from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime
from dlperf.adapters.mxnet.bert import Group, norm
from dlperf.adapters.mxnet.gpt import Head
from dlperf.adapters.mxnet.layers import Dense, attend, multiplied
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout * job.dropout, runtime.Precision(job))
    runtime.load(network, job, device)
    optimizer = optimizers.AdamW(job, network, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks, device)
    effective = {
        "label_smoothing": str(config.label_smoothing),
        "attention": "batch_dot, softmax",
        "norm_eps": f"{config.norm_eps}, as float32",  # the kernel's parameter, in float64 too
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(F, network, batch):
    config = network.config
    logits = network(*(batch[name] for name in ("source", "source_lengths", "target")))
    scores = F.log_softmax(logits)
    spread = config.label_smoothing / config.vocabulary
    tokens = (1 - config.label_smoothing) * F.pick(scores, batch["labels"]) + spread * F.sum(scores, axis=-1)
    return F.negative(F.sum(tokens * batch["target_weights"]) / batch["target_total"]), (logits,)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.transformer. Types as in bert.Network."""

    def __init__(self, config, dropout, precision):
        super().__init__()
        self.config, self.precision = config, precision
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        positions = nd.array(transformer.positions(config)[None], dtype="float64")
        self.positions = self.params.get_constant("positions", positions)
        self.encoder, self.decoder = (Side(config, dropout, precision, side) for side in transformer.SIDES)
        self.dropout = nn.Dropout(dropout)
        self.head = Head(config, precision, self.embedding)

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"logits": self.head}

    def hybrid_forward(self, F, source, lengths, target, positions):
        columns = F.contrib.arange_like(source, axis=1)
        none = F.reshape(F.zeros_like(F.cast(source, self.precision.dtype)), (0, 1, 1, -1))
        padding = F.broadcast_greater_equal(F.expand_dims(columns, 0), F.expand_dims(lengths, 1))
        padding = self._mask(F, none, F.reshape(padding, (0, 1, 1, -1)))
        later = F.broadcast_greater(F.expand_dims(columns, 0), F.expand_dims(columns, 1))
        later = self._mask(F, none, F.reshape(later, (1, 1, -1, self.config.sequence)))
        memory = self.encoder(self._embed(F, source, positions), padding)
        x = self.decoder(self._embed(F, target, positions), later, self.precision.down(F, memory), padding)
        return self.precision.up(F, self.head(self.precision.down(F, x)))

    def _embed(self, F, tokens, positions):
        return self.dropout(F.broadcast_add(self.embedding(tokens) * self.config.hidden**0.5, positions))

    def _mask(self, F, none, outside):
        """0, or -10000 outside, as (batch * heads, sequence, sequence): see bert.Network."""
        mask = F.broadcast_add(none, F.cast(outside, self.precision.dtype) * -10000.0)
        sides = (self.config.heads, self.config.sequence)
        mask = F.broadcast_like(mask, F.broadcast_axis(none, axis=(1, 2), size=sides))
        return F.reshape(mask, (-3, 0, 0))


class Side(HybridBlock):
    """The encoder, or the decoder, which takes the encoder's output in the type of products, and its padding, too."""

    def __init__(self, config, dropout, precision, side):
        super().__init__()
        self.layers = nn.HybridSequential()
        self.layers.add(*[Layer(config, dropout, precision, side) for _ in range(config.layers)])
        self.norm = norm(config) if config.pre_norm else None

    def hybrid_forward(self, F, x, mask, *memory):
        for layer in self.layers:
            x = layer(x, mask, *memory)
        return self.norm(x) if self.norm else x


class Layer(HybridBlock):
    def __init__(self, config, dropout, precision, side):
        super().__init__()
        self.heads, self.scale, self.pre_norm, self.precision = (
            config.heads,
            config.head_size**-0.5,
            config.pre_norm,
            precision,
        )
        self.kinds = transformer.SIDES[side]
        self.dropout = nn.Dropout(dropout)
        for number, kind in enumerate(self.kinds, 1):
            setattr(self, f"norm{number}", norm(config))
            setattr(self, kind, self._part(kind, config))

    def _part(self, kind, config):
        hidden, inner, precision = config.hidden, config.intermediate, self.precision
        if kind == "feed_forward":
            return Group({"inner": Dense(precision, hidden, inner), "outer": Dense(precision, inner, hidden)})
        names = ("query", "key", "value", "output")
        return Group({name: Dense(precision, hidden, hidden, use_bias=False) for name in names})

    def hybrid_forward(self, F, x, mask, *memory):
        for number, kind in enumerate(self.kinds, 1):
            part, normalise = getattr(self, kind), getattr(self, f"norm{number}")
            inputs = self.precision.down(F, normalise(x) if self.pre_norm else x)
            if kind == "feed_forward":
                inner = F.Activation(part.inner(inputs), act_type="relu")
                y = part.outer(self.precision.without_bfloat16(F, self.dropout, inner))
            elif kind == "cross_attention":
                y = self._attend(F, part, inputs, *memory)
            else:
                y = self._attend(F, part, inputs, inputs, mask)
            x = x + self.dropout(self.precision.up(F, y))
            x = x if self.pre_norm else normalise(x)
        return x

    def _attend(self, F, part, x, memory, mask):
        inputs = multiplied(F, self.precision, part.query(x), part.key(memory), part.value(memory))
        context = attend(F, self.precision, inputs, self.heads, self.scale, lambda scores: self._weigh(F, scores, mask))
        return part.output(context)

    def _weigh(self, F, scores, mask):
        return self.dropout(F.softmax(scores + mask))
