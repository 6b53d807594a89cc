"""What GPUs did while a run was at work: sampled beside it, never by it."""

import io
import json
import os
import subprocess
import sys
from functools import partial

import gpus
import pytest
from commands import call, records
from processes import left_behind, wait_for, working_in

from dlperf.adapters import nvml
from dlperf.runs import conditions

SLEPT = ("--frameworks", "slept", "--env", "current", "--model", "bert_tiny", "--device", "cuda", "--no-verify")
SHORT = ("--protocol", "quick", "--windows", 2, "--steps-per-window", 5, "-r", 1, "-b", 8)


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """A row on a fake GPU: its record and its report."""
    gpus.install(tmp_path / "bin", monkeypatch, gpus.H200, gpus.A100)
    gpus.adapter(tmp_path / "adapters", monkeypatch)

    def run(*words):
        ended = call("compare", *SLEPT, *SHORT, *words, "-o", tmp_path / "out")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        assert not left_behind(tmp_path / "out")
        (record,) = records(tmp_path / "out")
        return record, (tmp_path / "out" / "report.md").read_text()

    return run


@pytest.mark.slow
def test_each_window_has_the_conditions_of_its_gpu(compare, tmp_path, monkeypatch):
    gpus.with_nvml(tmp_path / "nvml", monkeypatch, gpus.card())
    record, _ = compare()
    assert record.not_sampled == ""
    for window in record.windows:
        seen = {name: value for name, value in window.conditions.items() if name.startswith("gpu_")}
        assert seen.pop("gpu_joules") == pytest.approx(500 * window.seconds, rel=0.02)
        assert seen == {
            "gpu_mhz_min": 1980,
            "gpu_mhz_median": 1980,
            "gpu_memory_mhz_median": 2600,
            "gpu_watts_mean": 500,
            "gpu_celsius_max": 61,
            "gpu_memory_bytes_max": 2**30,
            "gpu_throttled_share": 0,
            "gpu_throttle_reasons": 0,
            **({"gpu_others": 0} if nvml._sees_all_processes() else {}),
        }


def test_without_pynvml_there_is_a_run_and_the_reason(compare, tmp_path, monkeypatch):
    here = sys.executable
    gpus.with_nvml(tmp_path / "nvml", monkeypatch, installed=False)
    record, _ = compare()
    assert record.not_sampled == f"pynvml is not installed in {here}"
    assert not any(name.startswith("gpu_") for window in record.windows for name in window.conditions)


def test_what_nvml_complains_of_is_told(compare, tmp_path, monkeypatch):
    gpus.with_nvml(tmp_path / "nvml", monkeypatch)
    monkeypatch.setenv("DLPERF_TEST_NVML_FAILS", "Driver/library version mismatch")
    assert compare()[0].not_sampled == "NVML: Driver/library version mismatch"


@pytest.mark.slow
def test_a_run_of_two_ranks_has_the_energy_of_both_gpus(compare, tmp_path, monkeypatch):
    gpus.with_nvml(tmp_path / "nvml", monkeypatch, gpus.card(), gpus.card("GPU-22", watts=300, clocks=[1410]))
    record, _ = compare("--nproc-per-node", 2)
    for window in record.windows:
        assert window.conditions["gpu_joules"] == pytest.approx(800 * window.seconds, rel=0.05)
        assert window.conditions["gpu_watts_mean"] == 400
        assert window.conditions["gpu_mhz_min"] == 1410


# --- the sampler ------------------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The fake pynvml in this process, with its cards."""
    monkeypatch.syspath_prepend(gpus.FAKE_NVML)
    import pynvml

    def load(*cards):
        (tmp_path / "cards.json").write_text(json.dumps(cards))
        monkeypatch.setenv("DLPERF_TEST_CARDS", str(tmp_path / "cards.json"))
        pynvml.nvmlInit()
        return pynvml

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield load
    sys.modules.pop("pynvml")


def uuids(nvml_module):
    return [nvml._text(nvml_module.nvmlDeviceGetUUID(one.own)) for one in nvml.chosen(nvml.found(nvml_module))]


@pytest.mark.parametrize(
    ("visible", "seen"),
    [(None, ["GPU-11", "GPU-22"]), ("1", ["GPU-22"]), ("1,0", ["GPU-22", "GPU-11"]), ("GPU-2", ["GPU-22"]), ("5", [])],
)
def test_cuda_visible_devices_chooses(module, monkeypatch, visible, seen):
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert uuids(module(gpus.card(), gpus.card("GPU-22"))) == seen


@pytest.mark.parametrize(("visible", "seen"), [(None, ["MIG-aa"]), ("MIG-bb", ["MIG-bb"]), ("0", ["MIG-aa"])])
def test_a_part_of_a_card_has_its_own_memory_and_nobodys_power(module, monkeypatch, visible, seen):
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    loaded = module(gpus.card(parts=["MIG-aa", "MIG-bb"]))
    assert uuids(loaded) == seen
    (part,) = nvml.chosen(nvml.found(loaded))
    read = nvml._read(loaded, part, nvml.READINGS)
    assert set(nvml.READINGS) - set(read) == {"watts", "joules"}


