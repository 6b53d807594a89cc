"""Transformer of paddle.nn.Transformer, trained as PaddlePaddle's documentation shows: dygraph, Adam."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle_plain import resnet
from dlperf.adapters.paddle_plain.bert import prepare
from dlperf.adapters.paddle_plain.resnet import versions
from dlperf.models import transformer

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    resnet.configure(job)
    network, recipe = Network(models.config(job.model)), transformer.optimizer(job.batch_size)
    optimizer = paddle.optimizer.Adam(
        recipe.learning_rate,
        beta1=recipe.beta1,
        beta2=recipe.beta2,
        epsilon=recipe.eps,
        parameters=network.parameters(),
    )
    return resnet.Trainer(job, ranks, network, loss, optimizer, prepare)


class Network(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = paddle.to_tensor(transformer.positions(config).astype("float32"))
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Transformer(
            config.hidden,
            config.heads,
            config.layers,
            config.layers,
            config.intermediate,
            dropout=config.dropout,
            normalize_before=config.pre_norm,
        )
        later = paddle.ones([config.sequence, config.sequence], dtype="bool")
        self.later = paddle.tril(later).unsqueeze([0, 1])

    def forward(self, batch):
        padding = (paddle.arange(self.config.sequence) < batch["source_lengths"].unsqueeze(1)).unsqueeze([1, 2])
        source, target = self.embed(batch["source"]), self.embed(batch["target"])
        x = self.layers(source, target, src_mask=padding, tgt_mask=self.later, memory_mask=padding)
        return paddle.matmul(x, self.words.weight, transpose_y=True)

    def embed(self, tokens):
        return self.dropout(self.words(tokens) * self.config.hidden**0.5 + self.positions)


def loss(network, batch):
    logits, config = network(batch), network.config
    labels = F.label_smooth(F.one_hot(batch["labels"], config.vocabulary), epsilon=config.label_smoothing)
    losses = F.cross_entropy(logits, labels, soft_label=True, reduction="none").squeeze(2)
    return (losses * batch["target_weights"]).sum() / batch["target_weights"].sum()
