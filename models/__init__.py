"""What the models are, independent of any framework: sizes, parameter names and shapes, weights, batches, FLOPs.

Both sides import this package: the core, and every worker (Python >= 3.7, standard library and numpy only).
numpy is imported where it is used, so that commands that compute nothing start at once.

    resnet        ResNet-50 v1.5, SE-ResNet-50, SE-ResNeXt-50
    vgg           VGG16
    vgg_cifar     VGG16 for CIFAR-10
    bert          BERT-base and BERT-large
    gpt           GPT-2
    transformer   Transformer base and big, for translation

`dlperf.models.traits` says what a family's module has; whoever has that is found. Each size X has a twin X_check: the
same network and weights on smaller input, for checking in float64.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Dict, List, Optional, Tuple, cast

from dlperf.models.traits import Family, Input, Wrong, wrong

#: rows of these families come first, in this order, and then those of the others, by name
_FIRST = ("resnet", "bert")


def _found() -> Tuple[Dict[str, Family], List[Wrong]]:
    """The families by name, in the order of rows, and what is wrong with others."""
    modules = {one.name: import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__)}
    names = [
        name for name in (*_FIRST, *sorted(set(modules) - set(_FIRST))) if hasattr(modules.get(name), "parameters")
    ]
    sound: Dict[str, Family] = {}
    problems: List[Wrong] = []
    for name in names:
        found = wrong(modules[name], sound)
        problems += found
        if not found:
            sound[name] = cast(Family, modules[name])
    return sound, problems


#: families by name; and what keeps modules from being one, for `dlperf.catalog.reader` to say
FAMILIES, PROBLEMS = _found()
#: other names of models
ALIASES = {alias: size for module in FAMILIES.values() for alias, size in module.ALIASES.items()}
#: names of several models: one of each network and size that people compare; what PaddlePaddle's reports of collective
#: training measured
GROUPS: Dict[str, Tuple[str, ...]] = {
    "all": (
        "resnet50",
        "se_resnet50",
        "se_resnext50",
        "vgg16",
        "vgg16_cifar",
        "bert_base",
        "bert_large",
        "gpt2",
        "transformer",
    ),
    "collective": ("resnet50", "se_resnext50", "vgg16", "bert_large", "transformer"),
}
#: every model's name -> its family's name
FAMILY_OF = {size: family for family, module in FAMILIES.items() for size in module.SIZES}
#: the models that can be asked for
NAMES = tuple(name for name in FAMILY_OF if not name.endswith("_check"))
#: fields of a config that say how long a row is, and how much of it counts
_OF_LENGTH = ("sequence", "masked", "tokens")


def _input(family: Family) -> Optional[Input]:
    return cast(Input, import_module(f"{__name__}.{family.INPUT}")) if family.INPUT else None


#: all that data folders may have their samples in
FORMATS = tuple(dict.fromkeys(one for found in map(_input, FAMILIES.values()) if found for one in found.FORMATS))


def fast(model: str) -> bool:
    """Whether a step takes milliseconds, on a CPU too."""
    return bool(getattr(family(model), "FAST", False))


def family(model: str) -> Family:
    """The module of a model's family, e.g. `bert` for "bert_base". KeyError for an unknown model."""
    return FAMILIES[FAMILY_OF[model]]


def config(model: str) -> Any:
    """The sizes of a model, e.g. `bert.Config` for "bert_base". KeyError for an unknown model."""
    return family(model).SIZES[model]


def units(model: str) -> int:
    """How many of what the report counts a row of a batch has. KeyError for an unknown model."""
    return family(model).units(config(model))


def lengths(model: str) -> Dict[int, str]:
    """Tokens of a row -> the size of the same network that has them; empty without tokens. KeyError for an unknown
    model."""
    sizes, given = family(model).SIZES, config(model)
    if not hasattr(given, "sequence"):
        return {}
    alike = [name for name in NAMES if name in sizes and _but_length(sizes[name]) == _but_length(given)]
    return {sizes[name].sequence: name for name in alike}


def _but_length(config: Any) -> Dict[str, Any]:
    return {field: value for field, value in config._asdict().items() if field not in _OF_LENGTH}


def flops(model: str) -> int:
    """Floating-point operations of one training step for one row of a batch. KeyError for an unknown model."""
    return sum(family(model).flops(config(model)).values())


def moments(model: str) -> int:
    """How many values the optimizer keeps of each weight: two of Adam, one of momentum. KeyError for an unknown
    model."""
    recipe = family(model).optimizer(1)
    return 2 if hasattr(recipe, "beta2") else int(getattr(recipe, "momentum", 0.0) > 0)


def input_of(model: str) -> Optional[Input]:
    """What reads a model's data folders; None if it has synthetic batches alone. KeyError for an unknown model."""
    return _input(family(model))
