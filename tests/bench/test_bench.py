"""`make bench`: its plain adapters are whole, it runs pairs only, and its table is right. The ratios are no test.

`make gpu`: what it would run is right, and it ends in time."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import sys
import tarfile
import time
import zipfile
from dataclasses import replace
from typing import Any

import pytest
from commands import call, records
from places import ROOT

from dlperf import compare, verify
from dlperf.catalog import adapter, reader
from dlperf.catalog.adapter import RUNNABLE, Adapter
from dlperf.comparison import store
from dlperf.errors import UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import from_spec
from dlperf.planning.spec import PROTOCOLS, Spec
from dlperf.schema import Comparison, Failure, Job, Record, Skip, Window

FOLDER = ROOT / "tests" / "bench"
PLAIN = {path.parent.name: reader.read(path.parent) for path in sorted(FOLDER.glob("*/adapter.toml"))}


def script(name: str) -> Any:
    found = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert found
    assert found.loader
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


bench, gpu, profile = script("bench"), script("gpu"), script("profile")

SHORT = ("--protocol", "quick", "-r", 1)
#: of an adapter that says `proven = false`
HANDSOFF = """\
from dlperf.adapters.fake import resnet
from dlperf.adapters.fake.resnet import product, versions

class Trainer(resnet.Trainer):
    def parameters(self):
        raise NotImplementedError

def build(job, ranks):
    return Trainer(job, ranks)
