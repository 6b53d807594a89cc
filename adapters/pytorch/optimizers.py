"""The optimizers of PyTorch and of NVIDIA's apex."""

import torch

from dlperf.adapters.api import Unsupported
from dlperf.adapters.base import parameter_groups


def sgd(job, network, recipe):
    """As dlperf.models.resnet.Optimizer says."""
    groups = parameter_groups(network, job, recipe.weight_decay)
    settings = {"lr": recipe.learning_rate, "momentum": recipe.momentum}
    if job.options["optimizer"] == "apex":
        return apex(job).FusedSGD(groups, **settings)
    return torch.optim.SGD(groups, fused=True, **settings)


def sparse_sgd(network, rates):
    """w = w - rate * g. rates: of each tensor. Gradients may have some rows of a table alone."""
    groups = [{"params": [weight], "lr": rates[name]} for name, weight in network.named_parameters()]
    return torch.optim.SGD(groups, fused=False)


class LazyAdam(torch.optim.AdamW):
    """As dlperf.models.ctr_dnn.Optimizer says: of dense layers PyTorch's fused Adam, of tables the rows of a step."""

    kernel = "torch.optim.AdamW (fused=True), and of rows our own of PyTorch's operations"

    def __init__(self, network, recipe):
        self._recipe, self._steps = recipe, 0
        self._tables = [one.weight for one in network.modules() if isinstance(one, torch.nn.Embedding)]
        settings = {"lr": recipe.learning_rate, "betas": (recipe.beta1, recipe.beta2), "eps": recipe.eps}
        super().__init__(network.parameters(), weight_decay=recipe.weight_decay, fused=True, **settings)
        for table in self._tables:
            self.state[table] = {"exp_avg": torch.zeros_like(table), "exp_avg_sq": torch.zeros_like(table)}

    @torch.no_grad()
    def step(self, closure=None):
        sparse = [table.grad.coalesce() for table in self._tables]
        for table in self._tables:
            table.grad = None  # Adam's own step refuses gradients of rows
        super().step()
        self._steps += 1
        for table, gradient in zip(self._tables, sparse):
            held = self.state[table]
            rows, values = gradient.indices()[0], gradient.values()
            lazy_adam(self._recipe, self._steps, table, held["exp_avg"], held["exp_avg_sq"], rows, values)


def lazy_adam(recipe, step, table, mean, square, rows, gradient):
    """The step-th update of some rows, ascending, each once, and of their moments, in place."""
    if len(rows) == len(table):  # all of them: a third of the time
        scale = square.mul_(recipe.beta2).addcmul_(gradient, gradient, value=1 - recipe.beta2)
        scale = scale.div(1 - recipe.beta2**step).sqrt_().add_(recipe.eps)
        mean.lerp_(gradient, 1 - recipe.beta1)
        table.addcdiv_(mean, scale, value=-recipe.learning_rate / (1 - recipe.beta1**step))
        return
    m = mean[rows].lerp_(gradient, 1 - recipe.beta1)
    v = square[rows].mul_(recipe.beta2).addcmul_(gradient, gradient, value=1 - recipe.beta2)
    mean[rows], square[rows] = m, v
    scale = v.div(1 - recipe.beta2**step).sqrt_().add_(recipe.eps)
    table.index_add_(0, rows, m.div_(scale), alpha=-recipe.learning_rate / (1 - recipe.beta1**step))


def adamw(job, network, recipe):
    """As dlperf.models.bert.Optimizer says, but for clipping."""
    groups = parameter_groups(network, job, recipe.weight_decay)
    settings = {"lr": recipe.learning_rate, "betas": (recipe.beta1, recipe.beta2), "eps": recipe.eps}
    if job.options["optimizer"] == "apex":
        return apex(job).FusedAdam(groups, adam_w_mode=True, **settings)
    return torch.optim.AdamW(groups, fused=True, capturable=job.device == "cuda", **settings)


def apex(job):
    """The optimizers of NVIDIA's apex. FusedLAMB is none of them here: it would be another optimizer."""
    if job.device != "cuda":
        raise Unsupported("optimizer=apex: apex's fused optimizers run on CUDA only")
    try:
        from apex import optimizers
    except ImportError:
        raise Unsupported("optimizer=apex: this environment has no apex; NVIDIA's images of PyTorch have it") from None
    return optimizers


def kernel(optimizer):
    """What updates the weights, in words."""
    if isinstance(optimizer, LazyAdam):
        return optimizer.kernel
    name = type(optimizer).__name__
    if type(optimizer).__module__.startswith("apex"):
        return f"apex.optimizers.{name}"
    return f"torch.optim.{name} (fused={optimizer.param_groups[0]['fused']})"


def clips(job):
    """Whether the kernel of the update can clip: it divides gradients by a float32 on the device as it reads them."""
    return job.device == "cuda" and job.options["optimizer"] == "torch" and job.weights_dtype == "float32"


def divisor(gradients, clip_norm, scale):
    """What gradients, `scale` times too large, are divided by besides, so that their norm is at most clip_norm."""
    return (total_norm(gradients) / (scale * clip_norm)).clamp(min=1.0)


def clip(gradients, clip_norm):
    """Scale gradients in place so that the norm of all together is at most clip_norm."""
    # torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6; the other frameworks, and the paper, by the norm
    norm = total_norm(gradients)
    torch._foreach_mul_(gradients, (clip_norm / norm).clamp(max=1.0))


def total_norm(gradients):
    """The norm of all gradients together, as a scalar.

    On a CPU PyTorch adds a tensor's squares up in a few float32 (pytorch/pytorch issue 169237): of 38.6 million values
    of N(0, 1), as many as GPT-2's token table has, 2.13's norm is 0.27 % too small. By rows it is right to 1e-7.
    """
    if gradients[0].is_cuda:
        return torch.nn.utils.get_total_norm(gradients)
    rows = [torch.linalg.vector_norm(gradient, dim=-1) for gradient in gradients]
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(row) for row in rows]))
