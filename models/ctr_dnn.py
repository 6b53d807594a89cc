"""CTR-DNN, a network that predicts clicks on advertisements: its optimizer and its synthetic batches.

As PaddlePaddle's FleetX and its TensorFlow twin trained it on parameter servers (2019,
deprecated/benchmark/ps/distribute_ctr) on Criteo's data: 13 numbers and 26 features of categories, hashed into one
shared table of 1,000,001 rows of 10 values.

    x = the 26 rows beside the 13 numbers: 273 values
    three dense layers of 400 with ReLU, one of 2; cross-entropy with "clicked" or "not clicked"

The scripts add the losses of a batch up and call it avg_cost; here it is their mean, of which Adam makes the same step,
but for its epsilon. A step changes the rows that its batch has, and no others: their moments, too ("lazy" Adam).
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, dense, random_state
from dlperf.models.zipf import zipf

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    """vocabulary, width: rows of the table, which all `slots` share, and values of each."""

    vocabulary: int = 1000001
    width: int = 10
    slots: int = 26
    numbers: int = 13
    hidden: int = 400


SIZES = {
    "ctr_dnn": Config(),
    "ctr_dnn_tiny": Config(vocabulary=600, width=4, slots=5, numbers=3, hidden=24),
}
#: for checking in float64, which has the sketches of whole tables: the same network over fewer rows
SIZES.update({name + "_check": one._replace(vocabulary=min(one.vocabulary, 20000)) for name, one in SIZES.items()})

TITLES = {"ctr_dnn": "CTR-DNN"}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
#: what the report counts, and its unit
SAMPLE = "examples"
RATE_UNIT = "examples/s"
BATCH_SIZE = {"cuda": {"fp32": 1000, "tf32": 1000, "amp": 1000}, "cpu": 1000}
INPUT = "clicks"
EFFECTIVE = ("tables",)
WORK = ("features",)
MEANINGS = {
    "features": "Numbers and categories of an example.",
    "tables": "What a step changes: the rows that it has looked up, or whole tables.",
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
#: a step takes milliseconds, on a CPU too
FAST = True
SMOOTH = False

#: Zipf's exponent of synthetic categories
EXPONENT = 1.0
#: of examples that are clicked, the share: a quarter of Criteo's are
CLICKED = 0.25
#: of the table, rows from the first that most lookups are of: of these measured runs show values, since a step leaves
#: nearly all others as they are
BUSY = 512
#: layers behind the table
LAYERS = ("fc1", "fc2", "fc3", "fc4")


class Optimizer(NamedTuple):
    """Adam (Kingma and Ba, 2014), with bias correction, of the t-th step:

    m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2
    w -= learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Of the table only the rows that the step has looked up: the others keep w, m and v as they are.
    """

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. 10,431,212 trained values, of which 431,202 are in dense layers.

    The table starts as spread as uniform values from -1 to 1, dense layers of n inputs with a deviation of n^-1/2, as
    in the scripts."""
    sides = [config.slots * config.width + config.numbers, *[config.hidden] * 3, 2]
    found = [Parameter("emb.weight", (config.vocabulary, config.width), "embedding", 3**-0.5)]
    for name, inputs, outputs in zip(LAYERS, sides, sides[1:]):
        found += dense(name, inputs, outputs, inputs**-0.5)
    return found


def revealing(config: Config) -> List[Parameter]:
    """Biases that are not zero, and gradients that are not small beside Adam's epsilon: wide last layers."""
    inits: Dict[str, Init] = {"bias": 0.2}
    return [one._replace(init=inits.get(one.kind, one.init)) for one in parameters(config)]


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`. Categories are as frequent as Zipf's law has them in each slot, whose rows are
    each as many of the table: row r is of slot r % slots. Hashing would scatter them; so their first rows are together.

    Returns numbers: float32 (batch_size, config.numbers), from 0 to 1; categories: int32 (batch_size, config.slots),
    rows of the table; clicked: int32 (batch_size,), 0 or 1.
    """
    import numpy

    random = random_state(seed, f"ctr_dnn batch {index}")
    numbers = random.random_sample((batch_size, config.numbers)).astype("float32")
    ranks = zipf(config.vocabulary // config.slots, EXPONENT, random.random_sample((batch_size, config.slots)))
    categories = ranks * config.slots + numpy.arange(config.slots, dtype="int32")
    clicked = (random.random_sample(batch_size) < CLICKED).astype("int32")
    return {"numbers": numbers, "categories": categories, "clicked": clicked}


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis. Of "not clicked" and "clicked"."""
    return {"logits": (2,)}


def samples(config: Config) -> str:
    return f"examples of {config.numbers} numbers and {config.slots} categories"


def units(config: Config) -> int:
    return 1


def first_loss(config: Config) -> Tuple[float, float]:
    """About that of a guess, more by the spread of random logits, whose inputs have lost half of their squares in each
    ReLU."""
    return math.log(2), 0.3


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The logits, and the numbers and categories of an example."""
    return {**logits(config), "numbers": (config.numbers,), "categories": (config.slots,)}


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """How many numbers and categories an example has."""
    found = [tuple(shapes.get(name, ())) for name in ("numbers", "categories")]
    if any(len(one) != 1 for one in found):
        return {}
    return {"features": "{} numbers and {} categories".format(*(one[0] for one in found))}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one example: 3 times the forward pass, 2 per multiply-add, of
    the dense layers: 2,580,000."""
    return {"product": 3 * sum(2 * one.size for one in parameters(config) if one.kind == "dense")}


def normalised(config: Config) -> Dict[str, int]:
    """No BatchNorm."""
    return {}


def activations(config: Config) -> int:
    """Values of one example that a step keeps for its gradients: its inputs and those of each layer."""
    return config.slots * config.width + config.numbers + 3 * config.hidden + 2
