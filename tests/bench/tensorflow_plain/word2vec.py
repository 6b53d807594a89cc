"""Word2Vec on TensorFlow's parameter servers as scripts have it that place variables by replica_device_setter: tables
in parts, one on each server, tf.nn.embedding_lookup, GradientDescentOptimizer and a MonitoredTrainingSession."""

import numpy
import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow_plain.resnet import versions
from dlperf.models import word2vec
from dlperf.models.batches import Batches
from dlperf.models.parameters import count

__all__ = ["build", "serve", "versions"]

v1 = tf.compat.v1


def cluster(ranks):
    return tf.train.ClusterSpec({"ps": list(ranks.servers), "worker": list(ranks.workers)})


def server(job, ranks):
    threads = v1.ConfigProto(intra_op_parallelism_threads=job.threads, inter_op_parallelism_threads=2)
    name = "ps" if ranks.role == "server" else "worker"
    return tf.distribute.Server(cluster(ranks), job_name=name, task_index=ranks.rank, config=threads)


def queue(number, ranks, name):
    """On a server. What is said there stays when a worker's session recovers, which begins with all variables again."""
    with v1.device(f"/job:ps/task:{number}"):
        return v1.FIFOQueue(len(ranks.workers), [tf.int32], [()], shared_name=name)


def done(number, ranks):
    """What a worker says to a server, which would stay else."""
    return queue(number, ranks, f"done{number}")


def serve(job, ranks):
    own = server(job, ranks)
    with tf.Graph().as_default():
        left = done(ranks.rank, ranks).dequeue()
        with v1.Session(own.target) as session:
            for _ in ranks.workers:
                session.run(left)


def build(job, ranks):
    v1.disable_eager_execution()
    return Trainer(job, ranks)


class Trainer:
    """A worker."""

    input_seconds = None

    def __init__(self, job, ranks):
        config, recipe = models.config(job.model), word2vec.optimizer(job.batch_size * ranks.world_size)
        self._workers, self._steps = ranks.world_size, 0
        self._batches = [rows(config, batch) for batch in Batches(job, ranks).pool()]
        self._server = server(job, ranks)  # kept, or it stops
        own, servers = f"/job:worker/task:{ranks.rank}", len(ranks.servers)
        placed = v1.train.replica_device_setter(worker_device=own, cluster=cluster(ranks))
        with tf.Graph().as_default():
            with v1.device(placed):
                self._words = v1.placeholder(tf.int64, [None])
                self._contexts = v1.placeholder(tf.int64, [None])
                self._loss = _loss(config, self._words, self._contexts, servers)
                descent = v1.train.GradientDescentOptimizer(recipe.learning_rate)
                self._train = descent.minimize(self._loss, v1.train.get_or_create_global_step())
            meets = [queue(0, ranks, f"meet{number}") for number in range(ranks.world_size)]
            self._there = [one.enqueue(1) for one in meets]
            self._come = meets[ranks.rank].dequeue_many(ranks.world_size)
            self._leave = [done(number, ranks).enqueue(1) for number in range(servers)]
            self._session = v1.train.MonitoredTrainingSession(self._server.target, is_chief=ranks.rank == 0)
        self.shapes, self.gradient_bytes = {}, 0
        self.parameter_count = count(word2vec.parameters(config))
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "float32",
            "threads": job.threads,
            "data": "synthetic",
        }

    def step(self):
        words, contexts = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        loss, _ = self._session.run([self._loss, self._train], {self._words: words, self._contexts: contexts})
        return loss

    def wait(self):
        pass

    def read(self, loss):
        return float(loss)

    def all_reduce(self, count):
        def meet():
            self._session.run(self._there)
            self._session.run(self._come)
            return float(self._workers)

        return meet

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        self._session.run(self._leave)


def _loss(config, words, contexts, servers):
    parts = v1.fixed_size_partitioner(servers)
    h, w, b = (
        tf.nn.embedding_lookup(
            v1.get_variable(name, [config.vocabulary, width], partitioner=parts, initializer=start), chosen
        )
        for name, width, start, chosen in (
            ("emb", config.width, v1.random_uniform_initializer(-0.5 / config.width, 0.5 / config.width), words),
            ("emb_w", config.width, v1.zeros_initializer(), contexts),
            ("emb_b", 1, v1.zeros_initializer(), contexts),
        )
    )
    size = tf.shape(words)[0]
    own = tf.reduce_sum(h * w[:size], 1, keepdims=True) + b[:size]
    others, biases = w[size:], b[size:]
    if config.shared:
        negatives = tf.matmul(h, others, transpose_b=True) + tf.transpose(biases)
    else:
        others = tf.reshape(others, [size, config.negatives, config.width])
        negatives = tf.squeeze(tf.matmul(others, h[:, :, None]), 2) + tf.reshape(biases, [size, config.negatives])
    losses = (
        tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.fill(tf.shape(found), label), logits=found)
        for found, label in ((own, 1.0), (negatives, 0.0))
    )
    return tf.reduce_mean(tf.add_n([tf.reduce_sum(one, 1) for one in losses]))


def rows(config, batch):
    """Of the words' table, and of the contexts': first the true ones, then the negatives."""
    negatives = batch["negatives"][0] if config.shared else batch["negatives"].reshape(-1)
    return batch["words"], numpy.concatenate([batch["contexts"], negatives])
