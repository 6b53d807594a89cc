"""Which trajectories are made: how large they are, and how many at a time."""

from __future__ import annotations

import dataclasses

import pytest
from trajectories import asked as job_of

from dlperf.proof import asked, bars, published


@pytest.mark.parametrize(
    ("model", "rows"),
    [("bert_base", 4), ("vgg16", 4), ("gpt2_256", 4), ("bert_base_512", 2), ("gpt2", 1), ("gpt2_xl", 1)],
)
def test_long_rows_are_fewer_at_the_real_size(model: str, rows: int) -> None:
    assert asked.batch_size(model) == rows
    assert asked.batch_size(model + "_check") == 4


def test_what_takes_rounding_further_than_float32_can_be_held_to_has_fewer_steps() -> None:
    models = ("vgg16_cifar", "vgg16_cifar_check", "vgg_cifar_tiny", "vgg16", "vgg16_check")
    assert [asked.steps(model) for model in models] == [1, 1, 10, 6, 10]
    like = published.published("vgg16_cifar")
    assert like.steps == len(like.losses) == 1
    single = dataclasses.replace(like, precision="fp32")
    first, ten = bars.bars_for(single), bars.bars_for(dataclasses.replace(single, steps=10))
    assert (first.gradients, round(first.changes, 3), ten.changes) == (0.02, 0.160, 0.1)


def test_ranks_share_the_rows_of_one() -> None:
    one = job_of("pytorch", "bert_tiny", 1, precision="fp64")
    assert (one.run.batch_size, job_of("pytorch", "bert_tiny", 2, precision="fp64").run.batch_size) == (4, 2)


def test_each_mode_and_number_of_parameter_servers_has_a_proof_of_its_own() -> None:
    """A comparison keeps them by name, and judges those of one pool by the names of their systems."""
    rows = [job_of("pytorch", "word2vec_tiny", 2, servers=n, mode=how) for n in (1, 2) for how in ("sync", "async")]
    assert len({one.name for one in rows}) == len({one.pool for one in rows}) == 4
    assert [one.run.servers for one in rows] == [1, 1, 2, 2]
    single = [dataclasses.replace(one, ranks=1) for one in rows]
    assert len({one.name for one in single}) == 2
    assert {one.run.servers for one in single} == {1}


def test_float64_takes_twice_the_memory_of_float32() -> None:
    double, single = (asked.Asked(job_of("pytorch", "bert_tiny", 1).job, "bert_base", one) for one in ("fp64", "fp32"))
    fixed = asked.BESIDES
    assert asked.memory(double) - fixed == pytest.approx(2 * (asked.memory(single) - fixed), abs=1)
    assert 7.5 * 2**30 < asked.memory(double) < 12 * 2**30, "OneFlow took 7.5 GiB"


def test_two_are_made_at_a_time_where_memory_has_room_for_both() -> None:
    one = asked.Asked(job_of("pytorch", "bert_tiny", 1).job, "bert_base", "fp64")
    assert asked.at_once([one], 2, 2 * asked.memory(one)) == 2
    assert asked.at_once([one], 2, 2 * asked.memory(one) - 1) == 1
    assert asked.at_once([one], 1, 10 * asked.memory(one)) == 1


def test_on_a_gpu_as_many_as_have_threads_to_compile_and_memory_on_both_sides() -> None:
    of_gpu = dataclasses.replace(job_of("pytorch", "bert_tiny", 1).job, device="cuda")
    one = asked.Asked(of_gpu, "bert_base", "fp64")
    enough = 8 * asked.memory(one)
    assert asked.at_once([one], 16, enough, [enough]) == 4
    assert asked.at_once([one], 11, enough, [enough, enough]) == 2
    assert asked.at_once([one], 16, enough // 4, [enough]) == 1
    assert asked.at_once([one], 16, enough, [enough, 4 * asked.memory(one)]) == 2
    assert asked.at_once([one], 16, enough, [None]) == asked.at_once([one], 16, enough) == 1
