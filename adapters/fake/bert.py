"""The fake framework's "BERT": the same sleep, another family."""

from dlperf.adapters.fake.resnet import build, versions

__all__ = ["build", "versions"]
