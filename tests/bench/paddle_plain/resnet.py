"""ResNet-50 v1.5 of paddle.vision.models, trained as PaddlePaddle's documentation shows: dygraph, Momentum."""

import paddle
import paddle.nn.functional as F

from dlperf.models import resnet
from dlperf.models.batches import Batches

__all__ = ["build", "versions"]


def versions():
    return {"paddle": paddle.__version__}


def build(job, ranks):
    paddle.set_device("cpu")
    paddle.base.core.set_num_threads(job.threads)
    return Trainer(job, ranks)


class Trainer:
    input_seconds = None

    def __init__(self, job, ranks):
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        self._network = paddle.vision.models.resnet50()
        self._network.train()
        recipe = resnet.optimizer(job.batch_size)
        self._optimizer = paddle.optimizer.Momentum(
            recipe.learning_rate,
            momentum=recipe.momentum,
            parameters=self._network.parameters(),
            weight_decay=recipe.weight_decay,
        )
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
        images, labels = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        loss = F.cross_entropy(self._network(images), labels, soft_label=True)
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
