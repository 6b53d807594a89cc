"""What training of a network takes, by its name or its number of parameters. Pure."""

from __future__ import annotations

import re
from functools import cache

from dlperf import models
from dlperf.audit.cells import Cell, model_of

#: multiplications and additions of a forward pass over one image of 224 x 224, in 1e9: torchvision's tables of weights,
#: which call them GFLOPS; of VGG without batch normalization. By the name without signs, in small letters
FORWARD = {
    **{"resnet18": 1.81, "resnet34": 3.66, "resnet101": 7.80, "resnet152": 11.51},
    **{"resnext5032x4d": 4.23, "resnext10132x8d": 16.41, "resnext10164x4d": 15.46},
    **{"wideresnet502": 11.40, "wideresnet1012": 22.75},
    **{"vgg11": 7.61, "vgg13": 11.31, "vgg19": 19.63},
    **{"densenet121": 2.83, "densenet161": 7.73, "densenet169": 3.36, "densenet201": 4.29},
    **{"convnexttiny": 4.46, "convnextsmall": 8.68, "convnextbase": 15.36, "convnextlarge": 34.36},
    **{"efficientnetb0": 0.39, "mobilenetv2": 0.30},
    **{"vitb16": 17.56, "vitb32": 4.41, "vitl16": 61.55, "vitl32": 15.38},
    **{"swint": 4.49, "swins": 8.74, "swinb": 15.43},
}
#: other spellings of these names, without signs
SPELT = (
    (r"^(torchvision|tv|timm|keras)", ""),
    (r"(bn|v1b?|v15|synthetic|imagenet|1k|224|pytorch|uncased|cased|(pre)?train(ing)?)+$", ""),
    (r"^vit(base|large)(patch)?(16|32)$", lambda found: f"vit{found[1][0]}{found[3]}"),
    (r"^vit([bl])patch(16|32)$", r"vit\1\2"),
    (r"^swin(tiny|small|base).*", lambda found: f"swin{found[1][0]}"),
    (r"^(efficientnet)v1(b\d)$", r"\1\2"),
    (r"^rn(\d+)$", r"resnet\1"),
)
#: parameters, in 1e6, that multiply every token: without embeddings where a network predicts few of its tokens
PARAMETERS = {
    **{"bertbase": 86, "bertlarge": 303, "robertabase": 86, "robertalarge": 303},
    **{"gpt2": 124, "gpt2small": 124, "gpt2medium": 355, "gpt2large": 774, "gpt2xl": 1558},
}
#: a size in a name: 7B, 6.7b, 350M
NAMED = re.compile(r"(?<![\d.x×])(\d{1,4}(?:\.\d{1,3})?)[ -]?(b|bn|billion|m|million)(?![a-z0-9/])", re.IGNORECASE)
#: by which a number of parameters that stands in a name may be rounded: 70B of 65.3e9 or 1B of 1.24e9
ROUNDED = 1.1
#: of a unit, that it counts rows of text
TEXT = re.compile(r"seq|sentence", re.IGNORECASE)
MILLIONS, BILLIONS = 1e6, 1e9
#: of a network that does not multiply all parameters with every token, forth and back: experts, encoders beside
#: decoders, adapters, and what trains nothing; and of products in 8 bits, whose peak is another
PARTLY = re.compile(
    r"\bmoe\b|mixtral|experts?\b|switch|\boss\b|deepseek|dbrx|grok|kimi|olmoe|jamba|llama[- ]?4|"
    r"qwen3[- ]?next|glm[- ]?4\.5|\d ?x ?\d+b|a\d+b\b|t5\b|bart\b|gnmt|translat|transformer|whisper|nllb|marian|"
    r"lora\b|peft|adapter|frozen|freez|distill|infer|serving|generat|decod|prefill|(?<!no )(?<!without )"
    r"(?:fp8|int8|fp4|int4|8-?bit|4-?bit)",
    re.IGNORECASE,
)


@cache
def plain(name: str) -> str:
    """A name without signs, in small letters, as FORWARD and PARAMETERS have it."""
    made = re.sub(r"[^a-z0-9]+", "", name.lower())
    for pattern, to in SPELT:
        made = re.sub(pattern, to, made)
    return made


