"""Simnet-BOW in PaddlePaddle: dygraph, SGD of the rows that a batch looks up, which are its table's gradients
(SelectedRows)."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime, tables
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    tables.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config)
    runtime.load(network, job)
    optimizer = optimizers.rows_sgd(network, simnet_bow.rates(config, simnet_bow.optimizer(job.batch_size)))
    effective = {"tables": "rows of a batch"}
    return runtime.Trainer(job, ranks, network, loss, optimizer, runtime.Feed(job, ranks), effective)


def loss(network, batch):
    own, wrong = cosines = network(batch)
    return F.relu(wrong - own + network.config.margin).mean(), (cosines.t(),)


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
