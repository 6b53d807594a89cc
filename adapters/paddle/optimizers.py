"""The optimizers of PaddlePaddle."""

import paddle
from paddle import nn

from dlperf.adapters.base import parameter_groups, parameters


def sgd(job, network, recipe):
    """As dlperf.models.resnet.Optimizer says."""
    return paddle.optimizer.Momentum(
        learning_rate=recipe.learning_rate,
        momentum=recipe.momentum,
        parameters=parameter_groups(network, job, recipe.weight_decay),
    )


def adamw(job, network, recipe):
    """As dlperf.models.bert.Optimizer says, clipping included."""
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
