"""Parameters as every framework must hold them: canonical names, shapes, layouts and initial values."""

import zlib
from typing import NamedTuple, Tuple

import numpy

#: kinds of parameter that weight decay applies to: weights of convolutions, dense layers and embeddings
DECAYED = frozenset(["conv", "dense", "embedding"])
#: kinds that are state, not trained
STATISTICS = frozenset(["running_mean", "running_var"])


class Parameter(NamedTuple):
    """One tensor of a model.

    shape: conv (out, in, height, width); dense (out, in); embedding (rows, width); all others (width,).
    kind: conv | dense | embedding | bias | scale | shift | running_mean | running_var; `scale` and `shift` are
    gamma and beta of BatchNorm and LayerNorm.
    init: "zeros", "ones", or the standard deviation of a normal distribution.
    """

    name: str
    shape: Tuple[int, ...]
    kind: str
    init: object

    @property
    def trained(self):
        return self.kind not in STATISTICS

    @property
    def decayed(self):
        """Whether weight decay applies: not to biases, nor to BatchNorm's or LayerNorm's scale and shift."""
        return self.kind in DECAYED

    @property
    def size(self):
        return int(numpy.prod(self.shape))


def count(parameters):
    """Number of trained values, BatchNorm's running statistics left out."""
    return sum(parameter.size for parameter in parameters if parameter.trained)


def initial(parameter, seed, dtype="float32"):
    """The initial value of one parameter, the same in every framework and numpy.

    Depends on the seed and the name only, not on the order in which tensors are made; RandomState is frozen by
    numpy (NEP 19), so old and new versions give the same numbers.
    """
    if parameter.init == "zeros":
        return numpy.zeros(parameter.shape, dtype)
    if parameter.init == "ones":
        return numpy.ones(parameter.shape, dtype)
    random = random_state(seed, parameter.name)
    values = random.standard_normal(parameter.size)
    values *= parameter.init
    # float32 first, so that a float64 run starts from exactly the numbers of a float32 run
    return values.astype("float32").astype(dtype).reshape(parameter.shape)


def random_state(seed, name):
    """numpy's frozen generator for one named thing."""
    return numpy.random.RandomState([seed & 0xFFFFFFFF, zlib.crc32(name.encode("utf-8")) & 0xFFFFFFFF])
