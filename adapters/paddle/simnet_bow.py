"""Simnet-BOW in PaddlePaddle: dygraph, SGD of the rows that a batch looks up, which are its table's gradients
(SelectedRows); or a static graph over parameter servers."""

import numpy
import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime, servers, tables
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    effective = {"tables": "rows of a batch"}
    if job.servers:
        return servers.Trainer(job, ranks, *on_servers(job), effective)
    tables.configure(job, ranks)
    network = Network(models.config(job.model))
    runtime.load(network, job)
    optimizer = optimizers.rows_sgd(network, rates(job))
    return runtime.Trainer(job, ranks, network, loss, optimizer, runtime.Feed(job, ranks), effective)


def serve(job, ranks):
    return servers.serve(job, ranks, *on_servers(job))


def on_servers(job):
    """What servers.Program takes of this model."""
    network = Looked(models.config(job.model))
    return network, loss, network.looked_up, rates(job)


def rates(job):
    return simnet_bow.rates(models.config(job.model), simnet_bow.optimizer(job.batch_size))


def loss(network, *batch):
    own, wrong = cosines = network(*batch)
    return F.relu(wrong - own + network.config.margin).mean(), (cosines.t(),)


class Looked:
    """The network in a static graph, over rows that were looked up. Dense weights are as dlperf.models has them."""

    def __init__(self, config):
        self.config, self.shapes = config, {}

    def looked_up(self, batch):
        """Rows by table, and what else the network is fed: of each row, which text it is of."""
        texts = [batch[name] for name in simnet_bow.TEXTS]
        there = [one >= 0 for one in texts]
        of = numpy.repeat(numpy.arange(sum(map(len, texts))), numpy.concatenate([one.sum(1) for one in there]))
        return {"emb.weight": numpy.concatenate([one[has] for one, has in zip(texts, there)])}, {"of": of}

    def __call__(self, fed, rows):
        config = self.config
        bags = F.softsign(paddle.geometric.segment_sum(rows["emb.weight"], fed["of"]))
        bags = bags.reshape([len(simnet_bow.TEXTS), -1, config.width])
        query, both = (
            paddle.matmul(part, rows[f"{name}.weight"], transpose_y=True) + rows[f"{name}.bias"]
            for part, name in ((bags[:1], "q_fc"), (bags[1:], "fc"))
        )
        self.shapes = {"cosines": (2,), "query": (config.query,), "title": (config.title,)}
        return F.cosine_similarity(query, both, axis=-1)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.simnet_bow."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.seen = {}  # see runtime.Replica
        self.emb = nn.Embedding(config.vocabulary, config.width, sparse=True)
        self.q_fc, self.fc = (nn.Linear(config.width, config.hidden) for _ in range(2))

    def forward(self, batch):
        """The cosines of queries with their titles, and with others'."""
        queries, titles = batch["query"], paddle.concat([batch["title"], batch["other"]])
        count = len(queries)
        bags = F.softsign(self._bags(queries, titles))
        query, both = self.q_fc(bags[:count]), self.fc(bags[count:]).reshape([2, count, -1])
        cosines = F.cosine_similarity(query.unsqueeze(0), both, axis=-1)
        self.seen = {"cosines": cosines.detach().t(), "query": queries, "title": titles}
        return cosines

    def _bags(self, *texts):
        """Of each text the sum of the rows of its words, of which it has at least one."""
        words, bags, count = [], [], 0
        for some in texts:
            there = (some >= 0).nonzero()
            words.append(paddle.gather_nd(some, there))
            bags.append(there[:, 0] + count)
            count += len(some)
        # one lookup, so that the table's gradient is rows of one, which nothing has to join
        return paddle.geometric.segment_sum(self.emb(paddle.concat(words)), paddle.concat(bags))
