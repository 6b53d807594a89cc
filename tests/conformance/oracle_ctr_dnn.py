"""One step of a model of Keras's own layers with our weights: `oracle_ctr_dnn.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does.
"""

import sys

import keras
import numpy
import tensorflow as tf
from keras import layers

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)
keras.config.set_floatx("float64")

categories, numbers = keras.Input([config.slots], dtype="int64"), keras.Input([config.numbers])
rows = layers.Flatten()(layers.Embedding(config.vocabulary, config.width)(categories))
x = layers.Concatenate()([rows, numbers])
for _ in range(3):
    x = layers.Dense(config.hidden, activation="relu")(x)
network = keras.Model([categories, numbers], layers.Dense(2)(x))

parameters = family.parameters(config)
turned = [one.kind == "dense" for one in parameters]  # Keras's weights of dense layers are (in, out)
start = [initial(one, seed, "float64") for one in parameters]
network.set_weights([value.T if turn else value for value, turn in zip(start, turned, strict=True)])

batch = family.batch(config, batch_size, seed, 0)
with tf.GradientTape() as tape:
    logits = network([batch["categories"], batch["numbers"].astype("float64")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(batch["clicked"], logits)
gradients = tape.gradient(loss, [one.value for one in network.trainable_variables])

found = {"loss": loss.numpy(), "logits/logits": sketch("logits", logits.numpy())}
for one, gradient, turn in zip(parameters, gradients, turned, strict=True):
    value = tf.convert_to_tensor(gradient).numpy()
    found["gradient/" + one.name] = sketch(one.name, value.T if turn else value)
numpy.savez(out, **found)
