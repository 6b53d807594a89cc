"""What a comparison is expected to take: against what published ones took, and in words."""

import dataclasses
import json

import places
import pytest

from dlperf import stored
from dlperf.catalog import reader
from dlperf.comparison import estimate
from dlperf.comparison.estimate import Here
from dlperf.errors import UsageError
from dlperf.planning import plan
from dlperf.planning.spec import Protocol, Spec, spec_from
from dlperf.proof import asked as asked_
from dlperf.proof import certificates, references
from dlperf.proof.certificates import CERTIFICATE

GOLDEN = places.GOLDEN / "estimate.txt"
ADAPTERS = reader.adapters()
QUICK = Protocol("quick", 2, 3, 2, 3)
SPEC = Spec(("bert_base",), ("amp",), ("jax", "mxnet", "pytorch", "tensorflow"), "cpu", "venv", QUICK, threads=2)
JOBS = plan.from_spec(SPEC, ADAPTERS).jobs
ZEN5 = Here(("avx2", "avx512f", "avx512_bf16"), "x86_64", 2.0, 79 * 10**9, 22 * 10**9)
MADE = frozenset((name, "cpu") for name in SPEC.frameworks)


def of(spec=SPEC, here=ZEN5):
    return estimate.expected(spec, plan.from_spec(spec, ADAPTERS).jobs * spec.protocol.repeats, ADAPTERS, here)


# --- how far off: the figures of the estimate's docstring -------------------------------------------------------------

PUBLISHED = sorted((places.ROOT / "report" / "published").glob("2026-11-2[12]-cpu-*/results.json"))


def published(path):
    """A comparison, its spec, and the machine that it ran on."""
    found = json.loads(path.read_text())
    found.pop("schema")
    comparison = stored.comparison_from(found)
    places = {"nnodes": (1,), "nproc_per_node": (1,), "hosts": (), "predict": ()}  # older ones do not name them
    machine = comparison.machine
    here = Here(tuple(machine["instruction_sets"]), machine["architecture"], float(machine["usable_threads"]))
    return comparison, spec_from({**places, **comparison.spec}), here


def test_there_are_published_reports():
    assert len(PUBLISHED) == 7


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_the_time_of_runs(path):
    comparison, spec, here = published(path)
    pairs = [(record.seconds, estimate.run_seconds(record.job, spec, here)) for record in comparison.records]
    assert 0.98 <= sum(took for took, _ in pairs) / sum(expected for _, expected in pairs) <= 1.32
    assert all(0.45 <= took / expected <= 2.4 for took, expected in pairs)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_the_memory_of_runs(path):
    comparison, _, _ = published(path)
    for record in comparison.records:
        expected = estimate.run_memory(record.job, ADAPTERS[record.job.adapter]) / record.job.nproc_per_node
        assert 0.5 <= record.peak_memory_bytes / expected <= 1.0, record.job.id


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_the_time_of_proofs(path):
    """Each of one rank had one thread, those of several a thread for each."""
    comparison, _, here = published(path)
    took, expected = {}, {}
    for job in comparison.jobs:
        asked = {(one.model, one.precision, one.ranks): one for one in asked_.trajectories(job)}
        for certificate in comparison.proofs[job.id]:
            made = certificate.trajectory
            one = asked[made.model, made.precision, made.ranks]
            took[one.name], expected[one.name] = made.seconds, estimate._proof_seconds(one, 1.0, here)
    assert 0.8 <= sum(took.values()) / sum(expected.values()) <= 1.3
    assert all(0.45 <= took[name] / expected[name] <= 2.7 for name in took)


# --- what it follows from ---------------------------------------------------------------------------------------------


def seconds(here, precision="fp32", spec=SPEC):
    (job,) = plan.from_spec(dataclasses.replace(spec, precisions=(precision,), frameworks=("jax",)), ADAPTERS).jobs
    return estimate.run_seconds(job, spec, here)


def test_more_instructions_and_more_cores_take_less_time():
    kinds = [(), ("avx2",), ("avx2", "avx512f"), ("avx2", "avx512f", "avx512_bf16")]
    amp = [seconds(dataclasses.replace(ZEN5, instruction_sets=kind), "amp") for kind in kinds]
    assert amp == sorted(amp, reverse=True)
    assert len(set(amp)) == 4
    assert seconds(dataclasses.replace(ZEN5, cores=0.5)) > 3 * seconds(ZEN5), "half a core"


@pytest.mark.parametrize("here", [dataclasses.replace(ZEN5, architecture="aarch64", instruction_sets=("asimd",))])
def test_nothing_is_said_of_time_where_nothing_was_measured(here):
    found = of(here=here)
    assert (found.seconds, found.each) == (None, {})
    assert "about" not in estimate.text(found)[0]
    cuda = of(dataclasses.replace(SPEC, device="cuda"))
    assert (cuda.seconds, cuda.memory) == (None, {})


