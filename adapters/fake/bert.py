"""The fake framework's "BERT": the same sleep, another family."""

from dlperf.adapters.fake.resnet import build, product, versions

__all__ = ["build", "product", "versions"]
