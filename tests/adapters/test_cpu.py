"""What rows need of the CPU: read from the processor, declared by adapters, asked before anything is installed."""

import builtins
import json
import shutil
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from commands import FAKE, call, records
from places import GOLDEN, ROOT
from processors import AVX2, AVX512, BF16, NO_AVX

from dlperf import doctor, launchers, machine
from dlperf.adapters import cpu
from dlperf.catalog import reader
from dlperf.catalog.adapter import RUNNABLE
from dlperf.errors import UsageError
from dlperf.figures import rates
from dlperf.flags import DEFAULTS
from dlperf.launchers import Launch
from dlperf.launchers.api import EMULATOR
from dlperf.planning import checks, plan, spec
from dlperf.report import caveats
from dlperf.runs import failures
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.stored import comparison_from
from dlperf.systems import native

ADAPTERS = reader.adapters()
RESULTS = GOLDEN / "report" / "results.json"
REAL = {name: adapter for name, adapter in ADAPTERS.items() if adapter.default}

ENTRIES = [
    {"needs": ["avx512bw", "avx512vl"], "kernels": "native", "why": ""},
    {"needs": ["asimd", "bf16"], "kernels": "native", "why": ""},
    {"needs": ["avx2"], "kernels": "reference", "why": "a plain loop"},
    {"needs": [], "kernels": "none", "why": "no kernels"},
]


def planned(monkeypatch, found, **given):
    monkeypatch.setattr(cpu, "flags", lambda: found)
    arguments = {**DEFAULTS, "model": "bert_tiny", "device": "cpu", "dry_run": True, **given}
    asked = checks.from_arguments(arguments, ADAPTERS)
    return asked, plan.from_spec(asked, ADAPTERS)


# --- the processor ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(cpu._listed() is None, reason="/proc/cpuinfo is not there to compare with")
def test_the_processor_says_what_the_system_lists():
    # /proc/cpuinfo leaves these out whatever the processor has: Linux keeps them for KVM's guests (cpufeatures.h)
    unlisted = {"amx_fp16", "avx_ifma", "avx_vnni_int8", "avx_ne_convert"}
    known = {name for names in cpu.BITS.values() for name in names.values()} - unlisted
    listed = cpu._listed()
    found = cpu.flags()
    assert found & known == listed & known or "asimd" in found


def test_where_no_code_may_be_mapped_the_system_is_asked(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cpu.mmap, "mmap", refuse)
    monkeypatch.setattr(cpu, "_listed", lambda: AVX2)
    assert cpu.flags() == AVX2


def test_a_machine_that_tells_nothing_is_unknown(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cpu.mmap, "mmap", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert cpu.flags() is None


def test_what_the_system_does_not_save_does_not_count():
    """A kernel or hypervisor that leaves the wide registers out of XCR0 makes their instructions illegal."""
    assert [cpu._saves(saved, "avx512bw") for saved in (0xE6, 0x6, 0)] == [True, False, False]
    assert [cpu._saves(saved, "avx2") for saved in (0x6, 0x2, 0)] == [True, False, False]
    assert [cpu._saves(saved, "amx_bf16") for saved in (0x600E6, 0xE6)] == [True, False]
    assert cpu._saves(0, "sse4_2")


@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"{EMULATOR} is not installed; `make test-cpus` installs it")
@pytest.mark.parametrize(("model", "least", "beyond"), [("Nehalem", NO_AVX, "avx"), ("Haswell", AVX2, "avx512f")])
def test_an_emulated_processor_is_not_the_hosts(model, least, beyond):
    found = checks.emulated_flags(model)
    assert found >= least
    assert beyond not in found