def test_proofs_that_are_there_take_no_time():
    wanted = estimate.proofs(plan.from_spec(SPEC, ADAPTERS).jobs, ADAPTERS)
    assert len(wanted) == 12
    with_ = of()
    without = of(here=dataclasses.replace(ZEN5, proved=frozenset(one.name for one in wanted)))
    assert (with_.proofs, without.proofs, of(dataclasses.replace(SPEC, verify=False)).proofs) == (12, 0, 0)
    assert with_.seconds > without.seconds + 60
    unseen = of(dataclasses.replace(SPEC, verify=False))
    assert unseen.seconds == pytest.approx(sum(unseen.each.values()) * 3)


def test_what_runs_are_held_against_takes_time_unless_it_is_there():
    """BERT-base in bfloat16, four rows: two of the reference's runs with dropout and two from revealing weights, for
    each row a step of it, twice, and a short run."""
    wanted = estimate.proofs(plan.from_spec(SPEC, ADAPTERS).jobs, ADAPTERS)
    proved = dataclasses.replace(ZEN5, proved=frozenset(one.name for one in wanted))
    rows = sum(of(here=proved).each.values()) * 3
    assert rows + 120 < of(here=proved).seconds < rows + 600
    name = "bert_base-{}-b4-{}-clip_norm=1.0-{}-reference"
    masked = {name.format("fp32", "2+3x2", seed) for seed in references.SEEDS}
    bare = {name.format(one, "6+0x2", f"revealing-{references.SEEDS[0]}") for one in ("fp64", "amp_bf16")}
    found = of(here=dataclasses.replace(proved, referenced=frozenset(masked | bare)))
    assert found.seconds < of(here=proved).seconds - 60


def test_rows_elsewhere_say_nothing_of_disk_and_memory():
    for elsewhere in ({"hosts": ("a", "b"), "nnodes": (2,), "launcher": "mpi"}, {"launcher": "slurm"}):
        found = of(dataclasses.replace(SPEC, **elsewhere))
        assert (found.disk, found.memory) == (False, {})
        (line,) = estimate.text(found)
        assert "GB" not in line


def test_a_certificate_in_the_cache_is_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path))
    one = estimate.proofs(plan.from_spec(SPEC, ADAPTERS).jobs, ADAPTERS)[0]
    assert not certificates.kept(one)
    label = f"{one.job.adapter}-{one.model}-cpu-{one.precision}"
    folder = tmp_path / "certificates" / f"{label}-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / CERTIFICATE).write_text("{}")
    assert certificates.kept(one)
    assert not certificates.kept(dataclasses.replace(one, ranks=2))


def test_looking_at_this_machine_starts_no_process(monkeypatch, tmp_path):
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "not" / "there"))
    monkeypatch.setattr("subprocess.Popen", None)
    found = estimate.look(SPEC, plan.from_spec(SPEC, ADAPTERS).jobs, [], ADAPTERS)
    assert found.made == frozenset()
    assert found.free > 0
    assert found.cores > 0


# --- in words ---------------------------------------------------------------------------------------------------------


def test_the_text(request):
    fp32 = dataclasses.replace(SPEC, precisions=("fp32",), frameworks=("oneflow", "pytorch"))
    dali = dataclasses.replace(SPEC, env="current", verify=False, frameworks=("jax",))
    cases = {
        "nothing is there": of(),
        "all is there": of(here=dataclasses.replace(ZEN5, made=MADE)),
        "a full disk": of(here=dataclasses.replace(ZEN5, free=2 * 10**9)),
        "little memory": of(fp32, dataclasses.replace(ZEN5, available=4 * 10**9)),
        "one row, this interpreter, half a core": of(dali, dataclasses.replace(ZEN5, cores=0.5)),
        "a GPU": of(dataclasses.replace(SPEC, device="cuda")),
        "some runs are left": estimate.expected(
            SPEC, plan.from_spec(SPEC, ADAPTERS).jobs * 2 + JOBS[:1], ADAPTERS, ZEN5
        ),
    }
    text = "".join(f"# {name}\n" + "".join(f"{line}\n" for line in estimate.text(one)) for name, one in cases.items())
    text = text.replace(str(estimate.cache.folder()), "CACHE")
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("seconds", "says"), [(3, "10 s"), (44, "40 s"), (100, "2 min"), (860, "14 min"), (9000, "2.5 h"), (72000, "20 h")]
)
def test_durations_are_rounded(seconds, says):
    assert estimate.about(seconds) == says


@pytest.mark.parametrize(("key", "value"), [("gigabytes", '"1.2"'), ("gigabytes", "true"), ("memory", "0")])
def test_a_size_that_is_no_number_is_refused(tmp_path, key, value):
    toml = (places.ROOT / "adapters" / "fake" / "adapter.toml").read_text()
    (tmp_path / "adapter.toml").write_text(
        toml.replace("[environment.cpu]\n", f"[environment.cpu]\n{key} = {value}\n", 1)
    )
    with pytest.raises(UsageError) as raised:
        reader.read(tmp_path)
    assert f"environment.cpu.{key}" in str(raised.value)
    assert "allowed: a number" in str(raised.value)
