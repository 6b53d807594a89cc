"""What GPUs reach at most, by the names that nvidia-smi gives them."""

import pytest

from dlperf.figures import peaks
from dlperf.schema import Job


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("Tesla V100-SXM2-16GB", "amp_fp16", 125.0),
        ("Tesla V100-SXM2-16GB", "tf32", None),
        ("Tesla T4", "fp32", 8.1),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156.0),
        ("NVIDIA A10", "amp_bf16", 125.0),
        ("NVIDIA L4", "amp_fp16", 121.0),
        ("NVIDIA L40S", "amp_fp16", 366.0),
        ("NVIDIA H100 80GB HBM3", "amp_bf16", 990.0),
        ("NVIDIA H100 PCIe", "amp_bf16", 756.0),
        ("NVIDIA H200", "fp32", 67.0),
        ("NVIDIA GeForce RTX 4090", "amp_fp16", 330.0),
        ("NVIDIA H200", "fp64", None),
        ("NVIDIA GeForce GTX 1080", "fp32", None),
    ],
)
def test_a_card_is_known_by_its_name(name, precision, teraflops):
    assert peaks.of(name, precision) == (teraflops and teraflops * 1e12)


def test_a_machine_of_different_cards_has_no_peak():
    same, other = {"name": "NVIDIA H200"}, {"name": "NVIDIA L4"}
    assert peaks.of_machine({"gpus": [same, same]}, "fp32") == 67e12
    assert peaks.of_machine({"gpus": [same, other]}, "fp32") is None
    assert peaks.of_machine({}, "fp32") is None


def row(device="cuda", nproc_per_node=1):
    names = ("x", "pytorch", "pytorch", "PyTorch", "resnet50", "resnet", device, "amp", "amp_fp16", 256)
    return Job(*names, "synthetic", None, {}, device, nproc_per_node=nproc_per_node)


def test_a_rate_beyond_the_peak_is_impossible():
    """An H200 was once said to train 34,452 images a second, where nothing computed anything."""
    h200 = {"gpus": [{"name": "NVIDIA H200"}] * 2}
    assert peaks.reached(row(), 34_452) == pytest.approx(845e12, rel=0.01)
    assert not peaks.impossible(row(), 34_452, h200)
    assert peaks.impossible(row(), 60_000, h200) == "impossible: 1472 TFLOP/s, of 990 that the GPU reaches at most"
    assert not peaks.impossible(row(nproc_per_node=2), 60_000, h200)
    assert not peaks.impossible(row("cpu"), 60_000, h200)
    assert not peaks.impossible(row(), 60_000, {})
