"""BERT pretraining in MXNet: gluon, hybridized with static memory; batched products for attention, fused AdamW."""

import math

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import runtime
from dlperf.adapters.mxnet.runtime import versions
from dlperf.models import bert

__all__ = ["Network", "build", "loss", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout if job.dropout else 0.0, runtime.dtype_of(job))
    parameters = runtime.load(network, job, device)
    recipe = bert.optimizer(job.batch_size * ranks.world_size)
    clip_norm = None if job.options["clip_norm"] == "off" else float(job.options["clip_norm"])
    optimizer = runtime.AdamW(job, device, parameters, recipe, clip_norm)
    feed = runtime.Feed(job, ranks, device)
    observed = {
        "mlm_logits": "mlm_logits",
        "nsp_logits": network.cls.seq_relationship,
    }
    effective = {
        "clip_norm": str(clip_norm or "off"),
        "dropout": str(network.dropout),
        "masked_positions": str(config.masked),
        "gelu": "erf",
        "attention": "batch_dot, softmax",
    }
    return runtime.Trainer(job, device, network, parameters, optimizer, feed, observed, effective)


def loss(F, mlm, nsp, masked_ids, masked_weights, next_sentence_labels):
    words = F.pick(F.log_softmax(mlm), F.reshape(masked_ids, (-1,)))
    weights = F.reshape(masked_weights, (-1,))
    nsp = F.pick(F.log_softmax(nsp), next_sentence_labels)
    return -F.sum(words * weights) / F.sum(weights) - F.mean(nsp)


class Group(HybridBlock):
    """Blocks under one name, so that parameters have the canonical names of dlperf.models.bert."""

    def __init__(self, **blocks):
        super().__init__()
        for name, block in blocks.items():
            setattr(self, name, block)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.bert. Its output is the loss: one graph, one call."""

    def __init__(self, config, dropout, dtype):
        super().__init__()
        self.config, self.dropout, self.dtype = config, dropout, dtype
        layers = nn.HybridSequential()
        layers.add(*(Layer(config, dropout) for _ in range(config.layers)))
        self.bert = Group(
            embeddings=Embeddings(config, dropout),
            encoder=Group(layer=layers),
            pooler=Group(dense=dense(config.hidden, config.hidden)),
        )
        self.cls = Group(predictions=Predictions(config), seq_relationship=dense(config.hidden, 2))

    def hybrid_forward(
        self, F, input_ids, token_type_ids, lengths, masked_positions, masked_ids, masked_weights, next_sentence_labels
    ):
        hidden = self.bert.embeddings(input_ids, token_type_ids)
        mask = self._mask(F, lengths)
        for layer in self.bert.encoder.layer:
            hidden = layer(hidden, mask)
        ...
