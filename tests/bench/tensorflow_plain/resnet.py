"""ResNet-50 of keras.applications, trained as Keras' guide "Writing a training loop from scratch in TensorFlow"."""

import keras
import tensorflow as tf

from dlperf.models import resnet
from dlperf.models.batches import Batches

__all__ = ["build", "versions"]


def versions():
    return {"tensorflow": tf.__version__, "keras": keras.__version__}


def build(job, ranks):
    configure(job)
    network = keras.applications.ResNet50(weights=None, classifier_activation=None)
    recipe = resnet.optimizer(job.batch_size)
    optimizer = keras.optimizers.SGD(recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    return Trainer(job, ranks, network, loss, optimizer, prepare, "plain is ResNet v1, 6 % fewer FLOPs")


def configure(job):
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if job.precision == "amp_bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")


def loss(network, batch):
    images, labels = batch
    entropy = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    return entropy(labels, network(images, training=True))


class Trainer:
    """loss: network, batch -> scalar. prepare: a batch of arrays -> tensors."""

    input_seconds = None

    def __init__(self, job, ranks, network, loss, optimizer, prepare, note=""):
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        self._network, self._loss, self._optimizer = network, loss, optimizer
        loss(network, self._batches[0])  # Keras makes the weights of layers when they are first called
        self._train = tf.function(self._train)
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(weight.shape.num_elements() for weight in self._network.trainable_weights)
        self.effective = {
            "precision": job.precision,
            "compute_dtype": keras.mixed_precision.global_policy().compute_dtype,
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "data": "synthetic",
            "note": note,
        }

    def _train(self, batch):
        with tf.GradientTape() as tape:
            loss = self._loss(self._network, batch)
        gradients = tape.gradient(loss, self._network.trainable_weights)
        self._optimizer.apply(gradients, self._network.trainable_weights)
        return loss

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        return self._train(batch)

    def wait(self):
        pass  # on CPU a tf.function is done when it returns

    def read(self, loss):
        return float(loss)

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        pass


def prepare(batch):
    return tf.constant(batch["images"].transpose(0, 2, 3, 1)), tf.one_hot(batch["labels"], 1000)
