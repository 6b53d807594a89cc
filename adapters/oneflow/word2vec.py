"""Word2Vec in OneFlow, stepped eagerly: gradients end at the rows that were looked up, and an update changes these."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.api import Unsupported
from dlperf.adapters.base import summed
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    if ranks.world_size > 1:
        raise Unsupported(
            "Word2Vec in OneFlow trains in one process so far: gradients of rows are not added up over ranks"
        )
    device = runtime.configure(job, ranks)
    network = Network(models.config(job.model))
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.RowsSGD(network, word2vec.optimizer(job.batch_size))
    effective = {"tables": "rows of a batch"}
    return Trainer(job, device, network, loss, optimizer, runtime.Feed(job, ranks, device), effective)


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
    """Names are the canonical ones of dlperf.models.word2vec. signs: of the logits in the loss; one product costs less
    than the true context's and the negatives' apart. rows: that the last batch looked up, by table."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shapes, self.rows = {}, {}
        self.emb, self.emb_w, self.emb_b = (
            Table(config.vocabulary, width) for width in (config.width, config.width, 1)
        )
        self.register_buffer("signs", flow.tensor([-1.0] + [1.0] * config.negatives), persistent=False)

    def forward(self, batch):
        tables = {"emb.weight": self.emb.weight, "emb_w.weight": self.emb_w.weight, "emb_b.weight": self.emb_b.weight}
        for name, chosen in looked_up(self.config, batch).items():
            # else a gradient would be a whole table
            self.rows[name] = flow._C.gather(tables[name].detach(), chosen, 0).requires_grad_()
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


class Trainer(runtime.Trainer):
    """A Graph has a pass that makes such updates sparse (add_optimizer, is_sparse). With it one of 25 runs of OneFlow
    0.9 ended by SIGSEGV on a CPU, and float64 has no kernel there."""

    compiled = False

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

    def wait(self):
        """Sync returns before the last updates are done: what is read afterwards took milliseconds."""
        super().wait()
        for weight in self._weights:
            weight[0, 0].item()

    def gradients(self):
        for (name, chosen), gradient in zip(looked_up(self._network.config, self._batch).items(), self._gradients):
            yield name, summed(chosen.numpy(), gradient.numpy())
