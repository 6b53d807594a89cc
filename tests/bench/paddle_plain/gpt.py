"""GPT-2 of paddle.nn's layers, trained as PaddlePaddle's documentation shows: dygraph, AdamW."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle_plain import resnet
from dlperf.adapters.paddle_plain.bert import prepare
from dlperf.adapters.paddle_plain.resnet import versions
from dlperf.models import gpt

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    resnet.configure(job)
    network, recipe = Gpt(models.config(job.model)), gpt.optimizer(job.batch_size)
    optimizer = paddle.optimizer.AdamW(
        recipe.learning_rate,
        beta1=recipe.beta1,
        beta2=recipe.beta2,
        epsilon=recipe.eps,
        weight_decay=recipe.weight_decay,
        parameters=network.parameters(),
        grad_clip=nn.ClipGradByGlobalNorm(recipe.clip_norm),
    )
    return resnet.Trainer(job, ranks, network, loss, optimizer, prepare)


class Gpt(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.places = nn.Embedding(config.positions, config.hidden)
        layer = nn.TransformerEncoderLayer(
            config.hidden,
            config.heads,
            config.intermediate,
            dropout=0.0,
            activation="gelu",
            normalize_before=True,
            layer_norm_eps=config.norm_eps,
        )
        self.layers = nn.TransformerEncoder(layer, config.layers, nn.LayerNorm(config.hidden, epsilon=config.norm_eps))

    def forward(self, ids):
        count = ids.shape[1]
        x = self.words(ids) + self.places(paddle.arange(count))
        x = self.layers(x, paddle.tril(paddle.ones([count, count], dtype="bool")))
        return paddle.matmul(x, self.words.weight, transpose_y=True)


def loss(network, batch):
    return F.cross_entropy(network(batch["input_ids"]), batch["labels"].unsqueeze(2))
