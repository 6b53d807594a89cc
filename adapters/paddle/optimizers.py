"""The optimizers of PaddlePaddle."""

import paddle
from paddle import nn

from dlperf.adapters.base import parameter_groups, parameters


def sgd(job, network, recipe):
    """As dlperf.models.resnet.Optimizer says. On CUDA one kernel updates all tensors of a group; it has no float64."""
    return paddle.optimizer.Momentum(
        learning_rate=recipe.learning_rate,
        momentum=recipe.momentum,
        parameters=parameter_groups(network, job, recipe.weight_decay),
        use_multi_tensor=job.device == "cuda" and job.weights_dtype == "float32",
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


def kernel(optimizer):
    """What updates the weights, in words."""
    name = f"paddle.optimizer.{type(optimizer).__name__}"
    return f"{name} (multi-tensor)" if getattr(optimizer, "_use_multi_tensor", None) else name
