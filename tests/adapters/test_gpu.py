"""What rows need of the GPU: asked of nvidia-smi, declared by environments, before anything is installed."""

import contextlib
import json
import struct
from dataclasses import asdict
from pathlib import Path

import gpus
import pytest
from commands import call
from places import ROOT

from dlperf import machine
from dlperf.adapters import base, gpu
from dlperf.adapters.api import Unsupported
from dlperf.adapters.ranks import Ranks
from dlperf.catalog import locks, reader
from dlperf.errors import UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning import checks, devices, plan
from dlperf.planning.spec import spec_from
from dlperf.schema import Job
from dlperf.systems import native

ADAPTERS = reader.adapters()
MIG = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11)
  MIG 3g.40gb     Device  0: (UUID: MIG-aa)
  MIG 1g.10gb     Device  1: (UUID: MIG-bb)
"""
DIVIDED = "NVIDIA H100 80GB HBM3, 81559, 550.54, 9.0, GPU-11, Enabled"


def card(capability="9.0", driver="580.159.04", name="NVIDIA H200"):
    return gpu.Gpu(name, 2**37, driver, capability)


def planned(monkeypatch, *found, **given):
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look(tuple(found)))
    arguments = {**DEFAULTS, "model": "bert_tiny", "device": "cuda", "precision": "fp32", "dry_run": False, **given}
    asked = checks.from_arguments(arguments, ADAPTERS)
    return asked, plan.from_spec(asked, ADAPTERS)


# --- which GPUs there are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]),
        ("1", ["NVIDIA A100-SXM4-80GB"]),
        ("1,0", ["NVIDIA A100-SXM4-80GB", "NVIDIA H200"]),
        ("GPU-2", ["NVIDIA A100-SXM4-80GB"]),
        ("0,7,1", ["NVIDIA H200"]),
    ],
)
def test_cuda_visible_devices_chooses(tmp_path, monkeypatch, visible, names):
    gpus.install(tmp_path, monkeypatch, gpus.H200, gpus.A100)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [one.name for one in gpu.look().gpus] == names


@pytest.mark.parametrize(("visible", "blocked"), [("", False), ("-1", False), ("2", True), ("GPU-", True)])
def test_a_variable_that_names_none_is_an_error_unless_it_means_none(tmp_path, monkeypatch, visible, blocked):
    gpus.install(tmp_path, monkeypatch, gpus.H200, gpus.A100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = gpu.look()
    assert (found.gpus, found.blocked) == ((), blocked)
    assert f"CUDA_VISIBLE_DEVICES={visible} names none" in found.why
    assert "0 to 1" in found.why


def test_what_nvidia_smi_says_of_a_card():
    (one,) = gpu._named(0, gpus.H200)
    assert one[0] == gpu.Gpu("NVIDIA H200", 143771 * 2**20, "580.159.04", "9.0", 4 * 2**20)
    assert not one[0].shared
    assert one[0].about == "NVIDIA H200, compute capability 9.0, driver 580.159.04"


def test_an_old_driver_that_knows_no_capability_is_asked_less(monkeypatch):
    def ask(*words):
        return (2, "not a valid field") if "compute_cap" in words[1] else (0, "Tesla V100, 16384, 470.1")

    monkeypatch.setattr(gpu, "ask", ask)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu.look().gpus == (gpu.Gpu("Tesla V100", 2**34, "470.1", ""),)


@pytest.mark.parametrize(
    ("visible", "name"), [(None, "3g.40gb"), ("0", "3g.40gb"), ("MIG-bb", "1g.10gb"), ("MIG-bb,MIG-aa", "1g.10gb")]
)
def test_a_part_of_a_card_is_not_the_card(tmp_path, monkeypatch, visible, name):
    gpus.install(tmp_path, monkeypatch, DIVIDED, listed=MIG)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (one,) = gpu.look().gpus
    assert (one.name, one.memory_bytes) == (f"NVIDIA H100 80GB HBM3 MIG {name}", None)


def test_a_divided_card_without_parts_says_what_to_do(tmp_path, monkeypatch):
    gpus.install(tmp_path, monkeypatch, DIVIDED, listed="GPU 0: NVIDIA H100 (UUID: GPU-11)")
    assert "nvidia-smi mig -cgi" in gpu.look().why


def test_a_card_without_nvidia_smi_is_not_taken_for_none(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setenv("PATH", str(tmp_path))
    for device in ("auto", "cuda"):
        with pytest.raises(UsageError, match="/dev/nvidia0 is there, but nvidia-smi is not on PATH"):
            checks.from_arguments({**DEFAULTS, "model": "bert_tiny", "device": device, "dry_run": False}, ADAPTERS)


def test_what_nvidia_smi_complains_of_is_told(tmp_path, monkeypatch):
    gpus.install(tmp_path, monkeypatch, "Failed to initialize NVML: Driver/library version mismatch", code=18)
    with pytest.raises(
        UsageError, match="nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch"
    ):
        checks.from_arguments({**DEFAULTS, "model": "bert_tiny", "device": "cuda", "dry_run": False}, ADAPTERS)


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    with pytest.raises(UsageError, match="NVIDIA H200 is alone here"):
        planned(monkeypatch, card(), nproc_per_node="2")


# --- what runs on them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "has", "runs"),
    [
        ("8.9", "sm_80", True),
        ("8.0", "sm_86", False),
        ("9.0", "sm_86", False),
        ("9.0", "compute_80", True),
        ("9.0", "compute_90", True),
        ("8.9", "compute_90", False),
        ("10.3", "sm_100", True),
        ("12.0", "sm_100", False),
        ("12.0", "compute_103", True),
    ],
)
def test_kernels_run_within_a_major_version_and_ptx_on_all_that_follow(capability, has, runs):
    assert (has in gpu.runs([card(capability)])) == runs


def test_of_several_gpus_all_must_run_it_and_an_unknown_one_is_refused_nothing():
    assert "sm_80" not in gpu.runs([card("8.0"), card("9.0")])
    assert "compute_80" in gpu.runs([card("8.0"), card("9.0")])
    assert gpu.runs([card(""), card("9.0")]) is None
    assert gpu.refusal(ADAPTERS["mxnet"].environments["cuda"].kernels, [card("")], 11) == ""


@pytest.mark.parametrize(
    ("driver", "cuda", "refused"),
    [("525.60.13", 12, False), ("525.59", 12, True), ("570.1", 13, True), ("470.82.01", 11, False), ("", 13, False)],
)
def test_each_cuda_has_its_least_driver(driver, cuda, refused):
    assert bool(gpu.refusal([], [card(driver=driver)], cuda)) == refused


@pytest.mark.parametrize("name", [name for name, one in ADAPTERS.items() if one.default])
def test_every_cuda_environment_says_what_it_has(name):
    """And the major version of CUDA is that of its lock."""
    for key, one in ADAPTERS[name].environments.items():
        if key.startswith("cuda"):
            assert one.capabilities
            packages = " ".join(map(str, locks.read(one.lock)))
            assert f"-cu{one.cuda}" in packages or f"nvidia-cuda-runtime {one.cuda}." in packages


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_on_hopper_three_rows_say_what_would_run_and_nothing_is_installed_for_them(monkeypatch):
    _, made = planned(monkeypatch, card())
    assert {job.adapter for job in made.jobs} == {"jax", "pytorch", "tensorflow"}
    whys = {skip.adapter: (skip.status, skip.why) for skip in made.skips}
    assert set(whys) == {"mxnet", "oneflow", "paddle"}
    for status, why in whys.values():
        assert status == "hardware"
        assert " sm_86 only; NVIDIA H200 is sm_90; instead (untested): --env " in why
        assert len(why) < 200, "the report cuts longer ones"
    assert "--env docker --image mxnet=ngc" in whys["mxnet"][1]
    assert "--env current" in whys["oneflow"][1]


def test_an_a100_runs_all_six_but_not_with_a_driver_of_2021(monkeypatch):
    _, made = planned(monkeypatch, card("8.0", "580.1", "A100"))
    assert not made.skips
    _, made = planned(monkeypatch, card("8.0", "470.82.01", "A100"))
    whys = {skip.adapter: skip.why for skip in made.skips}
    assert set(whys) == {"jax", "pytorch", "tensorflow"}
    assert whys["pytorch"] == "CUDA 13 needs driver 580 or newer; this machine has 470.82.01"


def test_a_card_that_no_environment_supports_leaves_no_row(monkeypatch):
    _, made = planned(monkeypatch, card("3.5", name="Tesla K40"))
    assert not made.jobs
    assert len(made.skips) == 6
    assert not [skip for skip in made.skips if "instead" in skip.why], "nothing that we know of is for so old a card"


def test_nvidias_image_is_asked_for_what_it_has(monkeypatch):
    monkeypatch.setattr(checks.containers, "problem", lambda *_: "")
    given = {"env": "docker", "image": "ngc", "frameworks": "mxnet"}
    _, made = planned(monkeypatch, card(), **given)
    assert [job.adapter for job in made.jobs] == ["mxnet"]
    _, made = planned(monkeypatch, card("12.0"), **given)
    assert [skip.status for skip in made.skips] == ["hardware"]


def test_what_is_installed_here_already_is_not_judged_by_our_locks(monkeypatch):
    _, made = planned(monkeypatch, card(), env="current")
    assert not made.skips


def test_tf32_needs_tensor_cores_that_have_it(monkeypatch):
    _, made = planned(monkeypatch, card("7.5", name="Tesla T4"), precision="tf32", frameworks="mxnet")
    assert [skip.why for skip in made.skips] == ["TF32 is a mode of tensor cores from sm_80 on; Tesla T4 is sm_75"]


def test_gpus_come_back_from_what_was_stored_and_others_are_no_continuation(monkeypatch):
    asked, _ = planned(monkeypatch, card())
    stored = spec_from(json.loads(json.dumps(asdict(asked))))
    assert stored.gpus == asked.gpus == (card(),)
    assert devices.changed(stored) == ""
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look((card("9.0", name="NVIDIA H100"),)))
    assert "was begun on NVIDIA H200" in devices.changed(stored)


def test_a_card_on_which_others_work_is_told(tmp_path, monkeypatch):
    gpus.install(tmp_path, monkeypatch, gpus.H200.replace(", 4", ", 44032"))
    (found,) = machine.describe()["gpus"]
    assert found["shared_bytes"] == 43 * 2**30
    assert "driver 580.159.04; others hold 43.0 GiB of its memory" in call("doctor").stdout
    asked, _ = planned(monkeypatch, card()._replace(used_bytes=2**30))
    assert devices.changed(asked) == "", "they may have left when it is resumed"
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look((card(),)))
    assert devices.changed(asked) == ""


def test_the_doctor_says_which_rows_the_gpu_has(monkeypatch, tmp_path):
    gpus.install(tmp_path, monkeypatch, gpus.H200)
    told = call("doctor").stdout
    assert "NVIDIA H200, compute capability 9.0, driver 580.159.04" in told
    assert "PyTorch: its environment has kernels\n" in told
    assert "Apache MXNet: its wheels have kernels for sm_50" in told


def test_the_worker_is_told_and_asks_again(monkeypatch):
    asked, made = planned(monkeypatch, card(), frameworks="pytorch")
    request = native.request(ADAPTERS["pytorch"], made.jobs[0], asked)
    assert isinstance(made.jobs[0], Job)
    assert gpu.refusal(request["kernels"], [card()], request["cuda"]) == ""
    assert "sm_75" in gpu.refusal(request["kernels"], [card("7.0")], request["cuda"])


def test_a_comparison_of_rows_that_the_gpu_cannot_run_ends_with_their_reasons(monkeypatch, tmp_path):
    gpus.install(tmp_path / "bin", monkeypatch, gpus.H200)
    words = ["--device", "cuda", "--frameworks", "mxnet", "--model", "bert", "--precision", "amp"]
    ended = call("compare", *words, "-o", tmp_path / "out", DLPERF_CACHE=str(tmp_path / "cache"))
    assert ended.returncode == 1
    page = (tmp_path / "out" / "report.md").read_text()
    assert "NVIDIA H200 is sm_90; instead (untested): --env docker --image mxnet=ngc" in page
    assert "1 × NVIDIA H200 (140.4 GiB, compute capability 9.0)" in page
    assert not list((tmp_path / "cache").glob("envs/*")), "nothing is installed"


@pytest.mark.parametrize(
    ("built", "count", "local_rank", "says"),
    [
        (False, 0, 0, "torch 2 has no CUDA; nvidia-smi: NVIDIA H200, .* Install a build with CUDA, or choose --device"),
        (True, 0, 0, "torch 2 finds no GPU; nvidia-smi: NVIDIA H200, compute capability 9.0, driver 580.159.04"),
        (True, 1, 1, "torch 2 finds 1 GPU, and this is local rank 1; nvidia-smi: NVIDIA H200, compute capability 9.0"),
        (True, 2, 1, ""),
    ],
)
def test_a_framework_that_finds_no_gpu_says_so(monkeypatch, built, count, local_rank, says):
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look((card(),)))
    ranks = Ranks(rank=local_rank, world_size=2, local_rank=local_rank)
    with pytest.raises(Unsupported, match=says) if says else contextlib.nullcontext():
        base.need_gpu("torch 2", built, lambda: count, ranks)


def test_what_a_library_says_of_the_driver_is_told_without_its_stack(monkeypatch):
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look(()))

    def count():
        raise ValueError("\nCUDA: driver version is insufficient\nStack trace:\n  [bt] (0) lib.so")

    with pytest.raises(
        Unsupported, match="MXNet 1 finds no GPU: CUDA: driver version is insufficient; nvidia-smi: not"
    ):
        base.need_gpu("MXNet 1", True, count, Ranks())


# --- the tool that reads libraries ------------------------------------------------------------------------------------


def library(folder: Path, *modules):
    """A file that is an ELF file's headers and fat binaries, each of (kind, architecture, flags)."""

    def code(kind, architecture, flags):
        return struct.pack("<HHIQ12xI8xQ", kind, 1, 64, 8, architecture, flags).ljust(64, b"\0") + b"8 bytes."

    bodies = [b"".join(code(*one) for one in each) for each in modules]
    data = b"".join(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body for body in bodies)
    names = b"\0.nv_fatbin\0"
    end = 64 + len(data)
    header = b"\x7fELF\x02".ljust(0x28, b"\0") + struct.pack("<Q", end + len(names)) + b"\0" * 10
    header += struct.pack("<HHH", 64, 2, 1)
    sections = [(1, 1, 0, 0, 64, len(data)), (0, 3, 0, 0, end, len(names))]
    table = b"".join(struct.pack("<IIQQQQ", *one).ljust(64, b"\0") for one in sections)
    (folder / "lib.so").write_bytes(header + data + names + table)
    return folder / "lib.so"


def test_fat_binaries_are_read(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests")
    import capabilities

    usual = [(2, 80, 0x11), (2, 100, 0x11), (1, 90, 0x11), (2, 90, 0x100011)]
    path = library(tmp_path, usual, usual, usual, usual, [*usual[:-1], (2, 70, 0x11)])
    assert [len(one) for one in capabilities.modules(path)] == [3, 3, 3, 3, 4]
    assert capabilities.summary(capabilities.modules(path)) == ["sm_80", "sm_100", "compute_90"]
    path.write_bytes(b"no library")
    assert list(capabilities.modules(path)) == []
