"""Simnet-BOW in OneFlow, stepped eagerly: gradients end at the rows that were looked up, and SGD changes these."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime, tables
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = tables.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.RowsSGD(network, simnet_bow.rates(config, simnet_bow.optimizer(job.batch_size)))
    effective = {"tables": "rows of a batch"}
    return tables.Trainer(job, device, network, loss, optimizer, runtime.Feed(job, ranks, device), effective)


def loss(network, batch):
    cosines = network(batch)
    each = cosines[1] - cosines[0] + network.config.margin
    return F.relu(each).mean(), (cosines.t(),)


class Network(tables.Network):
    """Names are the canonical ones of dlperf.models.simnet_bow."""

    def __init__(self, config):
        super().__init__(config)
        self.emb = tables.Table(config.vocabulary, config.width)
        self.q_fc, self.fc = (nn.Linear(config.width, config.hidden) for _ in range(2))

    def forward(self, batch):
        """The cosines of queries with their titles, and with others'."""
        queries, titles = batch["query"], flow.cat([batch["title"], batch["other"]], 0)
        count = len(queries)
        bags = F.softsign(self._bags(queries, titles))
        query, both = unit(self.q_fc(bags[:count])), unit(self.fc(bags[count:]))
        cosines = (query * both.reshape(2, count, -1)).sum(-1)
        self.shapes.update(
            cosines=tuple(cosines.shape[:1]), query=tuple(queries.shape[1:]), title=tuple(titles.shape[1:])
        )
        return cosines

    def _bags(self, *texts):
        """Of each text the sum of the rows of its words. Gradients end there, since OneFlow has none of such sums."""
        words, bags, count = [], [], 0
        for some in texts:
            there = flow.argwhere(some >= 0)
            words.append(flow.gather_nd(some, there))
            bags.append(there[:, 0] + count)
            count += len(some)
        words, self._bag_of = flow.cat(words, 0), flow.cat(bags, 0)
        values = self.look_up("emb", words).detach()
        return self.leaf("emb", flow._C.unsorted_segment_sum(values, self._bag_of, 0, count))

    def gradients(self):
        """Of each word that of its text's sum."""
        return {name: flow._C.gather(one, self._bag_of, 0) for name, one in super().gradients().items()}


def unit(vectors):
    return F.normalize(vectors, dim=-1)
