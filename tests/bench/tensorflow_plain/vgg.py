"""VGG16 of keras.applications, trained as Keras' guide "Writing a training loop from scratch in TensorFlow"."""

import keras
import tensorflow as tf

from dlperf.adapters.tensorflow_plain.resnet import Trainer, configure, versions
from dlperf.models import vgg

__all__ = ["build", "versions"]


def build(job, ranks):
    configure(job)
    network = keras.applications.VGG16(weights=None, classifier_activation=None)
    recipe = vgg.optimizer(job.batch_size)
    optimizer = keras.optimizers.SGD(recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    return Trainer(job, ranks, network, loss, optimizer, prepare, "plain has no dropout")


def prepare(batch):
    return tf.constant(batch["images"].transpose(0, 2, 3, 1)), tf.constant(batch["labels"])


def loss(network, batch):
    images, labels = batch
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return entropy(labels, network(images, training=True))
