"""The CUDA path of the PyTorch adapter, counted on a GPU that does nothing. Bounds are the counted numbers."""

import subprocess
from pathlib import Path

import pytest

from dlperf.comparison import store
from dlperf.figures import standings

pytestmark = [pytest.mark.nullgpu, pytest.mark.framework]

AMP = {"amp_fp16": ["float16"], "amp_bf16": ["bfloat16"]}


def test_a_captured_step_is_one_launch_in_every_precision(step, model, precision):
    found = step(model, precision, 8)
    assert found["effective"]["graph"] == "whole step"
    assert found["host"].get("kernels", 0) <= 2  # the two numbers of the generator of dropout
    assert {**found["host"], "kernels": 0} == {"graphs": 1, "kernels": 0}


def test_a_step_neither_waits_nor_compiles_twice(step, model, precision):
    found = step(model, precision, 8)
    assert "waits" not in found["step"]
    assert (found["compilations"], found["graph_breaks"]) == (1, {})


def test_products_are_in_the_type_that_was_asked_for(step, model, precision):
    assert step(model, precision, 8)["products_in"] == AMP.get(precision, ["float32"])


#: kernels of PyTorch, Triton's, calls of libraries, gigabytes of a step, GiB of memory
SIZES = {
    ("resnet50", "amp_fp16", 256): (15, 523, 161, 99.4, 10.8),
    ("bert_base", "amp_bf16", 512): (96, 366, 180, 152.3, 22.5),
}


@pytest.mark.parametrize("job", SIZES, ids=lambda job: "-".join(map(str, job)))
def test_a_step_launches_and_moves_no_more_than_was_counted(step, job):
    found = step(*job)
    launched = [found["step"][kind] for kind in ("kernels", "triton", "libraries")]
    assert all(map(int.__le__, map(round, launched), SIZES[job][:3])), launched
    assert found["gigabytes"] <= SIZES[job][3]
    assert found["peak_gib"] <= SIZES[job][4]


def test_the_kernels_that_pytorch_chooses_are_told(step):
    """cuDNN's BatchNorm has no bfloat16, its attention no float32."""
    ran = {job: step(*job, 8, "compile=off", "graph=off")["effective"] for job in CHOSEN}
    assert {job: (ran[job].get("attention") or ran[job]["batch_norm"]) for job in ran} == CHOSEN


CHOSEN = {
    ("resnet_tiny", "amp_fp16"): "cuDNN's",
    ("resnet_tiny", "amp_bf16"): "PyTorch's",
    ("bert_tiny", "amp_bf16"): "scaled_dot_product_attention (cudnn_attention)",
    ("bert_tiny", "tf32"): "scaled_dot_product_attention (efficient_attention)",
}


def test_attention_of_a_length_at_which_cudnns_gradient_is_nan_is_another_kernels(python, variables):
    """pytorch#196678: odd multiples of 64 tokens."""
    code = """
from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.pytorch import bert
from dlperf.adapters.ranks import Ranks
tiny = models.family("bert_tiny").SIZES["bert_tiny"]
options = {"compile": "off", "graph": "off", "clip_norm": "1.0", "optimizer": "torch", "communication": "ddp"}
for length, cudnn in ((64, False), (128, True), (192, False), (512, True)):
    models.family("bert_tiny").SIZES["bert_tiny"] = tiny._replace(sequence=length, positions=length)
    trainer = bert.build(Job("bert_tiny", "cuda", "amp_fp16", 2, options=options), Ranks())
    trainer.step()
    assert ("cudnn" in trainer.effective["attention"]) == cudnn, (length, trainer.effective["attention"])
"""
    subprocess.run([python("torch"), "-P", "-c", code], env=variables, check=True)


def test_query_key_and_value_are_one_product_or_three(python, variables):
    """The same numbers and gradients in float64, on a CPU, where both can be computed."""
    code = """
import torch
from dlperf.adapters.pytorch import bert
layers = [torch.nn.Linear(8, 8, dtype=torch.float64) for _ in range(3)]
x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
def gradients(split):
    loss = sum((index + part.sin()).square().sum() for index, part in enumerate(split(layers, x, 2)))
    return torch.autograd.grad(loss, [x, *(one for layer in layers for one in layer.parameters())])
for one, three in zip(gradients(bert.together), gradients(bert.projected)):
    torch.testing.assert_close(one, three, rtol=1e-12, atol=1e-12)
"""
    subprocess.run([python("torch"), "-P", "-c", code], env=variables, check=True)


def test_the_comparison_runs_to_its_report_and_the_proof_refuses_its_rows(python, variables, tmp_path):
    words = ["-f", "pytorch", "-m", "bert", "-p", "amp", "--compile", "off", "--set", "graph=on"]
    words += ["--env", "current", "--device", "cuda", "--protocol", "quick", "--repeats", "1", "-o", tmp_path / "out"]
    command = [python("torch"), "-P", "-m", "dlperf.compare", *words]
    mine = {**variables, "PYTHONPATH": str(links(tmp_path / "package")), "DLPERF_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True, timeout=1200)
    assert "Report: " in ended.stdout, ended.stderr[-3000:]
    opened = store.open_folder(tmp_path / "out")
    assert [record.effective["graph"] for record in opened.records.values()] == ["whole step"]
    verdicts = [one.verdict for certificates in opened.proofs.values() for one in certificates]
    assert "different" in verdicts  # in float64; low precision is held to float64 and float32 of its own
    (refused,) = standings.obstacles(opened.comparison).values()
    assert refused.startswith("impossible: ")
    assert "not comparable: impossible" in (tmp_path / "out" / "report.md").read_text()


def links(folder):
    """The whole package as setup.cfg lays it out, for a Python in which it is not installed."""
    root = Path(__file__).resolve().parents[2]
    (folder / "dlperf").mkdir(parents=True)
    parts = [
        *(root / "dlperf").iterdir(),
        *(root / name for name in ("adapters", "docker", "launchers", "models", "report")),
    ]
    for part in parts:
        (folder / "dlperf" / part.name).symlink_to(part)
    return folder


def pytest_generate_tests(metafunc):
    if "precision" in metafunc.fixturenames:
        metafunc.parametrize("model", ["resnet_tiny", "bert_tiny"])
        metafunc.parametrize("precision", ["fp32", "tf32", "amp_fp16", "amp_bf16"])
