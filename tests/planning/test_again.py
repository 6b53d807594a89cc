"""A request is asked again: from a Spec to options and back, and from files."""

import json

import pytest
from commands import FAKE, call
from places import ROOT

import dlperf
from dlperf import compare, given
from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.errors import UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning import again, checks
from dlperf.planning.spec import spec_from

ADAPTERS = reader.adapters()
PUBLISHED = sorted((ROOT / "report" / "published").glob("2026-*/results.json"))


@pytest.fixture(autouse=True)
def _processor(bfloat16):
    pass


def spec(arguments):
    asked = {name: arguments[name] for name in DEFAULTS if arguments[name] is not None}
    return checks.from_arguments({**DEFAULTS, **asked, "dry_run": True}, ADAPTERS)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "-m all -p fp32,amp -f pytorch,jax,pytorch --device cpu",
        "-m bert --sequence-length 512 -b 3 --compile on --set clip_norm=off --set pytorch.masks=16bits",
        "--global-batch-size 8 --nnodes 1,2 --nproc-per-node 2 --hosts a,b --launcher mpi --predict 8,16 --device cuda",
        "--nnodes 2 --launcher slurm --launcher-arg partition=gpu --env docker --image ngc,pytorch=x/y:1 --device cuda",
        "-b 2 -m bert --sweep batch-size=4,8 --sweep workers=1,2",
        "--nnodes 2 --launcher slurm --sweep batch-size=4,8 --sweep workers=2,4 --crossed",
        "--size 1n1d-b8,1n2d",
        "-f fake -m bert --parallelism parameter-server --servers 1,2 --workers 2,4 --ps-mode sync,async",
        "-f fake -m bert --parallelism parameter-server --servers 2 --sweep servers=1,4 --sweep batch-size=3,5",
        "-f pytorch -m resnet_tiny --gradient-compression none,dgc --nproc-per-node 2",
        "--protocol dlperf --device cuda -b max",
        "--protocol dlperf --device cuda --warmup-steps 20 --windows 4",
        "--protocol dlperf --device cuda --steps-per-window 7 -r 3 --aa 2 --seed 0",
        "--protocol quick --until 3.5% --max-time 60.5 --timeout 7.25 --threads 1 --no-verify --allow-reference",
        "--until 0.123456789% --max-blocks 9",
    ],
)
def test_what_a_command_line_asks_is_asked_again(words):
    made = spec(vars(compare.parser().parse_args(words.split())))
    options = given.arguments(again.options(made))
    assert spec(options) == made
    assert spec(given.arguments(again.options(spec_from(json.loads(json.dumps(made, default=vars)))))) == made


@pytest.mark.parametrize("results", PUBLISHED, ids=lambda path: path.parent.name)
def test_what_was_published_can_be_asked_again(results):
    asked, _ = given.from_file(results, problems := [])
    assert not problems
    assert asked["model"] == ",".join(store.read(results)[0].spec["models"])


TOML = """\
frameworks = ["fake"]
model = "bert_tiny"
device = "cpu"
env = "current"   # as before
no-verify = true
batch_size = 8
repeats = 1
strict = false

[set]
clock = "virtual"
fake.step_seconds = 0.5
"""


