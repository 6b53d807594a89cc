"""The optimizers of OneFlow's kernels, or written out in float64, with clipping."""

import re

import oneflow as flow

from dlperf.adapters.base import parameter_groups, parameters
from dlperf.adapters.oneflow import compression

#: of Adam, in the order in which classes here keep them
MOMENTS = ("mean", "square")


def sgd(job, network, recipe):
    """As dlperf.models.resnet.Optimizer says; what updates weights whose gradients are compressed is its `deep`."""
    kind = ExactSGD if job.precision == "fp64" else flow.optim.SGD
    groups = parameter_groups(network, job, recipe.weight_decay)
    deep = compression.Deep(job, groups, recipe) if compression.wanted(job) else None
    optimizer = kind(deep.whole if deep else groups, lr=recipe.learning_rate, momentum=recipe.momentum)
    optimizer.deep = deep
    return optimizer


def adamw(job, network, recipe):
    """As dlperf.models.bert.Optimizer says; what does not clip by itself has `graph_clip_norm`."""
    kind = ExactAdamW if job.precision == "fp64" else AdamW
    groups = parameter_groups(network, job, recipe.weight_decay)
    betas = (recipe.beta1, recipe.beta2)
    return kind(groups, lr=recipe.learning_rate, betas=betas, eps=recipe.eps, clip_norm=job.clip_norm)


def kernel(optimizer):
    """What updates the weights, in words."""
    if isinstance(optimizer, (LazyAdam, RowsSGD)):
        return optimizer.kernel
    return "plain arithmetic" if isinstance(optimizer, _Exact) else f"oneflow.optim.{type(optimizer).__name__}"


def clipped(gradients, clip_norm):
    """The gradients, scaled so that the norm of all together is at most `clip_norm`; None: as they are.

    A Graph can do so by itself, with flow.optim's clip_grad_max_norm. But on the CPU it adds up the squares of a tensor
    one by one in float32, and loses 3 % of BERT-base's norm; the kernel of `sum` is right to 1e-7."""
    if clip_norm is None:
        return gradients
    norm = sum((gradient * gradient).sum() for gradient in gradients).sqrt()
    scale = (clip_norm / norm).clamp(max=1.0)
    return [gradient * scale for gradient in gradients]


class AdamW(flow.optim.AdamW):
    """One group for the weights that decay and the rest: a Graph clips each group by the norm of that group alone."""

    def __init__(self, groups, lr, betas, eps, clip_norm):
        decayed, spared = groups
        group = {"params": decayed["params"] + spared["params"]}
        on_cuda = group["params"][0].is_cuda
        self.graph_clip_norm = None if on_cuda else clip_norm  # see `clipped`
        if clip_norm is not None and on_cuda:
            group.update(clip_grad_max_norm=clip_norm, clip_grad_norm_type=2.0)
        super().__init__([group], lr=lr, betas=betas, eps=eps, weight_decay=decayed["weight_decay"])
        self._spared = spared["params"]

    def _generate_conf_for_graph(self, train_conf, vars_conf):
        (conf,) = super()._generate_conf_for_graph(train_conf, vars_conf)
        names = [vars_conf[weight].name for weight in self._spared]
        conf.weight_decay_conf.excludes.pattern.extend(f"^{re.escape(name)}$" for name in names)
        return [conf]


class RowsSGD:
    """w = w - rate * g. rates: of each tensor, by name."""

    kernel = "index_add_ of rows"

    def __init__(self, network, rates):
        self._weights, self._rates = dict(network.named_parameters()), rates

    def step(self, rows, gradients):
        """rows, gradients: by table, which rows have gradients, and these; of a row that comes twice both count."""
        with flow.no_grad():
            for name, weight in self._weights.items():
                change = gradients.get(name, weight.grad) * -self._rates[name]
                if name in rows:
                    weight.index_add_(0, rows[name].flatten(), change.flatten(0, -2))
                else:
                    weight.add_(change)

    def zero_grad(self):
        for weight in self._weights.values():
            weight.grad = None

    def moments(self):
        return {}


