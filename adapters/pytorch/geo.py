"""Geo-SGD on PyTorch's parameter servers: each worker trains a copy of all tensors, and says every so many steps how
far it went. As PaddlePaddle's has it, servers add up what workers tell, each divided by their number, and a worker
takes over the rows that it has touched since."""

import torch

from dlperf.adapters import base
from dlperf.adapters.pytorch import servers
from dlperf.models.parameters import initial

#: steps between two exchanges at most, as in the published scripts. Where a window has fewer, each has one exchange
STEPS = 400


class Sum(servers.SGD):
    """What servers do with differences."""

    kernel = "differences, added up by index_add_"

    def __init__(self):
        super().__init__({})

    def __call__(self, name, tensor, rows, difference, step):
        tensor.index_add_(0, rows, difference)


class Trainer(servers.Trainer):
    """A worker, as servers.Trainer. update: a servers.SGD, of its copies."""

    def __init__(self, job, ranks, network, loss, feed, looked_up, effective, update):
        super().__init__(job, ranks, network, loss, feed, looked_up, effective)
        self._update, self._seen = update, [0] * len(ranks.servers)
        self._every = 1 if job.trace_steps else min(STEPS, job.steps_per_window)
        trained = [one for one in base.parameters(job) if one.trained]
        self._own = {one.name: torch.from_numpy(initial(one, job.seed, job.weights_dtype)) for one in trained}
        #: as the servers had them when they were exchanged last, and the rows that have changed since
        self._last = {name: tensor.clone() for name, tensor in self._own.items()}
        self._touched = {name: torch.zeros(len(tensor), dtype=torch.bool) for name, tensor in self._own.items()}
        self.effective["optimizer"] = f"SGD of a worker's copies, by index_add_; on servers {self._tables.kernel}"
        self.effective["exchange"] = f"every {self._every} steps"

    def _step(self, batch):
        looked_up = self._looked_up(self._network.config, batch)
        found = {name: torch.unique(rows.long(), return_inverse=True) for name, rows in looked_up.items()}
        values = {name: own[found[name][0]] if name in found else own.clone() for name, own in self._own.items()}
        for tensor in values.values():
            tensor.requires_grad_()
        rows = {name: torch.nn.functional.embedding(at, values[name]) for name, (_, at) in found.items()}
        loss, logits = self._loss(self._network, batch, {**values, **rows})
        gradients = dict(zip(values, torch.autograd.grad(loss, list(values.values()))))
        changed = {**self._tables.whole, **{name: rows for name, (rows, _) in found.items()}}
        for name, own in self._own.items():
            self._update(name, own, changed[name], gradients[name], self._steps + 1)
            self._touched[name][changed[name]] = True
        if (self._steps + 1) % self._every == 0:
            self._exchange()
        if self._job.trace_steps:
            self._logits, self._gradients = logits, (changed, gradients)
        return loss.detach()

    def _exchange(self):
        """Tell the servers how far the touched rows went, and take over what they have of them."""
        tables = {
            name: mask.nonzero().flatten() for name, mask in self._touched.items() if name not in self._tables.whole
        }
        placed = self._tables.place(tables)
        gone = {name: (self._own[name][at] - self._last[name][at]) / self._workers for name, at in placed.rows.items()}
        for one in self._tables.push(placed, self._seen, gone):
            one.wait()
        found, self._seen = self._tables.get(self._tables.ask(tables))
        for name, at in placed.rows.items():
            self._own[name][at] = self._last[name][at] = found[name]
            self._touched[name][at] = False
        self.gradient_bytes = sum(one.numel() * one.element_size() for one in gone.values())

    def parameters(self):
        if any(mask.any() for mask in self._touched.values()):
            self._exchange()
        return super().parameters()
