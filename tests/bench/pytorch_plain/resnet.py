"""ResNet-50 v1.5 of transformers, or of timm on a GPU, where it is trained in channels-last as timm's own benchmark
does; torch.optim.SGD as it comes."""

import torch
from torch.nn.functional import cross_entropy

from dlperf.adapters.pytorch_plain import runtime
from dlperf.adapters.pytorch_plain.runtime import Trainer
from dlperf.models import resnet

__all__ = ["build", "versions"]


def versions():
    found = runtime.versions()
    if torch.cuda.is_available():
        import timm

        found["timm"] = timm.__version__
    return found


def build(job, ranks):
    device = runtime.configure(job)
    network = (timm_network() if device.type == "cuda" else Logits()).to(device).train()
    recipe = resnet.optimizer(job.batch_size)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    return Trainer(job, ranks, network, loss, optimizer, channels_last if device.type == "cuda" else prepare)


def timm_network():
    import timm

    return timm.create_model("resnet50").to(memory_format=torch.channels_last)


class Logits(torch.nn.Module):
    def __init__(self):
        from transformers import ResNetConfig, ResNetForImageClassification

        super().__init__()
        self.network = ResNetForImageClassification(ResNetConfig(num_labels=1000))

    def forward(self, images):
        return self.network(images).logits


def prepare(batch):
    return torch.tensor(batch["images"]), torch.tensor(batch["labels"]).long()


def channels_last(batch):
    images, labels = prepare(batch)
    return images.contiguous(memory_format=torch.channels_last), labels


def loss(network, batch):
    images, labels = batch
    return cross_entropy(network(images), labels, label_smoothing=0.1)
