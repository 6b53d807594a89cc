"""What networks with tables share in OneFlow, stepped eagerly: gradients end at the rows that a batch looks up, and an
update changes these."""

import oneflow as flow
from oneflow import nn

from dlperf.adapters.api import Unsupported
from dlperf.adapters.base import summed
from dlperf.adapters.oneflow import runtime


def configure(job, ranks):
    """As runtime.configure."""
    if ranks.world_size > 1:
        raise Unsupported("OneFlow trains tables in one process so far: gradients of rows are not added up over ranks")
    return runtime.configure(job, ranks)


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(flow.empty(rows, width))


class Network(nn.Module):
    """Base of networks with tables. rows: of the last batch, by table, which it has looked up. leaves: by table, where
    gradients end."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shapes, self.rows, self.leaves = {}, {}, {}

    def look_up(self, name, rows):
        """The values of a table's rows. rows: of any shape. Once a step: gradients of two lookups would not meet."""
        values = flow._C.gather(getattr(self, name).weight.detach(), rows, 0)
        self.rows[f"{name}.weight"] = rows
        return self.leaf(name, values)

    def leaf(self, name, values):
        """Have gradients end there: else a table's would be a whole table."""
        self.leaves[f"{name}.weight"] = values.requires_grad_()
        return values

    def gradients(self):
        """After a backward pass: by table, of the rows that were looked up."""
        return {name: one.grad for name, one in self.leaves.items()}


class Trainer(runtime.Trainer):
    """A Graph has a pass that makes such updates sparse (add_optimizer, is_sparse). With it one of 25 runs of OneFlow
    0.9 ended by SIGSEGV on a CPU, and float64 has no kernel there."""

    compiled = False

    def _eager_step(self, batch):
        network = self._network
        loss, logits = self._loss(network, batch)
        self._eager_dtype = logits[0].dtype
        loss.backward()
        of_rows = network.gradients()
        self._optimizer.step(network.rows, of_rows)
        loss = loss.detach()
        if not self._job.trace_steps:
            self._optimizer.zero_grad()
            return loss
        gradients = {name: one.grad for name, one in network.named_parameters() if name not in network.rows}
        gradients.update(of_rows)
        self._optimizer.zero_grad()
        return loss, [value.detach() for value in logits], (dict(network.rows), gradients)

    def wait(self):
        """Sync returns before the last updates are done: what is read afterwards took milliseconds."""
        super().wait()
        for weight in self._weights:
            weight[(0,) * weight.ndim].item()

    def gradients(self):
        rows, gradients = self._gradients
        for name, gradient in gradients.items():
            found = gradient.numpy()
            yield name, summed(rows[name].numpy(), found) if name in rows else found

    def moments(self):
        held = self._optimizer.moments() if self._steps else {}
        return {moment: ((name, one.numpy()) for name, one in of.items()) for moment, of in held.items()}