@cache
def known(name: str) -> str:
    """The name that dlperf.models has for a network, in whatever spelling; as it is where it has none."""
    found = model_of(name)
    return found if found in models.FAMILY_OF else OURS.get(plain(name), found)


#: names of dlperf.models without signs
OURS = {re.sub(r"[^a-z0-9]", "", name): name for name in models.NAMES}


def flops(one: Cell, what: str, sequence: int) -> float | None:
    """FLOPs of training with one of what is counted; None where that is not known."""
    figure = one.figure
    told = " ".join((figure.model, figure.system, figure.row, figure.column, figure.precision))
    if (found := _ours(figure.model, what, sequence)) is not None:
        return found if figure.options.get("image_size", "224") in ("224", "224x224") else None
    if what == "rows" and (forward := FORWARD.get(plain(figure.model))):
        square = figure.options.get("image_size", "224") in ("224", "224x224", "224 x 224")
        return 6e9 * forward if square and not PARTLY.search(told) else None
    if not one.size and not one.of_each:
        return None
    size, _ = parameters(one)
    text = TEXT.search(figure.column) or TEXT.match(figure.unit)
    if not size or PARTLY.search(told) or (what == "rows" and not (sequence and text)):
        return None
    return 6 * size * {"tokens": 1, "rows": sequence}[what] if what in ("tokens", "rows") else None


def parameters(one: Cell) -> tuple[float | None, bool]:
    """How many a network has, and whether a column says so: a name rounds it."""
    told = one.figure.options.get("parameters", "")
    if told:
        return float(told), True
    if known := PARAMETERS.get(plain(one.figure.model)):
        return known * MILLIONS, True
    for text in (one.figure.model, one.figure.system):
        sizes = {float(found[1]) * (BILLIONS if found[2][0] in "bB" else MILLIONS) for found in NAMED.finditer(text)}
        if sizes:  # 7B, and 6.74B
            return (max(sizes, key=_digits) if max(sizes) < ROUNDED * min(sizes) else None), False
    return None, False


def _digits(size: float) -> int:
    return len(f"{size:.12g}".strip("0"))


@cache
def _ours(named: str, what: str, sequence: int) -> float | None:
    """Of one of what is counted, for a network of dlperf.models. Of text whose length is not known the shortest that it
    has; of tokens of a translation half, since both languages' may be counted. None of those that are bound by rows of
    a table, whatever their products take."""
    model = known(named)
    if (
        model not in models.FAMILY_OF
        or models.FAMILY_OF[model].endswith("cifar")
        or hasattr(models.family(model), "BUSY")
    ):
        return None
    lengths = models.lengths(model)
    if sequence in lengths:
        model = lengths[sequence]
    elif lengths and sequence:
        model = lengths[max((one for one in lengths if one <= sequence), default=min(lengths))]
    if what == "rows":
        return models.flops(model) if models.units(model) == 1 else None
    if what == "tokens" and models.units(model) > 1:
        both = 2 if models.family(model).COUNTED else 1
        return models.flops(model) / models.units(model) / both
    return None


def of_products(one: Cell) -> bool:
    """Whether it is of products of matrices, and no convolutional network."""
    model = plain(one.figure.model)
    if model in FORWARD:
        return model.startswith(("vit", "swin"))
    return models.FAMILY_OF.get(known(one.figure.model), "") not in ("resnet", "vgg", "vgg_cifar")


def of_threes(one: Cell) -> bool:
    """Whether all but a hundredth of its FLOPs are convolutions of 3 x 3."""
    return plain(one.figure.model).startswith("vgg")


def stated(told: str, head: str) -> float | None:
    """Parameters by a cell and its heading: 6.7 under `params (B)`, 350M, 25557032; None where no unit is told."""
    found = re.fullmatch(r"~?(\d+(?:\.\d+)?) ?([bBmMkK])?\w*", told.replace(",", "").strip())
    if not found:
        return None
    unit = (found[2] or "").lower()
    words = re.split(r"[^a-z]+", head.lower())
    if not unit:
        unit = next((one for one, names in UNITS.items() if names & set(words)), "")
    number = float(found[1]) * {"b": BILLIONS, "m": MILLIONS, "k": 1e3, "": 1.0}[unit]
    return number if number >= MILLIONS else None


UNITS = {"b": {"b", "bn", "billion", "billions"}, "m": {"m", "mio", "million", "millions"}}
