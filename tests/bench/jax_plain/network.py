"""ResNet-50 v1.5 as users of flax write it, for machines without jax-resnet."""

from functools import partial

import jax.numpy as jnp
from flax import linen as nn


class Block(nn.Module):
    width: int
    stride: int
    conv: type
    norm: type

    @nn.compact
    def __call__(self, x):
        strides = (self.stride, self.stride)
        y = nn.relu(self.norm()(self.conv(self.width, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.width, (3, 3), strides)(y)))
        y = self.norm(scale_init=nn.initializers.zeros)(self.conv(4 * self.width, (1, 1))(y))
        if x.shape != y.shape:
            x = self.norm()(self.conv(4 * self.width, (1, 1), strides)(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    n_classes: int
    conv_cls: type
    norm_cls: type

    @nn.compact
    def __call__(self, images):
        conv = partial(self.conv_cls, use_bias=False)
        norm = partial(self.norm_cls, use_running_average=False)
        x = nn.relu(norm()(conv(64, (7, 7), (2, 2), padding=3)(images)))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                x = Block(64 * 2**stage, stride, conv, norm)(x)
        x = jnp.mean(x, axis=(1, 2), dtype=jnp.float32)
        return nn.Dense(self.n_classes, dtype=jnp.float32)(x)
