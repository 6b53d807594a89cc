"""Word2Vec of gluon.contrib's SparseEmbedding, trained with gluon.Trainer on MXNet's parameter servers, as its tutorial
of row_sparse weights in Gluon has it: a layer pulls the rows that it looks up, and the trainer pushes their
gradients."""

import os
import subprocess
import sys

import mxnet as mx
from mxnet import autograd, gluon, nd
from mxnet.gluon.contrib.nn import SparseEmbedding
from mxnet.kvstore.kvstore_server import KVStoreServer

from dlperf import models
from dlperf.adapters.mxnet_plain.resnet import versions
from dlperf.adapters.ranks import await_port
from dlperf.models import word2vec
from dlperf.models.batches import Batches
from dlperf.models.parameters import count

__all__ = ["build", "serve", "versions"]

#: importing mxnet in a process with this role runs it
SCHEDULER = "from dlperf.adapters import spawn; spawn.die_with_parent(); import mxnet"


def build(job, ranks):
    _place(job, ranks, "worker")
    return Trainer(job, ranks)


def serve(job, ranks):
    _place(job, ranks, "server")
    if ranks.rank == 0:
        subprocess.Popen([sys.executable, "-c", SCHEDULER], env=dict(os.environ, DMLC_ROLE="scheduler"))
    _await_scheduler(job, ranks)
    KVStoreServer(mx.kv.create("dist")).run()


def _await_scheduler(job, ranks):
    address, _, port = ranks.servers[0].rpartition(":")
    await_port(address, int(port), job.meeting_seconds)


def _place(job, ranks, role):
    """What MXNet's launcher tells a process."""
    address, _, port = ranks.servers[0].rpartition(":")
    os.environ.update(
        DMLC_ROLE=role,
        DMLC_PS_ROOT_URI=address,
        DMLC_PS_ROOT_PORT=port,
        DMLC_NODE_HOST=(ranks.servers if role == "server" else ranks.workers)[ranks.rank].rpartition(":")[0],
        DMLC_NUM_WORKER=str(len(ranks.workers)),
        DMLC_NUM_SERVER=str(len(ranks.servers)),
    )
    if role == "worker":
        _await_scheduler(job, ranks)


class Network(gluon.Block):
    def __init__(self, config):
        super().__init__()
        self._shared = config.shared
        with self.name_scope():
            for name, width in (("emb", config.width), ("emb_w", config.width), ("emb_b", 1)):
                setattr(self, name, SparseEmbedding(config.vocabulary, width))

    def forward(self, words, contexts):
        """The logits of the true contexts, then of the negatives."""
        h, w, b = self.emb(words), self.emb_w(contexts), self.emb_b(contexts)
        size = len(words)
        own = (h * w[:size]).sum(axis=1, keepdims=True) + b[:size]
        others, biases = w[size:], b[size:]
        if self._shared:
            return nd.concat(own, nd.dot(h, others, transpose_b=True) + biases.T, dim=1)
        others = others.reshape((size, -1, h.shape[1]))
        found = nd.batch_dot(others, h.expand_dims(2)).squeeze(axis=2)
        return nd.concat(own, found + biases.reshape((size, -1)), dim=1)


class Trainer:
    """A worker."""

    input_seconds = None

    def __init__(self, job, ranks):
        config, recipe = models.config(job.model), word2vec.optimizer(job.batch_size * ranks.world_size)
        self._workers = ranks.world_size
        self._batches = [rows(config, batch) for batch in Batches(job, ranks).pool()]
        self._network = Network(config)
        self._network.initialize(mx.init.Uniform(0.5 / config.width))
        # the servers have the optimizer before the first step, and take no other factor then
        settings = {"learning_rate": recipe.learning_rate, "rescale_grad": 1 / job.batch_size}
        self._store = mx.kv.create("dist_async")
        self._trainer = gluon.Trainer(self._network.collect_params(), "sgd", settings, kvstore=self._store)
        self._signs = nd.array([[-1.0] + [1.0] * config.negatives])
        self._steps, self.shapes, self.gradient_bytes = 0, {}, 0
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
        with autograd.record():
            loss = nd.Activation(self._network(words, contexts) * self._signs, "softrelu").sum(axis=1)
        loss.backward()
        self._trainer.step(1)
        return loss

    def wait(self):
        nd.waitall()

    def read(self, loss):
        return loss.mean().asscalar().item()

    def all_reduce(self, count):
        def meet():
            nd.waitall()
            self._store._barrier()
            return float(self._workers)

        return meet

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        nd.waitall()


def rows(config, batch):
    """Of the words' table, and of the contexts': first the true ones, then the negatives."""
    negatives = nd.array(batch["negatives"][0] if config.shared else batch["negatives"], dtype="int64")
    contexts = nd.concat(nd.array(batch["contexts"], dtype="int64"), negatives.reshape(-1), dim=0)
    return nd.array(batch["words"], dtype="int64"), contexts
