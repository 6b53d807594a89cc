"""ResNet-50 v1.5 of paddle.vision.models, trained as PaddlePaddle's documentation shows: dygraph, Momentum."""

import paddle
import paddle.nn.functional as F

from dlperf.models import resnet
from dlperf.models.batches import Batches

__all__ = ["build", "versions"]


def versions():
    return {"paddle": paddle.__version__}


def build(job, ranks):
    configure(job)
    network, recipe = paddle.vision.models.resnet50(), resnet.optimizer(job.batch_size)
    optimizer = paddle.optimizer.Momentum(
        recipe.learning_rate,
        momentum=recipe.momentum,
        parameters=network.parameters(),
        weight_decay=recipe.weight_decay,
    )
    return Trainer(job, ranks, network, loss, optimizer, prepare)


def configure(job):
    paddle.set_device("cpu")
    paddle.base.core.set_num_threads(job.threads)


def loss(network, batch):
    images, labels = batch
    return F.cross_entropy(network(images), labels, soft_label=True)


class Trainer:
    """loss: network, batch -> scalar. prepare: a batch of arrays -> tensors."""

    input_seconds = None

    def __init__(self, job, ranks, network, loss, optimizer, prepare):
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        self._network, self._loss, self._optimizer = network, loss, optimizer
        self._network.train()
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(int(w.size) for w in self._network.parameters() if not w.stop_gradient)
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "float32",
            "threads": job.threads,
            "data": "synthetic",
        }

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        loss = self._loss(self._network, batch)
        loss.backward()
        self._optimizer.step()
        self._optimizer.clear_grad()
        return loss.detach()

    def wait(self):
        pass  # on CPU a step is done when it returns

    def read(self, loss):
        return loss.item()

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        pass


def prepare(batch):
    labels = F.label_smooth(F.one_hot(paddle.to_tensor(batch["labels"]), 1000), epsilon=0.1)
    return paddle.to_tensor(batch["images"]), labels