class LazyAdam:
    """As dlperf.models.ctr_dnn.Optimizer says: of dense layers by a kernel, of tables the rows of a step."""

    def __init__(self, job, network, recipe):
        self._recipe, self._steps = recipe, 0
        weights = dict(network.named_parameters())
        self._tables = {one.name: weights.pop(one.name) for one in parameters(job) if one.kind == "embedding"}
        self._held = {name: [flow.zeros_like(table) for _ in range(2)] for name, table in self._tables.items()}
        kind = ExactAdamW if job.precision == "fp64" else flow.optim.Adam
        groups = [{"params": list(weights.values()), "weight_decay": 0.0}]
        self._dense = kind(groups, lr=recipe.learning_rate, betas=(recipe.beta1, recipe.beta2), eps=recipe.eps)
        self._weights = weights
        self.kernel = f"{kernel(self._dense)}, and of rows our own of OneFlow's operations"

    def step(self, rows, gradients):
        """rows, gradients: by table, which rows have gradients, each once, and these."""
        self._dense.step()
        self._steps += 1
        with flow.no_grad():
            for name, table in self._tables.items():
                self._update(table, *self._held[name], rows[name], gradients[name])

    def _update(self, table, mean, square, rows, gradient):
        recipe = self._recipe
        m, v = (flow._C.gather(one, rows, 0) for one in (mean, square))
        m.mul_(recipe.beta1).add_(gradient * (1 - recipe.beta1))
        v.mul_(recipe.beta2).add_(gradient * gradient * (1 - recipe.beta2))
        mean[rows], square[rows] = m, v
        v.mul_(1 / (1 - recipe.beta2**self._steps))
        rate = recipe.learning_rate / (1 - recipe.beta1**self._steps)
        table.index_add_(0, rows, m * -rate / (v.sqrt() + recipe.eps))

    def zero_grad(self):
        for weight in self._weights.values():
            weight.grad = None

    def moments(self):
        """After a step: "mean" and "square" of each tensor, by name."""
        if isinstance(self._dense, _Exact):
            dense = self._dense.state
        else:
            state = self._dense.state_dict()["state"]
            dense = [(state[index]["exp_avg"], state[index]["exp_avg_sq"]) for index in range(len(self._weights))]
        held = {**self._held, **dict(zip(self._weights, dense))}
        return {moment: {name: pair[index] for name, pair in held.items()} for index, moment in enumerate(MOMENTS)}


class _Exact:
    """Base of the updates in float64. flow.optim's kernels hold learning rate, betas and eps as float32, so that in
    float64 they agree with the formulas of dlperf.models to 8 digits only; here they are written out."""

    def __init__(self, groups, clip_norm=None, **settings):
        self._clip_norm, self._settings = clip_norm, settings
        self._weights = [weight for group in groups for weight in group["params"]]
        self._decays = [group["weight_decay"] for group in groups for _ in group["params"]]
        self.state = [[0.0, 0.0] for _ in self._weights]
        self._steps = 0

    def step(self):
        self._steps += 1
        with flow.no_grad():
            gradients = clipped([weight.grad for weight in self._weights], self._clip_norm)
            for weight, gradient, decay, state in zip(self._weights, gradients, self._decays, self.state):
                weight.copy_(self._update(weight, gradient, decay, state, **self._settings))

    def zero_grad(self):
        for weight in self._weights:
            weight.grad = None


class ExactSGD(_Exact):
    def _update(self, weight, gradient, decay, state, lr, momentum):
        state[0] = state[0] * momentum + gradient + weight * decay
        return weight - state[0] * lr


class ExactAdamW(_Exact):
    def _update(self, weight, gradient, decay, state, lr, betas, eps):
        state[0] = gradient * (1 - betas[0]) + state[0] * betas[0]
        state[1] = gradient * gradient * (1 - betas[1]) + state[1] * betas[1]
        first = state[0] / (1 - betas[0] ** self._steps)
        second = state[1] / (1 - betas[1] ** self._steps)
        return weight - (first / (second.sqrt() + eps) + weight * decay) * lr
