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
        ("H100 80GB PCIe Gen5", "amp_fp16", 756.0),
        ("NVIDIA Tesla K80", "fp32", 4.37),
        ("NVIDIA Tesla P100", "amp_fp16", 21.2),
        ("RTX 6000 Ada", "tf32", 182.1),
        ("RTX A6000", "amp_bf16", 154.8),
        ("Quadro RTX 8000", "amp_fp16", 130.5),
        ("TPU v3", "amp_bf16", 123.0),
        ("TPU v3", "fp32", None),
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


def timed(precision, seconds, fp32_seconds=None, nproc_per_node=1, device="cpu", **told):
    """A run that timed products of 1000 x 1000, 2 GFLOP."""
    job = replace(row(device, nproc_per_node), precision=precision)
    told |= {"large_size": 1000, "large_seconds": seconds}
    told |= {"large_fp32_seconds": fp32_seconds} if fp32_seconds else {}
    return Record(job, 0, "", 1.0, "", "", {}, product=told)


def ceilings(*runs):
    return peaks.ceilings(Comparison({}, {}, "", "", len(runs), (), runs, ()))


def seen(*runs):
    found = ceilings(*runs)
    return found["cpu"].flops if found else {}


def test_the_fastest_product_of_any_run_is_what_a_cpu_can_do():
    runs = [timed("fp32", 0.02, 0.03), timed("fp32", 0.04, 0.01), timed("amp_bf16", 0.005, 0.02)]
    assert seen(*runs) == {"fp32": pytest.approx(200e9), "amp_bf16": pytest.approx(400e9)}
    halves = [timed("fp32", 0.02, 0.03, nproc_per_node=2)]
    assert seen(*halves) == {"fp32": pytest.approx(200e9)}, "both ranks at the same time"
    assert seen(replace(runs[0], failure=Failure("crash", ""))) == {}
    assert seen(replace(runs[0], product={})) == {}


def test_a_rate_far_beyond_the_fastest_product_is_impossible():
    """ResNet-50 takes 24.5 GFLOP an image."""
    job, found = replace(row("cpu"), precision="fp32"), {"cpu": peaks.Ceiling({"fp32": 200e9})}
    assert peaks.share_of_product(job, 4.0, found) == pytest.approx(0.49, abs=0.01)
    assert not peaks.impossible(job, 80.0, {}, found), "the machine may have been busy when products were timed"
    told = "impossible: 2,454 GFLOP/s, 12.3 times what the fastest product of matrices reached here"
    assert peaks.impossible(job, 100.0, {}, found) == told
    assert not peaks.impossible(job, 100.0, {}, {})
    assert peaks.share_of_product(replace(job, precision="amp_bf16"), 4.0, found) is None


def test_the_fastest_copy_is_what_memory_can_do():
    """1 GB is read and written, by both ranks on the CPU at the same time."""
    runs = [timed("fp32", 0.02, copy_bytes=10**9, copy_seconds=seconds) for seconds in (0.2, 0.1)]
    assert ceilings(*runs)["cpu"].copied == pytest.approx(10e9)
    assert ceilings(timed("fp32", 0.02, 0.02))["cpu"].copied == 0, "an older comparison"
    two = {"nproc_per_node": 2, "copy_bytes": 10**9, "copy_seconds": 0.1}
    assert ceilings(timed("fp32", 0.02, **two))["cpu"].copied == pytest.approx(20e9)
    assert ceilings(timed("fp32", 0.02, device="cuda", **two))["cuda"].copied == pytest.approx(10e9), "each has a GPU"


def test_a_gpu_is_held_to_what_was_measured_on_it_where_its_datasheet_is_not_known():
    """1,000 images/s of ResNet-50 are 24.5 TFLOP/s; the fastest product reached 20."""
    found = ceilings(timed("amp_fp16", 1e-4, device="cuda"), timed("amp_fp16", 2e-4, device="cuda"))
    assert found["cuda"].flops == {"amp_fp16": pytest.approx(20e12)}
    assert peaks.share_of_product(row(), 1000, found) == pytest.approx(1.23, abs=0.01)
    assert not peaks.impossible(row(), 1000, {}, found), "Winograd's convolutions multiply less than they count"
    told = "impossible: 49 TFLOP/s, 2.5 times what the fastest product of matrices reached here"
    assert peaks.impossible(row(), 2000, {}, found) == told
    assert not peaks.impossible(row(nproc_per_node=2), 2000, {}, found)
    assert not peaks.impossible(replace(row(), precision="fp32"), 2000, {}, found), "another precision"
