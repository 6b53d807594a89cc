"""Parameters as every framework must hold them: canonical names, shapes, layouts and initial values."""

import zlib
from typing import TYPE_CHECKING, Any, Iterable, List, NamedTuple, Tuple, Union

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray

#: kinds of parameter that weight decay applies to: weights of convolutions, dense layers and embeddings
DECAYED = frozenset(["conv", "dense", "embedding"])
#: kinds that are state, not trained
STATISTICS = frozenset(["running_mean", "running_var", "idle_mean"])
#: kinds that the work leaves open: biases that BatchNorm takes away again, whose gradients are rounding alone, which
#: Adam makes as large as any; and the running means that have these biases in them
IDLE = frozenset(["idle_bias", "idle_mean"])
#: values that `initial` draws at once
BLOCK = 2**20
#: all rows of a tensor
ALL = slice(None)


#: see `Parameter.init`
Init = Union[str, float, Tuple[float, float]]


class Parameter(NamedTuple):
    """One tensor of a model.

    shape: conv (out, in, height, width); dense (out, in); embedding (rows, width); all others (width,).
    kind: conv | dense | embedding | bias | scale | shift | running_mean | running_var | idle_bias | idle_mean; `scale`
    and `shift` are gamma and beta of BatchNorm and LayerNorm.
    init: "zeros", "ones", or the standard deviation of a normal distribution, or its mean and its deviation.
    """

    name: str
    shape: Tuple[int, ...]
    kind: str
    init: Init

    @property
    def trained(self) -> bool:
        return self.kind not in STATISTICS

    @property
    def decayed(self) -> bool:
        """Whether weight decay applies: not to biases, nor to BatchNorm's or LayerNorm's scale and shift."""
        return self.kind in DECAYED

    @property
    def settled(self) -> bool:
        """Whether two that do the same work have it alike: not where rounding decides, see IDLE."""
        return self.kind not in IDLE

    @property
    def size(self) -> int:
        size = 1
        for side in self.shape:
            size *= side
        return size


def dense(name: str, inputs: int, outputs: int, deviation: float = 0.02) -> List[Parameter]:
    """Weight and bias of a dense layer."""
    return [
        Parameter(name + ".weight", (outputs, inputs), "dense", deviation),
        Parameter(name + ".bias", (outputs,), "bias", "zeros"),
    ]


def norm(name: str, width: int) -> List[Parameter]:
    """Scale and shift of a LayerNorm."""
    return [
        Parameter(name + ".weight", (width,), "scale", "ones"),
        Parameter(name + ".bias", (width,), "shift", "zeros"),
    ]


def batch_norm(name: str, channels: int, scale: str = "ones") -> List[Parameter]:
    """Scale, shift and running statistics of a BatchNorm."""
    return [
        Parameter(name + ".weight", (channels,), "scale", scale),
        Parameter(name + ".bias", (channels,), "shift", "zeros"),
        Parameter(name + ".running_mean", (channels,), "running_mean", "zeros"),
        Parameter(name + ".running_var", (channels,), "running_var", "ones"),
    ]


def count(parameters: Iterable[Parameter]) -> int:
    """Number of trained values, BatchNorm's running statistics left out."""
    return sum(parameter.size for parameter in parameters if parameter.trained)


def initial(parameter: Parameter, seed: int, dtype: str = "float32", rows: slice = ALL) -> "NDArray[Any]":
    """The initial value of one parameter, the same in every framework and numpy; or some rows of it, ascending, which
    take no more memory than these.

    Depends on the seed and the name only, not on the order in which tensors are made; RandomState is frozen by
    numpy (NEP 19), so old and new versions give the same numbers.
    """
    import numpy

    chosen = range(*rows.indices(parameter.shape[0]))
    shape = (len(chosen), *parameter.shape[1:])
    if isinstance(parameter.init, str):
        return numpy.full(shape, {"zeros": 0, "ones": 1}[parameter.init], dtype)
    random = random_state(seed, parameter.name)
    width = parameter.size // parameter.shape[0]
    found, filled, block = numpy.empty((len(chosen), width), dtype), 0, max(1, BLOCK // width)
    mean, deviation = parameter.init if isinstance(parameter.init, tuple) else (0.0, parameter.init)
    for start in range(
        0, chosen.stop, block
    ):  # the generator goes on where it was: of blocks it draws what it would of all
        values = random.standard_normal((min(block, parameter.shape[0] - start), width))
        values *= deviation
        if mean:
            values += mean
        ahead = chosen.start - start
        mine = values[ahead if ahead > 0 else ahead % chosen.step : chosen.stop - start : chosen.step]
        # float32 first, so that a float64 run starts from exactly the numbers of a float32 run
        found[filled : filled + len(mine)] = mine.astype("float32")
        filled += len(mine)
    return found.reshape(shape)


def places(name: str, size: int, most: int) -> "Union[slice, NDArray[Any]]":
    """Of the `size` values of one named tensor the same `most`, wherever they are asked for; all of a smaller one."""
    return random_state(0, name).randint(0, size, most) if size > most else slice(None)


def random_state(seed: int, name: str) -> "RandomState":
    """numpy's frozen generator for one named thing."""
    import numpy

    return numpy.random.RandomState([seed & 0xFFFFFFFF, zlib.crc32(name.encode("utf-8")) & 0xFFFFFFFF])
