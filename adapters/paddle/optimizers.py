"""The optimizers of PaddlePaddle."""

import paddle
from paddle import nn

from dlperf.adapters.base import parameter_groups, parameters


def sgd(job, network, recipe):
    """As dlperf.models.resnet.Optimizer says. On CUDA one kernel updates all tensors of a group."""
    if job.weights_dtype == "float64":
        return ExactSGD(parameter_groups(network, job, recipe.weight_decay), recipe)
    return paddle.optimizer.Momentum(
        learning_rate=recipe.learning_rate,
        momentum=recipe.momentum,
        parameters=parameter_groups(network, job, recipe.weight_decay),
        use_multi_tensor=job.device == "cuda",
    )


def adamw(job, network, recipe):
    """As dlperf.models.bert.Optimizer says, clipping included. Paddle's AdamW has one kernel for each tensor."""
    # one group, since the norm to clip to would be that of each group
    trained = dict(network.named_parameters())
    decayed = {trained[parameter.name].name for parameter in parameters(job) if parameter.decayed}
    return paddle.optimizer.AdamW(
        learning_rate=recipe.learning_rate,
        beta1=recipe.beta1,
        beta2=recipe.beta2,
        epsilon=recipe.eps,
        parameters=network.parameters(),
        weight_decay=recipe.weight_decay,
        apply_decay_param_fun=decayed.__contains__,
        grad_clip=None if job.clip_norm is None else nn.ClipGradByGlobalNorm(job.clip_norm),
    )


def rows_sgd(network, rates):
    """w = w - rate * g. rates: of each tensor, by name. Gradients may have some rows of a table alone. The private
    operator beneath, paddle._C_ops.sgd_, would take a fifth less of a step of Word2Vec."""
    least = min(rates.values())
    for name, weight in network.named_parameters():
        weight.optimize_attr["learning_rate"] = rates[name] / least  # as a ParamAttr has it: a factor
    return paddle.optimizer.SGD(least, network.parameters())


class LazyAdam(paddle.optimizer.Adam):
    """As dlperf.models.ctr_dnn.Optimizer says. The kernel adds sqrt(1 - beta2^t) * eps to sqrt(v), and multiplies the
    rate by sqrt(1 - beta2^t) / (1 - beta1^t): the same.

    On a CPU (3.3.1) the kernel for rows takes beta^t for the next step before it uses it, so that a table's is given
    as that of a step before."""

    kernel = "paddle.optimizer.Adam (lazy_mode; of rows from beta^0 on, which its kernel is a step ahead of)"

    def __init__(self, network, recipe):
        betas = (recipe.beta1, recipe.beta2)
        settings = dict(zip(("beta1", "beta2"), betas), epsilon=recipe.eps, lazy_mode=True)
        super().__init__(recipe.learning_rate, parameters=network.parameters(), **settings)
        tables = [one.weight.name for one in network.sublayers() if isinstance(one, nn.Embedding)]
        state = {}  # as it would be saved before the first step
        for weight in network.parameters():
            for index, beta in enumerate(betas, 1):
                power = 1.0 if weight.name in tables else beta
                state[f"{weight.name}_moment{index}_0"] = paddle.zeros_like(weight)
                state[f"{weight.name}_beta{index}_pow_acc_0"] = paddle.full([1], power, weight.dtype)
        self.set_state_dict(state)


class ExactSGD:
    """Plain arithmetic for float64, in which the kernel of Momentum holds momentum and weight decay as float32."""

    def __init__(self, groups, recipe):
        self._momentum, self._rate = (exact(one) for one in (recipe.momentum, recipe.learning_rate))
        self._weights = [(weight, exact(group["weight_decay"])) for group in groups for weight in group["params"]]
        self._velocities = [paddle.zeros_like(weight) for weight, _ in self._weights]
        self._accumulators = {}  # of which none is looked at

    @paddle.no_grad()
    def step(self):
        for index, (weight, decay) in enumerate(self._weights):
            if weight.grad is None:  # of a tensor that is compressed
                continue
            velocity = self._momentum * self._velocities[index] + (weight.grad + decay * weight)
            self._velocities[index] = velocity
            weight.set_value(weight - self._rate * velocity)

    def clear_grad(self, set_to_zero):
        for weight, _ in self._weights:
            weight.clear_gradient(set_to_zero)


def exact(value):
    """As a tensor, since Paddle may take a number of Python's as float32."""
    return paddle.full([1], value, "float64")


def kernel(optimizer):
    """What updates the weights, in words."""
    if isinstance(optimizer, ExactSGD):
        return "plain arithmetic"
    if isinstance(optimizer, LazyAdam):
        return optimizer.kernel
    name = f"paddle.optimizer.{type(optimizer).__name__}"
    return f"{name} (multi-tensor)" if getattr(optimizer, "_use_multi_tensor", None) else name
