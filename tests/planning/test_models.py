"""What a family of models is: one module that keeps the contract of dlperf.models.traits."""

import subprocess
import sys
from types import ModuleType

import pytest
from places import ROOT

from dlperf import list as list_
from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks
from dlperf.catalog import reader
from dlperf.models import resnet, traits
from dlperf.models.batches import Batches
from dlperf.models.parameters import Parameter, count, initial

#: as their papers and other implementations have them
TRAINED = {
    "resnet50": 25_557_032,
    "se_resnet50": 28_088_024,
    "se_resnext50": 27_559_896,
    "vgg16": 138_357_544,
    "vgg16_cifar": 15_254_602,
    "bert_base": 110_106_428,
    "gpt2": 124_439_808,
    "transformer": 61_362_176,
    "transformer_big": 210_808_832,
    "word2vec": 212_784_651,
    "simnet_bow": 185_837_056,
    "ctr_dnn": 10_431_212,
}


def altered(**changes):
    """ResNet's module under another name, with other traits; None takes one away."""
    module = ModuleType("dlperf.models.resnet")
    vars(module).update({name: value for name, value in {**vars(resnet), **changes}.items() if value is not None})
    return module


def test_families_are_found_in_the_order_of_rows():
    names = ["resnet", "bert", "ctr_dnn", "gpt", "simnet_bow", "transformer", "vgg", "vgg_cifar", "word2vec"]
    assert list(models.FAMILIES) == names
    assert models.PROBLEMS == []


@pytest.mark.parametrize(("model", "trained"), TRAINED.items())
def test_a_model_has_the_published_number_of_parameters(model, trained):
    assert count(models.family(model).parameters(models.config(model))) == trained


def test_readme_lists_the_models():
    page = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    titles = {name: adapter.title for name, adapter in reader.adapters().items() if adapter.default}
    for row in list_.listed_models(reader.adapters()):
        one, work = row["sample"], f"{row['gigaflops']:,.10g} GFLOP"
        if row["gigaflops"] < 1e-3:
            work = f"{1e6 * row['gigaflops']:.3g} kFLOP"
        of = f"{work} {'an' if one[0] in 'aeiou' else 'a'} {one}"
        cells = [f"`{row['model']}`", row["title"], f"{row['parameters']:,}", of, str(row["batch_size_on_cpu"])]
        (line,) = (one for one in page if one.startswith(f"| {' | '.join(cells)} | "))
        several = [titles[name] for name in row["frameworks"]]
        assert line.endswith(f" | {'all six' if len(several) == len(titles) else ', '.join(several)} |")


def test_a_row_of_text_counts_by_its_tokens():
    assert [models.units(name) for name in ("resnet50", "bert_base", "gpt2", "gpt2_check")] == [1, 1, 1024, 32]


@pytest.mark.parametrize("model", models.NAMES)
def test_revealing_weights_are_other_values_of_the_same_tensors(model):
    family, config = models.family(model), models.config(model)
    usual, revealing = family.parameters(config), family.revealing(config)
    assert [one._replace(init=0.0) for one in revealing] == [one._replace(init=0.0) for one in usual]
    assert not {one.init for one in revealing if one.trained} & {"zeros", "ones"}


@pytest.mark.parametrize("rows", [slice(10), slice(1, None, 2), slice(5, 900, 3), slice(999, None), slice(2000)])
def test_some_rows_of_a_tensor_are_those_of_the_whole(rows, monkeypatch):
    monkeypatch.setattr("dlperf.models.parameters.BLOCK", 50)
    table = Parameter("table", (1000, 7), "embedding", (1.0, 0.3))
    assert (initial(table, 3, "float64", rows) == initial(table, 3, "float64")[rows]).all()


def test_words_are_as_frequent_as_zipf_has_them():
    family, config = models.family("word2vec_tiny"), models.config("word2vec_tiny")
    batch = family.batch(config, 20_000, 1, 0)
    counts = [(batch["words"] == word).mean() for word in range(4)]
    assert counts == pytest.approx([counts[0] / (1 + word) for word in range(4)], rel=0.1)
    assert (batch["negatives"] == batch["negatives"][0]).all()
    apart = family.batch(config._replace(shared=False), 20_000, 1, 0)["negatives"]
    assert (apart == 0).mean() == pytest.approx(1 / sum(k**-0.75 for k in range(1, 601)), rel=0.05)


def test_no_network_gets_all_pairs_of_simnet_right():
    family, config = models.family("simnet_bow_tiny"), models.config("simnet_bow_tiny")
    first, second, third = (family.batch(config, 8, 1, index) for index in range(3))
    assert (first["query"] == second["query"]).all()
    assert (first["title"] == second["other"]).all()
    assert (first["other"] == second["title"]).all()
    assert (first["query"] != third["query"]).any()
    lengths = (family.batch(config, 5000, 1, 0)["title"] >= 0).sum(1)
    assert [(lengths == one).mean() for one in range(1, 7)] == pytest.approx([1 / 6] * 6, abs=0.02)


