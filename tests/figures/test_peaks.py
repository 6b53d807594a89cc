"""What GPUs reach at most, by the names that nvidia-smi gives them, and CPUs by what was timed there."""

from dataclasses import replace

import pytest

from dlperf.figures import peaks
from dlperf.schema import Comparison, Failure, Job, Record


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
    assert not peaks.impossible(row(), 34_452, h200, {})
    assert peaks.impossible(row(), 60_000, h200, {}) == "impossible: 1472 TFLOP/s, of 990 that the GPU reaches at most"
    assert not peaks.impossible(row(nproc_per_node=2), 60_000, h200, {})
    assert not peaks.impossible(row("cpu"), 60_000, h200, {})
    assert not peaks.impossible(row(), 60_000, {}, {})


def timed(precision, seconds, fp32_seconds, nproc_per_node=1):
    """A run on a CPU that timed products of 1000 x 1000, 2 GFLOP."""
    job = replace(row("cpu", nproc_per_node), precision=precision)
    told = {"large_size": 1000, "large_seconds": seconds, "large_fp32_seconds": fp32_seconds}
    return Record(job, 0, "", 1.0, "", "", {}, product=told)


def seen(*runs):
    return peaks.products(Comparison({}, {}, "", "", len(runs), (), runs, ()))


def test_the_fastest_product_of_any_run_is_what_a_cpu_can_do():
    runs = [timed("fp32", 0.02, 0.03), timed("fp32", 0.04, 0.01), timed("amp_bf16", 0.005, 0.02)]
    assert seen(*runs) == {"fp32": pytest.approx(200e9), "amp_bf16": pytest.approx(400e9)}
    halves = [timed("fp32", 0.02, 0.03, nproc_per_node=2)]
    assert seen(*halves) == {"fp32": pytest.approx(200e9)}, "both ranks at the same time"
    assert seen(replace(runs[0], failure=Failure("crash", ""))) == {}
    assert seen(replace(runs[0], product={})) == {}


def test_a_rate_far_beyond_the_fastest_product_is_impossible():
    """ResNet-50 takes 24.5 GFLOP an image."""
    job, found = replace(row("cpu"), precision="fp32"), {"fp32": 200e9}
    assert peaks.share_of_product(job, 4.0, found) == pytest.approx(0.49, abs=0.01)
    assert not peaks.impossible(job, 80.0, {}, found), "the machine may have been busy when products were timed"
    told = "impossible: 2,454 GFLOP/s, 12.3 times what the fastest product of matrices reached here"
    assert peaks.impossible(job, 100.0, {}, found) == told
    assert not peaks.impossible(job, 100.0, {}, {})
    assert peaks.share_of_product(replace(job, precision="amp_bf16"), 4.0, found) is None
