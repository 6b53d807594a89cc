"""ResNet-50 v1.5 of transformers: NCHW, torch.optim.SGD as it comes."""

import torch
from torch.nn.functional import cross_entropy
from transformers import ResNetConfig, ResNetForImageClassification

from dlperf.adapters.pytorch_plain.runtime import Trainer, versions
from dlperf.models import resnet

__all__ = ["build", "versions"]


def build(job, ranks):
    torch.set_num_threads(job.threads)
    network = ResNetForImageClassification(ResNetConfig(num_labels=1000)).train()
    recipe = resnet.optimizer(job.batch_size)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare)


def prepare(batch):
    return torch.tensor(batch["images"]), torch.tensor(batch["labels"]).long()


def loss(network, batch):
    images, labels = batch
    return cross_entropy(network(images).logits, labels, label_smoothing=0.1)
