"""Certificates are held to the runs of proofs that an archive has; and published archives go on verifying."""

from dataclasses import replace

import pytest
from places import ROOT

from dlperf.archive import proven, tar
from dlperf.archive.check import check
from dlperf.comparison import store

ARCHIVES = sorted((ROOT / "report" / "published").glob("*/*.dlperf.tar.gz"))
ROW = "bert_base-amp_bf16-jax-b4"


@pytest.fixture(scope="module")
def files():
    return tar.unpacked(next(one for one in ARCHIVES if "-amp" in one.name))


@pytest.mark.parametrize("file", ARCHIVES, ids=lambda file: file.parent.name)
def test_published_archives_verify(file):
    found = check(file, render=False)
    assert (found.problems, found.uncompared) == ((), ())


def of(number, **more):
    """A certificate of ROW with other fields, or with other fields of its trajectory."""

    def change(comparison):
        several = list(comparison.proofs[ROW])
        one = several[number]
        own = {name: value for name, value in more.items() if hasattr(one, name)}
        told = {name: value for name, value in more.items() if name not in own}
        several[number] = replace(one, trajectory=replace(one.trajectory, **told), **own)
        return replace(comparison, proofs={**comparison.proofs, ROW: tuple(several)})

    return change


def worse(comparison):
    several = list(comparison.proofs[ROW])
    bounds = tuple(replace(bound, found=9.0) for bound in several[1].bounds)
    several[1] = replace(several[1], bounds=bounds)
    return replace(comparison, proofs={**comparison.proofs, ROW: tuple(several)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda whole: whole, ""),
        (
            lambda whole: replace(whole, proofs={}),
            "results.json has no certificate of proofs/bert_base_check-amp_bf16-jax.",
        ),
        (of(1, losses=(1.0,)), "its certificate in amp_bf16: losses is (1.0,) in results.json, and "),
        (of(1, versions={"jax": "9"}), "its certificate in amp_bf16: jax in versions is 9 in results.json, and "),
        (of(1, peak_memory_bytes=1), "its certificate in amp_bf16: peak_memory_bytes is 1 in results.json, and "),
        (of(1, command="x"), "its certificate in amp_bf16: its command is not launch.sh of proofs/bert_base_check-amp"),
        (of(0, differences=()), "its certificate in fp64: its verdict is same, and it is within the bars of no other."),
        (of(1, bounds=()), "its certificate in amp_bf16: its verdict is same, and it has no bounds."),
        (worse, "its certificate in amp_bf16: its verdict is same, and losses are outside of their bound."),
        (
            lambda whole: replace(whole, machine={**whole.machine, "cpu": "x"}),
            "its certificate in fp64: it was made on AMD EPYC, and the machine of results.json is x.",
        ),
    ],
)
def test_a_certificate_that_its_run_does_not_give_is_found(files, change, says):
    comparison = change(store.results(files["results.json"], ""))
    found = list(proven.proofs(files, comparison))
    assert not found if not says else any(one.startswith(f"{ROW}: {says}") for one in found), found


def test_what_looked_at_a_run_is_there(files):
    comparison = store.results(files["results.json"], "")
    looked = [name for name in files if not name.startswith(f"proofs/{ROW}-from-revealing-weights/")]
    (found,) = proven.proofs({name: files[name] for name in looked}, comparison)
    assert found.endswith(": results.json has it looked at from revealing weights, and no run in proofs/ did.")
