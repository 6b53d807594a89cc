"""One step of TensorFlow's nce_loss with our weights: `oracle_word2vec.py MODEL BATCH_SIZE SEED OUT.npz`.

It is noise-contrastive estimation, and with expected counts of 1, whose logarithm it subtracts, negative sampling, with
one set of negatives for the batch. Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace
does.
"""

import sys

import numpy
import tensorflow as tf

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)

tables = {one.name: tf.Variable(initial(one, seed, "float64")) for one in family.parameters(config)}
emb, emb_w, emb_b = tables.values()
batch = {name: tf.constant(array, tf.int64) for name, array in family.batch(config, batch_size, seed, 0).items()}
negatives, contexts = batch["negatives"][0], batch["contexts"][:, None]
counts = tf.ones([batch_size, 1], tf.float64), tf.ones([config.negatives], tf.float64)

with tf.GradientTape() as tape:
    h = tf.nn.embedding_lookup(emb, batch["words"])
    losses = tf.nn.nce_loss(
        emb_w,
        emb_b[:, 0],
        labels=contexts,
        inputs=h,
        num_sampled=config.negatives,
        num_classes=config.vocabulary,
        sampled_values=(negatives, *counts),
    )
    loss = tf.reduce_mean(losses)
gradients = tape.gradient(loss, list(tables.values()))

chosen = tf.concat([contexts, tf.broadcast_to(negatives, [batch_size, config.negatives])], 1)
logits = tf.einsum("nd,nkd->nk", h, tf.gather(emb_w, chosen)) + tf.gather(emb_b[:, 0], chosen)
found = {"loss": loss.numpy(), "logits/logits": sketch("logits", logits.numpy())}
for name, gradient in zip(tables, gradients, strict=True):
    found["gradient/" + name] = sketch(name, tf.convert_to_tensor(gradient).numpy())
numpy.savez(out, **found)
