"""Word2Vec in OneFlow: an nn.Graph whose sparse SGD changes the rows that it has looked up; eagerly in float64, in
which a Graph finds no kernel for that update."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.api import Unsupported
from dlperf.adapters.base import summed
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.graph import Graph, kernels
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    if ranks.world_size > 1:
        raise Unsupported(
            "Word2Vec in OneFlow trains in one process so far: gradients of rows are not added up over ranks"
        )
    device = runtime.configure(job, ranks)
    network = Network(models.config(job.model), leaves=job.precision == "fp64")
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.rows_sgd(job, network, word2vec.optimizer(job.batch_size))
    return Trainer(job, device, network, loss, optimizer, runtime.Feed(job, ranks, device), {})


def loss(network, batch):
    logits = network(batch)
    return F.softplus(logits * network.signs).sum() / len(logits), (logits,)  # one sum: an operation costs 20 us


def looked_up(config, batch):
    """The rows that a batch needs, by table: of contexts where they are shared first each word's, then the negatives;
    else (batch, 1 + negatives). Each table is looked up once: gradients of two lookups would meet as whole tables."""
    if config.shared:
        contexts = flow.cat([batch["contexts"], batch["negatives"][0]], 0)
    else:
        contexts = flow.cat([batch["contexts"].unsqueeze(1), batch["negatives"]], 1)
    return {"emb.weight": batch["words"], "emb_w.weight": contexts, "emb_b.weight": contexts}


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(flow.empty(rows, width))


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.word2vec. leaves: whether gradients end at the rows, not at the
    tables. signs: of the logits in the loss; one product costs less than the true context's and the negatives' apart.

    rows: that the last batch looked up, by table."""

    def __init__(self, config, leaves):
        super().__init__()
        self.config, self.leaves = config, leaves
        self.shapes, self.rows = {}, {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        self.emb, self.emb_w, self.emb_b = (
            Table(config.vocabulary, width) for width in (config.width, config.width, 1)
        )
        self.register_buffer("signs", flow.tensor([-1.0] + [1.0] * config.negatives), persistent=False)

    def forward(self, batch):
        tables = {"emb.weight": self.emb.weight, "emb_w.weight": self.emb_w.weight, "emb_b.weight": self.emb_b.weight}
        for name, chosen in looked_up(self.config, batch).items():
            # The pass behind sparse SGD knows the gradient of gather; of an embedding's it would make a whole table.
            rows = flow._C.gather(tables[name].detach() if self.leaves else tables[name], chosen, 0)
            self.rows[name] = rows.requires_grad_() if self.leaves else rows
        logits = (self._shared if self.config.shared else self._own)(*self.rows.values())
        sets = () if self.config.shared else (self.config.negatives,)
        self.shapes.update(logits=tuple(logits.shape[1:]), negatives=sets)
        return logits

    def _shared(self, h, w, b):
        sizes = [len(h), self.config.negatives]
        (w, others), (b, biases) = flow.split(w, sizes), flow.split(b, sizes)
        own = (h * w).sum(1, keepdim=True) + b
        return flow.cat([own, flow.matmul(h, others, transpose_b=True) + biases.reshape(1, -1)], 1)

    def _own(self, h, w, b):
        return (flow.matmul(w, h.unsqueeze(2)) + b).squeeze(2)


class Rows(Graph):
    """Hands out, with trace_steps, the gradients of the rows, in the order of the tables."""

    sparse = True

    def build(self, batch):
        loss, logits = self.loss(self.network, batch)
        rows = list(self.network.rows.values())
        for one in rows if self.traced else ():
            one.retain_grad()
        loss.backward()
        return (loss, logits, [one.grad for one in rows]) if self.traced else loss


class Trainer(runtime.Trainer):
    graph = Rows

    def _step(self, batch):
        self._batch = batch
        return super()._step(batch)

    def _eager_step(self, batch):
        loss, logits = self._loss(self._network, batch)
        self._eager_dtype = logits[0].dtype
        loss.backward()
        gradients = [rows.grad for rows in self._network.rows.values()]
        self._optimizer.step(looked_up(self._network.config, batch).values(), gradients)
        loss = loss.detach()
        return (loss, [value.detach() for value in logits], gradients) if self._job.trace_steps else loss

    def _observe(self, batch):
        super()._observe(batch)
        updates = kernels(self._graph, "_update") if self._graph else "index_add_"
        self.effective["optimizer"] += f" ({updates})"
        of_rows = updates in ("indexed_slices_sgd_update", "index_add_")
        self.effective["tables"] = "rows of a batch" if of_rows else "whole tables"

    def gradients(self):
        for (name, chosen), gradient in zip(looked_up(self._network.config, self._batch).items(), self._gradients):
            yield name, summed(chosen.numpy(), gradient.numpy())