# --- what adapters declare --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "kernels", "refusal"),
    [
        (BF16, "native", ""),
        (AVX2, "reference", "a plain loop; this CPU lacks avx512bw, avx512vl"),
        (NO_AVX, "none", "no kernels; this CPU lacks avx512bw, avx512vl"),
        (frozenset({"asimd", "bf16"}), "native", ""),
        (frozenset({"asimd"}), "none", "no kernels; this CPU lacks bf16"),
    ],
)
def test_the_first_entry_that_fits_counts(found, kernels, refusal):
    assert cpu.kernels(ENTRIES, found)["kernels"] == kernels
    assert cpu.refusal(ENTRIES, found) == refusal


def test_reference_kernels_run_where_they_are_allowed_and_an_unknown_cpu_is_refused_nothing():
    assert cpu.refusal(ENTRIES, AVX2, allow_reference=True) == ""
    assert cpu.refusal(ENTRIES, NO_AVX, allow_reference=True) != ""
    assert cpu.refusal(ENTRIES, None) == ""
    assert cpu.kernels([], AVX2) is None
    assert cpu.refusal([], NO_AVX) == ""


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('kernels = "fast"', "native, emulated, reference, none"),
        ('kernels = "emulated"', "kernels[0].why"),
        ('kernels = "native"\nneeds = ["avx2"]', "the last entry must have no needs"),
        ('kernels = "native"\nprecision = ["fp8"]', "'fp8'"),
        ('kernels = "native"\nneed = []', "needs"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_the_key(tmp_path, table, says):
    (tmp_path / "resnet.py").touch()
    (tmp_path / "adapter.toml").write_text(f'title = "Toy"\ndistribution = "toy"\n[[kernels]]\n{table}\n')
    with pytest.raises(UsageError) as caught:
        reader.read(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", REAL)
def test_every_framework_says_what_it_does_on_any_cpu(name):
    """In each precision that its adapter runs on a CPU."""
    on_cpu = [one for one in REAL[name].support if "cpu" in one.device and one.status in RUNNABLE]
    for precision in {precision for one in on_cpu for precision in one.precision}:
        for found, family in product((NO_AVX, AVX2, AVX512, BF16, frozenset({"asimd"})), ("resnet", "bert")):
            entries = REAL[name].kernels_of(family, "cpu", precision)
            assert cpu.kernels(entries, found), (family, precision, found)


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_rows_whose_kernels_the_cpu_has_not_say_so_and_what_to_do(monkeypatch):
    _, made = planned(monkeypatch, AVX2, precision="amp", frameworks="pytorch,mxnet,tensorflow,jax")
    assert {job.adapter for job in made.jobs} == {"tensorflow", "jax"}
    whys = {skip.adapter: (skip.status, skip.why) for skip in made.skips}
    assert set(whys) == {"pytorch", "mxnet"}
    for status, why in whys.values():
        assert status == "hardware"
        assert "this CPU lacks avx512" in why
        assert "run --precision fp32" in why
    assert "--allow-reference" in whys["pytorch"][1]
    assert "--allow-reference" not in whys["mxnet"][1]


def test_allow_reference_makes_the_row_run(monkeypatch):
    _, made = planned(monkeypatch, AVX2, precision="amp", frameworks="pytorch,mxnet", allow_reference=True)
    assert [job.adapter for job in made.jobs] == ["pytorch"]


def test_with_avx512_all_four_run_amp(monkeypatch):
    _, made = planned(monkeypatch, AVX512, precision="amp", frameworks="all")
    assert {job.adapter for job in made.jobs} == {"pytorch", "mxnet", "tensorflow", "jax"}


def test_an_unknown_cpu_and_other_machines_are_planned_as_they_are_asked(monkeypatch):
    for found, given in ((None, {}), (NO_AVX, {"hosts": "localhost", "launcher": "mpi"})):
        asked, made = planned(monkeypatch, found, precision="amp,fp32", **given)
        assert asked.instructions is None
        assert not [skip for skip in made.skips if skip.status == "hardware"]


@pytest.mark.parametrize(("found", "frameworks", "chosen"), [
    (BF16, "all", "amp"),
    (AVX2, "all", "fp32"),
    (AVX2, "tensorflow,jax", "amp"),
    (AVX2, "pytorch,jax", "fp32"),
    (None, "all", "amp"),
])  # fmt: skip
def test_auto_is_amp_where_enough_frameworks_have_kernels_for_it(monkeypatch, capsys, found, frameworks, chosen):
    asked, _ = planned(monkeypatch, found, precision="auto", frameworks=frameworks)
    assert asked.precisions == (chosen,)
    said = spec.chosen_precision(asked, ADAPTERS)
    assert f"Comparing in {chosen}" in said
    assert "\n" not in said
    if chosen == "fp32":
        assert "PyTorch" in said
        assert "--precision amp" in said


def test_auto_stands_alone_and_amp_is_obeyed(monkeypatch):
    with pytest.raises(UsageError):
        planned(monkeypatch, AVX2, precision="auto,fp32")
    asked, _ = planned(monkeypatch, AVX2, precision="amp")
    assert asked.precisions == ("amp",)


# --- an emulated CPU --------------------------------------------------------------------------------------------------


def test_a_worker_on_an_emulated_cpu_is_started_by_the_emulator():
    launch = Launch("t", "n", Path("/env/bin/python"), Path("code"), "cpu", 1, {}, emulated="Haswell")
    last = launchers.find("local").script(launch).splitlines()[-1]
    assert last.strip() == f"{EMULATOR} -cpu Haswell /env/bin/python -m dlperf.adapters.worker job.json ."


@pytest.mark.parametrize("given", [{"device": "cuda"}, {"nproc_per_node": "2"}, {"frameworks": "pytorch-examples"}])
def test_emulation_is_refused_where_it_cannot_be(monkeypatch, given):
    with pytest.raises(UsageError, match="--emulate-cpu"):
        planned(monkeypatch, AVX2, emulate_cpu="Haswell", **given)


def test_a_cpu_that_nobody_emulates_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="qemu-user-static"):
        planned(monkeypatch, AVX2, emulate_cpu="Haswell")
    (tmp_path / EMULATOR).write_text("#!/bin/sh\necho no such CPU >&2\nexit 1\n")
    (tmp_path / EMULATOR).chmod(0o755)
    with pytest.raises(UsageError, match="-cpu help lists them"):
        planned(monkeypatch, AVX2, emulate_cpu="Pentium-9")


# --- the worker and the report ----------------------------------------------------------------------------------------


def test_a_worker_refuses_before_it_imports_the_framework(tmp_path, monkeypatch):
    """As on another host, whose CPU the plan could not know."""
    made = native.request
    entries = [
        {"needs": ["amx_fp128"], "kernels": "native", "why": ""},
        {"needs": [], "kernels": "none", "why": "built for wider registers"},
    ]
    monkeypatch.setattr(native, "request", lambda *asked: {**made(*asked), "kernels": entries})
    ended = call("compare", *FAKE, "-r", 1, "-o", tmp_path / "out")
    assert "unsupported: Unsupported: built for wider registers; this CPU lacks amx_fp128" in ended.stdout, ended.stderr


def test_an_illegal_instruction_is_explained(tmp_path):
    ended = Exit(-signal.SIGILL, False, 60.0, False)
    failure = failures.failure(ended, Stream(), tmp_path)
    assert failure.kind == "unsupported"
    assert "instruction that this CPU lacks" in failure.message


def sentences(**fields):
    made = comparison_from(json.loads(RESULTS.read_text()))
    first = next(index for index, record in enumerate(made.records) if record.done)
    changed = replace(made.records[first], **fields)
    return " ".join(caveats.caveats(replace(made, records=(changed,))))


def test_the_report_says_of_what_kind_the_kernels_are():
    kernels = {"needs": [], "kernels": "emulated", "why": "bfloat16 is converted to float32"}
    assert "emulated kernels on this CPU: bfloat16 is converted to float32." in sentences(kernels=kernels)


def test_the_report_says_that_a_cpu_was_emulated():
    said = sentences(environment={"kind": "venv", "emulated_cpu": "Haswell"})
    assert "The CPU was emulated (qemu-user, Haswell)" in said


@pytest.mark.parametrize(("seconds", "told"), [(0.1, True), (0.0099, False)])
def test_a_product_that_is_ten_times_slower_is_a_caveat(seconds, told):
    text = sentences(product={"size": 512, "seconds": seconds, "fp32_seconds": 0.001})
    assert ("100 times as long as NumPy's in float32" in text) is told


@pytest.mark.parametrize(("share", "told"), [(0.3, True), (0.6, False)])
def test_a_library_at_less_than_half_of_anothers_speed_is_a_caveat(share, told):
    made = comparison_from(json.loads(RESULTS.read_text()))
    one = next(record for record in made.records if record.done)
    product = {"large_size": 1000, "large_seconds": 0.01}
    fast = replace(one, product=product)
    slow = replace(fast, job=replace(one.job, system="slow"), product={**product, "large_seconds": 0.01 / share})
    said = " ".join(caveats.caveats(replace(made, records=(fast, slow))))
    assert (f"at {200 * share:.0f} GFLOP/s, PyTorch's at 200" in said) is told


def test_a_tuned_row_is_a_caveat():
    made = comparison_from(json.loads(RESULTS.read_text()))
    tuned = replace(made.jobs[0], system="framework+tuned", about={"tuned": "mkl=avx512: kernels"})
    said = " ".join(caveats.caveats(replace(made, jobs=(tuned,))))
    assert "does not document: framework+tuned (mkl=avx512: kernels)." in said


@pytest.mark.slow
def test_the_worker_times_a_product(tmp_path):
    call("compare", *FAKE, "-r", 1, "--set", "behave=reference", "-o", tmp_path / "out")
    (record,) = records(tmp_path / "out")
    assert record.product["seconds"] >= 0.2, "the fake framework sleeps for as long"
    assert record.product["fp32_seconds"] > 0
    assert rates.product_slowdown(record) == record.product["seconds"] / record.product["fp32_seconds"]
    assert record.product["copy_bytes"] == 2**28
    assert record.product["copy_seconds"] > 0


# --- the documentation and the doctor ---------------------------------------------------------------------------------


def test_the_documented_table_is_that_of_the_adapters(request):
    path = ROOT / "adapters" / "KERNELS.md"
    made = doctor.table(list(REAL.values()))
    if request.config.getoption("--update-golden"):
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8"), "python -m dlperf.doctor --table > adapters/KERNELS.md"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (NO_AVX, "no AVX (Nehalem)"),
        (AVX2, "AVX2 (Haswell; Zen to Zen 3)"),
        (BF16, "AVX-512 and bfloat16 (Cooper Lake; Zen 4)"),
        (frozenset({"asimd", "bf16", "i8mm"}), "Arm with bfloat16"),
        (frozenset(), "of no kind that dlperf knows"),
    ],
)
def test_a_cpu_has_a_kind(found, kind):
    assert doctor.kind(found) == kind


def test_the_doctor_fits_on_a_screen_and_says_what_will_run(monkeypatch, capsys):
    monkeypatch.setattr(cpu, "flags", lambda: AVX2)
    assert doctor.main([]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 40
    assert "AVX2 (Haswell; Zen to Zen 3)" in said
    assert "Comparing in fp32: on this CPU" in said
    for adapter in REAL.values():
        assert adapter.title in said
    assert "PyTorch: its bfloat16 products are a plain loop on one thread; this CPU lacks avx512bw" in said


def test_the_doctor_does_without_what_the_system_hides(monkeypatch, capsys):
    monkeypatch.setattr(cpu, "flags", lambda: None)
    monkeypatch.setattr(machine, "_read", lambda path: None)
    assert doctor.main([]) == 0
    assert "its instruction sets are hidden" in capsys.readouterr().out