def test_a_value_may_have_a_mean_and_a_deviation():
    values = initial(Parameter("layer.bias", (10_000,), "bias", (-3.5, 0.1)), seed=1)
    assert values.dtype == "float32"
    assert values.mean() == pytest.approx(-3.5, abs=0.01)
    assert values.std() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("trait", "value", "allowed"),
    [
        ("TITLES", {"resnet51": "ResNet-51"}, "names in SIZES -> texts"),
        ("ALIASES", {"resnet50": "resnet_tiny"}, "a dict of other names -> names in SIZES"),
        ("DEFAULT", "resnet51", "a name in SIZES or ALIASES, or empty"),
        ("SAMPLE", None, 'a text in the plural: "images"'),
        ("RATE_UNIT", 3, 'a text: "img/s"'),
        ("SIZES", 3, "a dict of name -> config"),
        ("SIZES", {"resnet_tiny": resnet.Config()}, "with X_check for each X"),
        ("SIZES", {"big": resnet.Config(), "big_check": resnet.Config()}, "with resnet_tiny"),
        ("DEFAULT", ["resnet50"], "a name in SIZES or ALIASES, or empty"),
        ("BATCH_SIZE", {"cpu": 4}, 'whole numbers from 1: {"cuda": '),
        ("INPUT", "tables", "COMMAND, FORMATS, formats, check, and Rows without FORMATS, in a module"),
        ("INPUT", "parameters", "COMMAND, FORMATS, formats, check, and Rows without FORMATS, in a module"),
        ("EFFECTIVE", "layout", "a tuple of texts"),
        ("MEANINGS", {"layout": "Order of axes."}, "those in EFFECTIVE and WORK too -> texts"),
        ("flops", None, "a function flops(config)"),
        ("batch", lambda config, count: {}, "a function batch(config, batch_size, seed, index)"),
    ],
)
def test_a_trait_that_is_missing_or_wrong_is_named_with_its_module(trait, value, allowed):
    problem = traits.wrong(altered(**{trait: value}), {})[0]
    assert problem.trait == f"dlperf.models.resnet.{trait}"
    assert problem.value == ("" if value is None else value)
    assert allowed in problem.allowed


def test_the_first_loss_is_that_of_a_guess():
    """Of one class in 1000; of one word in 30,522, and of a sentence that follows or does not; of a token in 50,257;
    of one in 33,708 by logits that are not small."""
    found = {
        one: models.family(one).first_loss(models.config(one))
        for one in ("resnet50", "bert_base", "gpt2", "transformer")
    }
    assert found == {
        "resnet50": (pytest.approx(6.9078, abs=1e-4), 0.05),
        "bert_base": (pytest.approx(11.0193, abs=1e-4), 0.05),
        "gpt2": (pytest.approx(10.8249, abs=1e-4), 0.05),
        "transformer": (pytest.approx(10.9255, abs=1e-4), 0.05),
    }


def test_shapes_tell_v1_5_and_the_gathered_head():
    """The first 1x1 of ResNet's stage 2 gives 56x56 in v1.5 (28x28 in v1); the MLM head sees 20 positions of 128."""
    shapes = {model: models.family(model).shapes(models.config(model)) for model in TRAINED}
    assert shapes["resnet50"] == {"layer2.0.conv1": (128, 56, 56), "logits": (1000,)}
    assert shapes["bert_base"] == {"mlm_logits": (20, 30522), "nsp_logits": (2,)}


def test_what_a_shape_shows_of_the_work_is_read_from_there():
    """A masked-word head that computes all 128 positions says so by its logits."""
    assert models.FAMILIES["bert"].observed({"mlm_logits": [128, 30522]}) == {
        "masked_positions": "128",
        "vocabulary": "30522",
    }
    assert models.FAMILIES["bert"].observed({"mlm_logits": [640]}) == {}


@pytest.mark.parametrize("trace_steps", [0, 1])
def test_each_rank_knows_the_masked_words_of_the_global_batch(trace_steps):
    job = Job("bert_tiny", "cpu", "fp32", 3, distinct_batches=1, trace_steps=trace_steps)
    batches = [Batches(job, Ranks(rank, 2))[0] for rank in range(2)]
    words = [batch["masked_weights"].sum() for batch in batches]
    assert words[0] != words[1]
    assert [float(batch["masked_total"]) for batch in batches] == [sum(words) / 2] * 2
    assert batches[0]["masked_total"].dtype == "float64"


def test_all_wrong_traits_come_at_once():
    assert len(traits.wrong(altered(SAMPLE="", RATE_UNIT="", flops=1), {})) == 3
    assert traits.wrong(altered(), {}) == []


def test_a_name_is_of_one_family():
    problems = traits.wrong(altered(), models.FAMILIES)
    assert {problem.value for problem in problems} == set(resnet.SIZES)
    assert "resnet has it" in problems[0].allowed


def test_importing_the_models_costs_nothing():
    subprocess.run([sys.executable, "-c", "import dlperf.models, sys; assert 'numpy' not in sys.modules"], check=True)
