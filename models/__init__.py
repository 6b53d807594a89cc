"""What the models are, independent of any framework: sizes, parameter names and shapes, weights, batches, FLOPs.

Both sides import this package: the core, and every worker (Python >= 3.7, standard library and numpy only).

    family    module                 sizes
    resnet    dlperf.models.resnet   resnet50, resnet_tiny
    bert      dlperf.models.bert     bert_base, bert_large, bert_tiny

Each size X has a twin X_check: the same network and weights on smaller input, for checking in float64.
"""

from dlperf.models import bert, resnet

FAMILIES = {"resnet": resnet, "bert": bert}
ALIASES = {"bert": "bert_base"}

#: every model's name -> its family's name
FAMILY_OF = {size: family for family, module in FAMILIES.items() for size in module.SIZES}
#: the models that can be asked for
NAMES = tuple(name for name in FAMILY_OF if not name.endswith("_check"))


def family(model):
    """The module of a model's family, e.g. `bert` for "bert_base". KeyError for an unknown model."""
    return FAMILIES[FAMILY_OF[model]]


def config(model):
    """The sizes of a model, e.g. `bert.Config` for "bert_base". KeyError for an unknown model."""
    return family(model).SIZES[model]
