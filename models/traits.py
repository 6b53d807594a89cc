"""What a family of models is: the contract of `models/<family>.py`, and what is wrong with a module that breaks it.

A family is a module of this package with a function `parameters`. Its name is the family's; `adapters/<framework>/` has
a module of the same name for each family that the framework trains. Nothing else knows families by name.
"""

import inspect
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

if TYPE_CHECKING:  # Protocol is missing in Python 3.7
    from typing import Protocol

    from numpy.typing import NDArray

    from dlperf.models.parameters import Parameter
else:
    Protocol = object


class Family(Protocol):
    """The traits of a family; each module has all of them. `config` is one of SIZES, a NamedTuple.

    SIZES: name -> config. The first one is what the family is known by; <family>_tiny trains in a moment, for tests.
        Each X has a twin X_check: the same network and weights on smaller input, for checking in float64; where that
        would take too much memory with fewer `layers`, which reports say.
    TITLES: name -> title in reports, for the sizes that --help lists; those without one go by their names.
    ALIASES: other names that --model takes -> name. DEFAULT: the name of the family's model in a comparison without
        --model; empty where it has none there.
    SAMPLE: what the report counts, in the plural: "images"; a row of a batch has `units` of them. RATE_UNIT: of so
        many in a second: "img/s".
    BATCH_SIZE: per device, where none is asked: {"cuda": {"fp32": N, "tf32": N, "amp": N}, "cpu": N}, or
        "cpu": {size: N} of all sizes.
    INPUT: the module of dlperf.models that reads its data folders, an Input: "photos". Empty for a family that has
        synthetic batches alone.
    EFFECTIVE: keys that `Trainer.effective` has besides those of dlperf.adapters.api. WORK: keys of it, and options,
        that say what work was done, besides those of dlperf.proof.judge; all others say how. MEANINGS: what the report
        says of each of these, and of others that adapters may have, in one sentence each.
    TOTALS: sums over the global batch, divided by the number of ranks, that each rank has with its own batch, float64
        (): name -> the array that is summed. For a loss whose mean is over something that batches differ in.
    COUNTED: of a data folder whose rows differ in how many of SAMPLE they have: the array of a batch whose sum it is.
        Empty where each row has `units`.
    SMOOTH: whether none of its operations has a kink or a jump, as a ReLU or a maximum has, where rounding decides.
    """

    SIZES: Mapping[str, Any]
    TITLES: Mapping[str, str]
    ALIASES: Mapping[str, str]
    DEFAULT: str
    SAMPLE: str
    RATE_UNIT: str
    BATCH_SIZE: Mapping[str, Any]
    INPUT: str
    EFFECTIVE: Tuple[str, ...]
    WORK: Tuple[str, ...]
    MEANINGS: Mapping[str, str]
    TOTALS: Mapping[str, str]
    COUNTED: str
    SMOOTH: bool

    def parameters(self, config: Any) -> "List[Parameter]":
        """Every tensor, statistics too, in the order of the forward pass."""

    def revealing(self, config: Any) -> "List[Parameter]":
        """The same tensors with other initial values, from which a run shows what rounding hides in one from those of
        `parameters`: with an epsilon beside variances as small, a nonlinear function where it is least linear."""

    def optimizer(self, global_batch_size: int) -> Any:
        """The optimizer's values, a NamedTuple whose docstring is its formula."""

    def batch(self, config: Any, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
        """Synthetic batch number `index`: arrays by name, batch axis first."""

    def logits(self, config: Any) -> Dict[str, Tuple[int, ...]]:
        """The network's outputs: name -> shape without the batch axis."""

    def samples(self, config: Any) -> str:
        """The rows of a batch in words: "images of 224 x 224"."""

    def units(self, config: Any) -> int:
        """How many of SAMPLE a row of a batch has: 1 image; the tokens of a text."""

    def first_loss(self, config: Any) -> Tuple[float, float]:
        """What the first step's loss must be, and the share of it that random weights and a small batch may move it."""

    def shapes(self, config: Any) -> Dict[str, Tuple[int, ...]]:
        """What `Trainer.shapes` shows, which tells this network from others with the same parameters: name -> shape
        without the batch axis, channels first."""

    def observed(self, shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
        """Keys of `Trainer.effective` that its shapes show, with their values: those that ran, whatever it says."""

    def flops(self, config: Any) -> Dict[str, int]:
        """Floating-point operations of one training step for one row, by what they are for: "convolution",
        "product", "attention", of KINDS of dlperf.adapters.profiling."""

    def activations(self, config: Any) -> int:
        """Values of one row that a step keeps for its gradients, roughly."""

    def normalised(self, config: Any) -> Dict[str, int]:
        """Each BatchNorm, and how many values of one row it takes the statistics of a channel from; empty without
        BatchNorm. They are each rank's own. A config with BatchNorm has `bn_decay`."""


class Epoch(Protocol):
    """The batches of one rank, read from a data folder once."""

    def __len__(self) -> int:
        """Batches."""

    def __getitem__(self, index: int) -> "Dict[str, NDArray[Any]]":
        """Arrays by name, batch axis first, as `batch` of the family gives them."""

    def total(self, index: int, field: str) -> float:
        """The sum of an array over the whole global batch."""


class Input(Protocol):
    """What a data folder must be, and how it is read: the contract of the module that INPUT of a family names.

    COMMAND: what makes such folders: "python -m dlperf.data imagenet".
    FORMATS: those that a folder may have its samples in, for the loaders of frameworks, which adapters bring. Empty
        where Rows reads a folder for all of them.
    Rows: only where FORMATS is empty. Called with data_dir, config, batch_size, rank, world_size and seed.
    """

    COMMAND: str
    FORMATS: Tuple[str, ...]
    Rows: Callable[[str, Any, int, int, int, int], Epoch]

    def formats(self, data_dir: str) -> List[str]:
        """Those of FORMATS that a folder has; none if it cannot be read, for which `check` has the reason."""

    def check(self, data_dir: str, config: Any, global_batch_size: int, formats: Sequence[str]) -> List[str]:
        """What keeps a model from training on a folder, from any of these formats: a list of sentences, empty if
        nothing. Reads no sample."""


class Wrong(NamedTuple):
    """A trait that cannot be used: its name, "dlperf.models.toy.SAMPLE", what it is, and what it may be."""

    trait: str
    value: object
    allowed: str


def wrong(module: ModuleType, others: Mapping[str, Family]) -> List[Wrong]:
    """All that keeps a module from being a family beside others; empty if nothing does."""
    found = []
    for name, (allowed, fits) in {**_attributes(module), **_functions()}.items():
        value = getattr(module, name, "")
        if not _holds(fits, value):
            found.append(Wrong(f"{module.__name__}.{name}", value, allowed))
    for name, other in () if found else others.items():
        for taken in sorted(_names(module) & _names(other)):
            found.append(Wrong(f"{module.__name__}.SIZES", taken, f"names that no other family has; {name} has it"))
    return found


def _names(family: Any) -> Set[str]:
    """All that --model takes for a family."""
    return {*family.SIZES, *family.ALIASES}


def _holds(fits: Callable[[Any], bool], value: object) -> bool:
    try:
        return fits(value)
    except Exception:  # a value of another type raises whatever was asked of it
        return False


_Check = Tuple[str, Callable[[Any], bool]]


def _attributes(module: ModuleType) -> Dict[str, _Check]:
    """What each attribute may be, in words, and whether a value is that."""
    family = module.__name__.rpartition(".")[2]
    sizes, aliases = (getattr(module, name, {}) for name in ("SIZES", "ALIASES"))
    named = f"a dict of name -> config with {family}_tiny, and with X_check for each X"
    batches = 'whole numbers from 1: {"cuda": {"fp32": N, "tf32": N, "amp": N}, "cpu": N, or {size: N} of all sizes}'
    return {
        "SIZES": (named, lambda value: _paired(value) and f"{family}_tiny" in value),
        "TITLES": ("a dict of names in SIZES -> texts", lambda value: _texts(value) and set(value) <= set(sizes)),
        "ALIASES": (
            "a dict of other names -> names in SIZES",
            lambda value: _texts(value) and set(value.values()) <= set(sizes) and not set(value) & set(sizes),
        ),
        "DEFAULT": ("a name in SIZES or ALIASES, or empty", lambda value: value in {"", *sizes, *aliases}),
        "SAMPLE": ('a text in the plural: "images"', lambda value: _text(value) and value.endswith("s")),
        "RATE_UNIT": ('a text: "img/s"', _text),
        "BATCH_SIZE": (batches, lambda value: _batch_sizes(value, sizes)),
        "INPUT": (
            f'{", ".join(_INPUT)}, and Rows without FORMATS, in a module of dlperf.models: "photos"; or empty',
            lambda value: value == "" or _reads(module, value),
        ),
        "EFFECTIVE": ("a tuple of texts", _tuple),
        "WORK": ("a tuple of texts", _tuple),
        "MEANINGS": (
            "a dict of keys, those in EFFECTIVE and WORK too -> texts",
            lambda value: _texts(value) and {*module.EFFECTIVE, *module.WORK} <= set(value),
        ),
        "TOTALS": ("a dict of new array -> array of `batch`", _texts),
        "COUNTED": ("an array of `batch`, or empty", lambda value: isinstance(value, str)),
        "SMOOTH": ("True or False", lambda value: isinstance(value, bool)),
    }


#: what every Input has
_INPUT = ("COMMAND", "FORMATS", "formats", "check")


def _reads(family: ModuleType, name: str) -> bool:
    """Whether a module beside this one is an Input."""
    found = import_module(f"{family.__name__.rpartition('.')[0]}.{name}")
    return all(hasattr(found, one) for one in _INPUT) and (bool(found.FORMATS) or hasattr(found, "Rows"))


def _functions() -> Dict[str, _Check]:
    """The functions, with the names of their arguments."""
    found = {}
    for name, function in vars(Family).items():
        if inspect.isfunction(function):
            arguments = list(inspect.signature(function).parameters)[1:]
            found[name] = f"a function {name}({', '.join(arguments)})", _takes(arguments)
    return found


def _takes(arguments: List[str]) -> Callable[[Any], bool]:
    return lambda value: callable(value) and list(inspect.signature(value).parameters) == arguments


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(_text(key) and _text(one) for key, one in value.items())


def _tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(_text(one) for one in value)


def _paired(sizes: Mapping[str, Any]) -> bool:
    usual = {name for name in sizes if not name.endswith("_check")}
    return set(sizes) == usual | {name + "_check" for name in usual}


def _batch_sizes(value: object, sizes: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict) or set(value) != {"cuda", "cpu"} or not isinstance(value["cuda"], dict):
        return False
    of_sizes = value["cpu"] if isinstance(value["cpu"], dict) else dict.fromkeys(sizes, value["cpu"])
    if not {name for name in sizes if not name.endswith("_check")} <= set(of_sizes) <= set(sizes):
        return False
    counts = [*of_sizes.values(), *value["cuda"].values()]
    return set(value["cuda"]) == {"fp32", "tf32", "amp"} and all(isinstance(n, int) and n >= 1 for n in counts)
