"""The fake framework's "BERT": the same sleep, another family."""

from dlperf.adapters.fake.resnet import build, product, serve, versions

__all__ = ["build", "product", "serve", "versions"]