def test_a_file_has_options_and_the_command_line_wins(tmp_path):
    (tmp_path / "dlperf.toml").write_text(TOML)
    words = ["--spec", tmp_path / "dlperf.toml", "-b", 4, "-o", tmp_path / "out"]
    ended = call("compare", *words)
    assert (ended.returncode, ended.stderr) == (0, "")
    made = dlperf.load(tmp_path / "out")
    assert list(made["throughput_samples_per_second"]) == pytest.approx([4 / 0.5], rel=1e-9)
    first = store.read(tmp_path / "out")[0].spec
    for name in ("comparison.json", "results.json"):
        repeated = dlperf.compare(spec=tmp_path / "out" / name, seed=7, output=tmp_path / name)
        assert {key for key, value in repeated.comparison.spec.items() if value != first[key]} == {"seed"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model = 'bert'\nmodle = 'bert'", "{}, line 2: modle: there is no such option. Did you mean 'model'?"),
        ("\nmodel = 'brt'\n", "{}, line 2: model: 'brt' is not usable; allowed: "),
        ("[model]\nx = 1", "{}, line 1: model: "),
        ("batch_size = [1, 2]", "{}, line 1: batch_size: '[1, 2]' is not usable; allowed: a string or a number."),
        ("strict = 'yes'", "{}, line 1: strict: 'yes' is not usable; allowed: true, false, without"),
        ("seed = 2020-01-01", "{}, line 1: seed: '\"2020-01-01\"' is not usable; allowed: a string or a number."),
        ("spec = 'other.toml'", "{}, line 1: spec: a file of options names no other."),
        (
            "set = {a = [1, {b = 2}]}",
            "{}, line 1: set: '{{\"b\": 2}}' is not usable; allowed: a string or a number, or an array of them.",
        ),
        ("model = ", "--spec {}: cannot be read as TOML (TOMLDecodeError: Invalid value (at end of document))."),
        (
            "model = 'a'\nmodel = 'b'",
            "--spec {}: cannot be read as TOML (TOMLDecodeError: Cannot overwrite a value (at",
        ),
        ("a = " + "[" * 9999, "--spec {}: cannot be read as TOML (RecursionError: "),
        ("\xff", "--spec {}: this is no text file. Name a TOML file."),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_file_and_line(tmp_path, text, says):
    path = tmp_path / "dlperf.toml"
    path.write_bytes(text.encode("latin-1"))
    ended = call("compare", *FAKE[:2], "--spec", path, "--output", tmp_path / "out")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(says.format(path)), ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_all_that_is_wrong_in_a_file_and_beside_it_comes_at_once(tmp_path):
    path = tmp_path / "dlperf.toml"
    path.write_text('modle = "bert"\nstrict = "yes"\nprecision = "fp8"\nspec = "other.toml"\n')
    said = call("compare", *FAKE[:2], "--spec", path, "--seed", "x", DLPERF_QUIET="maybe")
    assert (said.returncode, said.stdout) == (2, "")
    named = [line.rpartition(": ")[0].partition(" is not")[0].split(": ")[:2] for line in said.stderr.splitlines()]
    assert named == [
        ["DLPERF_QUIET", "'maybe'"],
        [f"{path}, line 4", "spec"],
        [f"{path}, line 1", "modle"],
        [f"{path}, line 2", "strict"],
        [f"{path}, line 3", "precision"],
        ["--seed", "'x'"],
    ]


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"spec": {"models": 3}}', "[" * 99999])
def test_a_comparison_that_is_none_is_one_message(tmp_path, text):
    path = tmp_path / "comparison.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"^spec \(--spec\) .*: not what dlperf wrote \(.*\)\.$"):
        dlperf.compare(spec=path)


def test_a_file_that_is_not_there_and_one_beside_a_resumed_comparison(tmp_path):
    for path, says in ((tmp_path / "nowhere.toml", "No such file or directory"), (tmp_path, "this is no text file")):
        ended = call("compare", "--spec", path)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert says in ended.stderr
    ended = call("compare", "--spec", tmp_path / "nowhere.toml", "--resume", tmp_path)
    assert ended.stderr.endswith("Leave out --spec.\n")


def test_problems_of_a_file_and_of_the_command_line_are_told_apart(tmp_path):
    path = tmp_path / "dlperf.toml"
    path.write_text("repeats = 0\nseed = 1\n")
    said = call("compare", *FAKE, "--spec", path, "--seed", "x").stderr.splitlines()
    assert [line.split(": ")[:2] for line in said] == [
        [f"{path}, line 1", "repeats"],
        ["--seed", "'x' is not usable; allowed"],
    ]
