"""Real workers of all frameworks, tiny models, both precisions, on CPUs that this machine is not: what runs and what
does not must be what the adapters' [[kernels]] tables say. The emulator knows nothing newer than AVX2."""

import subprocess
import sys

import pytest

from dlperf.adapters import cpu
from dlperf.catalog import reader
from dlperf.catalog.adapter import RUNNABLE
from dlperf.comparison import store
from dlperf.planning import checks

pytestmark = [pytest.mark.cpus, pytest.mark.framework]

REAL = {name: adapter for name, adapter in reader.adapters().items() if adapter.default}
#: to emulate; the empty one is this machine's own
CPUS = ("Nehalem", "Haswell", "")
#: the real command, in which every adapter's table is empty
UNTOLD = (
    "import sys\nfrom dlperf import compare\nfrom dlperf.catalog.adapter import Adapter\n"
    "Adapter.kernels_of = lambda *_: []\nsys.exit(compare.main(sys.argv[1:]))"
)


def compared(folder, name, model, processor, *how):
    """The comparison of one framework on a CPU, one step of each row."""
    words = ["-f", name, "-m", model, "-p", "fp32,amp", "--device", "cpu", "-r", "1", "--no-verify", "-o", str(folder)]
    words += ["--warmup-steps", "1", "--windows", "1", "--steps-per-window", "1", "--timeout", "900"]
    words += ["--emulate-cpu", processor] if processor else []
    ended = subprocess.run([sys.executable, *how, *words], capture_output=True, text=True)
    print(ended.stdout)
    assert "Report: " in ended.stdout, ended.stderr
    return store.open_folder(folder)


def expected(adapter, family, precision, found):
    """What the adapter's tables say of a row: what its kernels are, or "unsupported" in that precision."""
    if adapter.support_of(family, "cpu", precision, "synthetic").status not in RUNNABLE:
        return "unsupported"
    return str(cpu.kernels(adapter.kernels_of(family, "cpu", precision), found)["kernels"])


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("processor", CPUS, ids=lambda one: one or "own")
@pytest.mark.parametrize(("family", "model"), [("bert", "bert_tiny"), ("resnet", "resnet_tiny")])
def test_a_row_runs_as_its_adapter_says(tmp_path, name, processor, family, model):
    found = checks.emulated_flags(processor) if processor else cpu.flags()
    opened = compared(tmp_path / "out", name, model, processor, "-m", "dlperf.compare")
    ran = {record.job.precision: record for record in opened.records.values()}
    skipped = {skip.precision: skip for skip in opened.plan.skips}
    for precision in ("fp32", "amp_bf16"):
        kernels = expected(REAL[name], family, precision, found)
        print(f"{name}, {model}, {precision}, on {processor or 'this CPU'}: {kernels}")
        if kernels in cpu.RUN:
            assert ran[precision].failure is None, ran[precision].failure
            assert ran[precision].kernels["kernels"] == kernels
            assert ran[precision].environment.get("emulated_cpu", "") == processor
        else:
            assert skipped[precision].status == ("unavailable" if kernels == "unsupported" else "hardware")


NONE = [
    (name, processor, precision)
    for name, adapter in REAL.items()
    for processor, found in (("Nehalem", {"sse4_2"}), ("Haswell", {"avx", "avx2", "fma"}))
    for precision in ("fp32", "amp_bf16")
    if expected(adapter, "bert", precision, frozenset(found)) == "none"
]


@pytest.mark.parametrize(("name", "processor", "precision"), NONE, ids=lambda one: one)
def test_what_an_adapter_says_has_no_kernels_does_not_run(tmp_path, name, processor, precision):
    """Else the table would leave out a row that a reader wants."""
    opened = compared(tmp_path / "out", name, "bert_tiny", processor, "-c", UNTOLD)
    failed = {record.job.precision: record.failure for record in opened.records.values()}
    assert failed[precision], "it ran"
    print(f"{name}, {precision}, on {processor}: {failed[precision].kind}: {failed[precision].message}")
    assert failed[precision].kind in ("unsupported", "crash", "killed")