@pytest.fixture
def another_run(tmp_path):
    """A process with a session and a folder of its own."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True, cwd=tmp_path) as process:
        yield process
        process.kill()


def test_processes_of_other_runs_are_foreign_and_this_ones_are_not(module, another_run, monkeypatch):
    monkeypatch.setattr(nvml, "_sees_all_processes", lambda: True)
    loaded = module(gpus.card(pids=[os.getpid(), another_run.pid, 2**22 + 1]))
    (card,) = nvml.chosen(nvml.found(loaded))
    assert nvml._read(loaded, card, nvml.SLOW_READINGS) == {"others": 1}, "not this one, nor one that has ended"
    monkeypatch.setattr(nvml, "_sees_all_processes", lambda: False)
    assert nvml._read(loaded, card, nvml.SLOW_READINGS) == {}


def test_the_next_interpreter_takes_over_where_one_lacks_pynvml(monkeypatch):
    monkeypatch.setattr(nvml, "die_with_parent", lambda: None)
    started = []
    monkeypatch.setattr(nvml.os, "execv", lambda path, words: started.append(words) or sys.exit())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SystemExit):
        nvml.main(["out", "1", "7", "second", "third"])
    assert started == [["second", "-m", "dlperf.adapters.nvml", "out", "1", "7", "third"]]


def test_it_ends_when_its_worker_is_killed(tmp_path, monkeypatch):
    """Before the worker's own clean-up, and in no time: nobody is left to end it."""
    gpus.with_nvml(tmp_path / "nvml", monkeypatch, gpus.card())
    start = f"from dlperf.adapters import ranks, worker; worker._sample_gpus({{}}, ranks.Ranks(), '{tmp_path}')"
    parent = subprocess.Popen([sys.executable, "-c", f"{start}; import time; time.sleep(1000)"], cwd=tmp_path)
    file = tmp_path / "gpu.rank0.jsonl"
    wait_for(lambda: file.exists() and len(conditions.read(file)[1]) > 2)
    assert len(working_in(tmp_path)) == 2
    parent.kill()
    parent.wait()
    wait_for(lambda: not working_in(tmp_path))


def test_it_goes_on_only_while_its_worker_is_there():
    """Where Linux does not end it."""
    left, written = iter([True, True, False]), io.StringIO()
    nvml.sample(None, [], written, partial(next, left))
    assert len(written.getvalue().splitlines()) == 2


# --- what windows make of it ------------------------------------------------------------------------------------------


def samples(*cards, every=0.1):
    return [(index * every, list(each)) for index, each in enumerate(zip(*cards, strict=True))]


def test_power_stands_for_energy_where_it_is_not_counted():
    """100 W for a second, then 300 W; a second card counts its joules."""
    first = [{"watts": 100.0} if index <= 10 else {"watts": 300.0} for index in range(31)]
    assert conditions.during(samples(first), 0.5, 2.5)["gpu_joules"] == pytest.approx(50 + 450 - 10)
    second = [{"joules": 20.0 * index} for index in range(31)]
    assert conditions.during(samples(first, second), 0.5, 2.5)["gpu_joules"] == pytest.approx(50 + 450 - 10 + 400)


@pytest.mark.parametrize(("ended", "known"), [(3.2, True), (4.0, False)])
def test_energy_beyond_the_last_sample_is_not_invented(ended, known):
    seen = conditions.during(samples([{"joules": float(index)} for index in range(31)]), 1.0, ended)
    assert ("gpu_joules" in seen) == known
    assert not known or seen["gpu_joules"] == pytest.approx(22)


def test_a_window_without_a_sample_has_no_conditions():
    assert conditions.during(samples([{"sm_mhz": 1.0}]), 5.0, 6.0) == {}


def test_throttling_leaves_idleness_out_and_errors_are_the_new_ones():
    card = [{"throttle": bits, "ecc_errors": count} for bits, count in [(1, 3), (1, 3), (4, 5), (0x21, 5)]]
    seen = conditions.during(samples(card), 0.1, 0.4)
    assert seen == {"gpu_throttled_share": pytest.approx(2 / 3), "gpu_throttle_reasons": 0x24, "gpu_ecc_errors": 2}
    assert conditions.reasons(0x24) == ["the power limit", "its temperature"]


@pytest.mark.parametrize("text", ["", "no json\n", '{"gpus": ["x"]}\n{"time": 1.0, "gpus": [{}]}\n{"time": 2.0, "g'])
def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path, text):
    (tmp_path / "gpu.rank0.jsonl").write_text(text)
    head, found = conditions.read(tmp_path / "gpu.rank0.jsonl")
    assert head == ({"gpus": ["x"]} if "gpus" in text else {"not_sampled": "the sampler wrote nothing"})
    assert found == ([(1.0, [{}])] if "gpus" in text else [])
