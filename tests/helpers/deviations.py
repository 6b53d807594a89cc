"""The deliberate deviations of tests/conformance/deviations.toml."""

import tomllib
from pathlib import Path

DEVIATIONS = tomllib.loads((Path(__file__).parents[1] / "conformance" / "deviations.toml").read_text())["deviation"]
#: models whose measured runs are held to NumPy, and the steps of those from revealing weights
REVEALED = {
    "resnet_tiny": 2,
    "se_resnext_tiny": 2,
    "bert_tiny": 6,
    "gpt_tiny": 6,
    "transformer_tiny": 2,
    "transformer_post_tiny": 2,
    "vgg_tiny": 2,
    "vgg_cifar_tiny": 2,
}


def model_of(case):
    return case.get("model", f"{case['family']}_tiny")
