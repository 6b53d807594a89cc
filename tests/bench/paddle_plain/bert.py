"""BERT of paddle.nn.TransformerEncoder, trained as PaddlePaddle's documentation shows: dygraph, AdamW."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle_plain import resnet
from dlperf.adapters.paddle_plain.resnet import versions
from dlperf.models import bert

__all__ = ["build", "versions"]


def build(job, ranks):
    resnet.configure(job)
    network, recipe = Bert(models.config(job.model)), bert.optimizer(job.batch_size)
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


class Bert(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.types = nn.Embedding(config.token_types, config.hidden)
        self.places = nn.Embedding(config.positions, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, epsilon=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        layer = nn.TransformerEncoderLayer(
            config.hidden,
            config.heads,
            config.intermediate,
            dropout=config.dropout,
            activation="gelu",
            attn_dropout=config.dropout,
            act_dropout=0.0,
            layer_norm_eps=config.norm_eps,
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers)
        self.pooler, self.next = nn.Linear(config.hidden, config.hidden), nn.Linear(config.hidden, 2)
        self.transform = nn.Linear(config.hidden, config.hidden)
        self.transform_norm = nn.LayerNorm(config.hidden, epsilon=config.norm_eps)
        self.bias = self.create_parameter([config.vocabulary], is_bias=True)

    def forward(self, batch):
        ids = batch["input_ids"]
        x = self.words(ids) + self.types(batch["token_type_ids"]) + self.places(paddle.arange(ids.shape[1]))
        x = self.dropout(self.norm(x))
        mask = (paddle.arange(ids.shape[1]) < batch["lengths"].unsqueeze(1)).unsqueeze([1, 2])
        x = self.encoder(x, mask)
        masked = paddle.take_along_axis(x, batch["masked_positions"].unsqueeze(2), 1)
        masked = self.transform_norm(F.gelu(self.transform(masked)))
        words = paddle.matmul(masked, self.words.weight, transpose_y=True) + self.bias
        return words, self.next(F.tanh(self.pooler(x[:, 0])))


def loss(network, batch):
    words, sentences = network(batch)
    weights = batch["masked_weights"]
    of_words = F.cross_entropy(words, batch["masked_ids"].unsqueeze(2), reduction="none").squeeze(2)
    return (of_words * weights).sum() / weights.sum() + F.cross_entropy(sentences, batch["next_sentence_labels"])


def prepare(batch):
    tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
    return {name: tensor if tensor.is_floating_point() else tensor.astype("int64") for name, tensor in tensors.items()}