"""
TABLE = """\
framework   model      precision  unit         ours (n)  plain (n)      ours / plain       of the peak  note
mxnet       resnet50   fp32       img/s        9.9 (3)   9.9 (3)        1.00 [1.00, 1.00]  49 %         tie; plain is v1
pytorch     bert_base  fp32       sentences/s  3 (1)     4 (1)          0.75               42 %         one run
pytorch     resnet50   amp        img/s        20 (3)    10 (3)         2.00 [2.00, 2.00]  98 %         faster
pytorch     resnet50   fp32       img/s        8 (3)     10 (3)         0.80 [0.79, 0.82]  39 %         slower
tensorflow  resnet50   fp32       img/s        5 (3)     out_of_memory
no ratio: jax bert_base fp32, amp: the plain way: it has no BERT
no ratio: paddle resnet50 amp: ours: no bf16 kernels"""


def test_each_adapter_of_all_frameworks_has_a_plain_one_that_is_in_none_of_them():
    assert set(PLAIN) == {f"{name}_plain" for name, one in reader.adapters().items() if one.default}
    assert not any(one.default for one in PLAIN.values())


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_adapter_says_of_every_combination_whether_it_runs(name):
    for combination in adapter.combinations():
        entries = [entry for entry in PLAIN[name].support if entry.covers(*combination)]
        assert len(entries) == 1 or (not entries and combination[0] not in PLAIN[name].families), combination


@pytest.mark.parametrize("name", PLAIN)
def test_what_runs_has_its_module_and_a_lock_with_the_framework_of_ours(name):
    for entry in PLAIN[name].support:
        if entry.status in RUNNABLE:
            assert all((FOLDER / name / f"{family}.py").exists() for family in entry.family)
            if entry.device == ("cuda",):  # in the running Python, by `make gpu`
                continue
            ours = reader.adapters()[name.removesuffix("_plain")]
            assert _pin(PLAIN[name]) == _pin(ours)


def _pin(adapter: Adapter) -> list[str]:
    """The lock's lines from the framework's own to its last hash."""
    lines = adapter.environments["cpu"].lock.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.partition("==")[0] in adapter.distribution)
    end = next(i for i, line in enumerate(lines[start:], start) if not line.endswith("\\"))
    return lines[start : end + 1]


def test_only_rows_with_two_sides_are_run():
    adapters = {**reader.adapters(), **PLAIN}
    spec = Spec(("resnet50", "bert_base"), ("fp32",), ("pytorch", "fake"), "cpu", "venv", PROTOCOLS["quick"])
    planned = bench.pairs(spec, adapters)
    assert [(job.adapter, job.model, job.batch_size) for job in planned.jobs] == [
        ("pytorch", "resnet50", 8),
        ("pytorch_plain", "resnet50", 8),
        ("pytorch", "bert_base", 4),
        ("pytorch_plain", "bert_base", 4),
    ]
    assert [(skip.adapter, skip.why) for skip in planned.skips] == [
        ("fake", "there is no tests/bench/fake_plain"),
        ("fake", "there is no tests/bench/fake_plain"),
    ]


def test_two_workers_share_the_threads():
    spec = Spec(("word2vec",), ("fp32",), ("pytorch",), "cpu", "venv", PROTOCOLS["quick"], threads=4)
    assert bench.shared(spec).threads == 2
    assert bench.shared(replace(spec, models=("resnet50",))).threads == 4
    with pytest.raises(UsageError, match="word2vec: It has two workers"):
        bench.shared(replace(spec, models=("resnet50", "word2vec")))


def test_the_table_of_made_up_runs():
    pairs = {
        ("pytorch", "resnet50", "fp32"): ([7.9, 8.0, 8.1], [9.8, 10.0, 10.2]),
        ("pytorch", "resnet50", "amp"): ([19.6, 20.0, 20.4], [9.8, 10.0, 10.2]),
        ("pytorch", "bert_base", "fp32"): ([3.0], [4.0]),
        ("mxnet", "resnet50", "fp32"): ([9.7, 9.9, 10.1], [9.7, 9.9, 10.1]),
        ("tensorflow", "resnet50", "fp32"): ([4.9, 5.0, 5.1], []),
    }
    records = []
    for (framework, model, precision), sides in pairs.items():
        for name, rates in zip((framework, framework + "_plain"), sides, strict=True):
            records += _runs(_job(name, model, precision), rates, "plain is v1" if name == "mxnet_plain" else "")
    skips = [_skip("jax_plain", "bert_base", asked, "it has no BERT") for asked in ("fp32", "amp")]
    skips.append(_skip("paddle", "resnet50", "amp", "no bf16 kernels"))
    jobs = tuple(dict.fromkeys(record.job.id for record in records))
    by_id = {record.job.id: record.job for record in records}
    made = Comparison({}, {}, "", "", 0, tuple(by_id[one] for one in jobs), tuple(records), tuple(skips))
    assert bench.table(made) == TABLE
    machine = {"cpu": "A CPU", "instruction_sets": ["avx2"], "usable_threads": 2}
    page = bench.page([replace(made, machine=machine, spec={"threads": 1}, created="2026-11-25T12:00:00+00:00")])
    assert "## A CPU (avx2), 2 threads, 2026-11-25" in page
    assert "| pytorch | resnet50 | fp32 | img/s | 8 (3) | 10 (3) | 0.80 [0.79, 0.82] | 39 % | slower |" in page
    assert "- no ratio: paddle resnet50 amp: ours: no bf16 kernels" in page


def test_a_pair_of_which_nothing_ran_is_in_the_table():
    """Of a bench that was interrupted."""
    jobs = tuple(_job(name, "resnet50", "fp32") for name in ("jax", "jax_plain"))
    assert bench.table(Comparison({}, {}, "", "", 0, jobs, (), ())).split("\n")[-1].split()[-4:] == ["not", "run"] * 2


def test_the_page_is_of_the_results():
    results = [store.open_results(path) for path in sorted(bench.RESULTS.glob("*.json"))]
    page = bench.PAGE.read_text() if bench.PAGE.exists() else ""
    assert page == (bench.page(results) if results else ""), "make bench-page"


def _job(adapter: str, model: str, precision: str) -> Job:
    family = "resnet" if model == "resnet50" else "bert"
    name = f"{model}-{precision}-{adapter}"
    return Job(name, adapter, adapter, "", model, family, "cpu", precision, "", 8, "synthetic", None, {}, "cpu")


def _skip(adapter: str, model: str, precision: str, why: str) -> Skip:
    return Skip(adapter, adapter, "", model, "", "cpu", precision, "", "never", why)


def _runs(job: Job, rates: list[float], note: str) -> list[Record]:
    """One run for each rate, which timed a product at 500 GFLOP/s; one that ran out of memory where there is none."""
    if not rates:
        return [Record(job, 0, "", 1.0, "", "", {}, failure=Failure("out_of_memory", "no memory"))]
    told = {"effective": {"note": note}, "product": {"large_size": 1000, "large_seconds": 0.004}}
    return [
        Record(job, i, "", 1.0, "", "", {}, windows=(Window(0, 1, 8, 8 / rate, 1.0, 1.0),), **told)
        for i, rate in enumerate(rates)
    ]


#: of adapters.api.Trainer, what a worker asks one of that runs in one process and is not traced
ASKED = {
    "parameter_count",
    "effective",
    "shapes",
    "input_seconds",
    "step",
    "wait",
    "read",
    "parameters",
    "peak_memory",
    "close",
}


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*_plain/*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_plain_trainer_has_all_that_a_worker_asks(path):
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.ClassDef) and one.name == "Trainer":
            stores = [node for node in ast.walk(one) if isinstance(getattr(node, "ctx", None), ast.Store)]
            named = {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
            named |= {getattr(node, "attr", "") or getattr(node, "id", "") for node in stores}
            assert named >= ASKED


def test_a_row_that_hands_out_no_tensors_is_measured_without_a_proof(tmp_path, monkeypatch):
    made = shutil.copytree(ROOT / "adapters" / "fake", tmp_path / "adapters" / "handsoff")
    (made / "adapter.toml").write_text(f"proven = false\n{(made / 'adapter.toml').read_text()}")
    (made / "bert.py").write_text(HANDSOFF)
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path / "adapters"))
    ended = call("compare", "-f", "handsoff", "-m", "bert_tiny", "--env", "current", *SHORT, "-o", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    (record,) = records(tmp_path / "out")
    assert record.done
    assert not list((tmp_path / "out" / "proofs").glob("*"))
    assert "not comparable: no proof" in (tmp_path / "out" / "report.md").read_text()
    ended = call("verify", "-f", "handsoff", "-m", "bert_tiny", "--env", "current")
    assert ended.returncode == 2
    assert "--frameworks handsoff: they hand out no tensors" in ended.stderr


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_step_on_a_gpu_plans_rows(tmp_path, device, bfloat16):
    adapters = {**reader.adapters(), **PLAIN}
    for name, of_step in gpu.commands(tmp_path, device, 3, list(gpu.SYSTEMS)).items():
        for program, *words in of_step:
            if program == "profile":
                continue
            parser = {"compare": compare, "verify": verify}[program].parser()
            given = {key: value for key, value in vars(parser.parse_args(words)).items() if value is not None}
            spec = from_arguments(
                {**DEFAULTS, "dry_run": True, **given}, adapters, ("fp64", "fp32", "tf32", "amp", "bf16")
            )
            planned = from_spec(spec, adapters)
            assert planned.jobs, name
            assert {skip.status for skip in planned.skips} <= {"option", "not_yet", "unavailable"}, name


def test_a_graph_that_a_gpu_refuses_is_left_out_of_what_follows(tmp_path):
    (tmp_path / "resnet50").mkdir()
    lines = [{"failure": failure, "job": {"system": system}} for failure, system in ((None, "jax"), ({}, "pytorch"))]
    told = tmp_path / "resnet50" / "records.jsonl"
    told.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "pytorch.graph=off" not in gpu.commands(tmp_path, "cuda", 3, ["pytorch"])["bert"][0]
    told.write_text(
        told.read_text() + json.dumps({"failure": {"kind": "crash"}, "job": {"system": "pytorch+inductor"}})
    )
    assert "pytorch.graph=off" in gpu.commands(tmp_path, "cuda", 3, ["pytorch"])["bert"][0]


def test_a_step_that_takes_too_long_is_interrupted():
    waits = "import signal, sys, time\ntry: time.sleep(300)\nexcept KeyboardInterrupt: sys.exit(130)"
    assert gpu._run([sys.executable, "-c", waits], {}, 2.0) == 3
    assert gpu._run([sys.executable, "-c", "import sys; sys.exit(1)"], {}, 300.0) == 1


def test_libraries_of_an_interrupted_compilation_are_made_again(tmp_path):
    whole, cut = tmp_path / "a" / "whole.so", tmp_path / "b" / "cut.so"
    for path, age in ((whole, 1000), (cut, 1)):
        path.parent.mkdir()
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    gpu.forget_half_made(tmp_path)
    assert whole.exists()
    assert not cut.exists()


@pytest.mark.parametrize(("gained", "said"), [(1, "not finished: call again"), (0, "failed")])
def test_a_step_of_which_nothing_fits_into_a_call_is_left(tmp_path, monkeypatch, capsys, gained, said):
    monkeypatch.setattr(gpu, "SYSTEMS", {"fake": "json"})
    counts = iter([0, gained])
    monkeypatch.setattr(gpu, "made", lambda folder: next(counts))
    monkeypatch.setattr(gpu, "_step", lambda *words: 3)
    assert gpu.main(["bert", "-o", str(tmp_path), "--device", "cpu"]) == (2 if said == "failed" else 3)
    assert f"bert: {said}" in capsys.readouterr().out
    assert (tmp_path / "bert" / "done").exists() == (said == "failed")


def test_what_is_packed_holds_no_code_and_no_caches(tmp_path):
    for name in (
        "bert/report.md",
        "bert/code/dlperf/__init__.py",
        "bert/proofs/x/trajectory.npz",
        "cache/x",
        "package/x",
    ):
        path = tmp_path / "gpu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    gpu.pack(tmp_path / "gpu", tmp_path / "out" / "gpu.tar.gz")
    with tarfile.open(tmp_path / "out" / "gpu.tar.gz") as packed:
        assert [one.name for one in packed if one.isfile()] == ["gpu/bert/report.md"]


def test_a_profile_lists_kernels_by_time():
    text = profile.table("row", 0.004, {"small": 0.005, "large": 0.01}, {"small": 10, "large": 5})
    assert text.splitlines() == [
        "row: 4.000 ms a step without the profiler; kernels 3.000 ms, 3 of them",
        "  ms/step   share   calls  kernel",
        "    2.000   66.7%     1.0  large",
        "    1.000   33.3%     2.0  small",
    ]


def test_what_dlperf_lacks_is_named_or_carried(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "NEEDS", ("json", "nowhere"))
    monkeypatch.setattr(gpu, "CARRIED", tmp_path / ".whl")
    monkeypatch.setattr(gpu, "SYSTEMS", {"pytorch": "json"})
    assert gpu.main(["--device", "cpu", "-o", str(tmp_path / "gpu"), "bert"]) == 2
    assert "lacks nowhere, which dlperf needs" in capsys.readouterr().err
    (tmp_path / ".whl").mkdir()
    with zipfile.ZipFile(tmp_path / ".whl" / "nowhere-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("nowhere/__init__.py", "")
    assert gpu.lacking(tmp_path / "gpu") == []
    assert str(tmp_path / "gpu" / "site") in gpu.variables(tmp_path / "gpu")["PYTHONPATH"]
