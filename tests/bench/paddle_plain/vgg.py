"""VGG16 of paddle.vision.models, trained as PaddlePaddle's documentation shows: dygraph, Momentum."""

import paddle
import paddle.nn.functional as F

from dlperf.adapters.paddle_plain.resnet import Trainer, configure, versions
from dlperf.models import vgg

__all__ = ["build", "versions"]


def build(job, ranks):
    configure(job)
    network, recipe = paddle.vision.models.vgg16(), vgg.optimizer(job.batch_size)
    optimizer = paddle.optimizer.Momentum(
        recipe.learning_rate,
        momentum=recipe.momentum,
        parameters=network.parameters(),
        weight_decay=recipe.weight_decay,
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare)


def prepare(batch):
    return paddle.to_tensor(batch["images"]), paddle.to_tensor(batch["labels"]).astype("int64")


def loss(network, batch):
    images, labels = batch
    return F.cross_entropy(network(images), labels)
