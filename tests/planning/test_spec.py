"""What users type: checked all at once, resolved, and planned."""

import pytest

from dlperf import compare, launchers
from dlperf.adapters import gpu
from dlperf.catalog import reader
from dlperf.data import photos as photos_
from dlperf.data.photos import Options
from dlperf.errors import UsageError
from dlperf.flags import DEFAULTS
from dlperf.planning import checks, plan
from dlperf.precision import resolve
from dlperf.proof import asked

ADAPTERS = reader.adapters()


@pytest.fixture(autouse=True)
def _processor(bfloat16):
    """One on which nothing is tuned: on Zen 5 dense layers of PyTorch are, in rows of their own."""


def parse(*words, dry_run=False):
    arguments = vars(compare.parser().parse_args(words))
    given = {name: arguments[name] for name in DEFAULTS if arguments[name] is not None}
    return checks.from_arguments({**DEFAULTS, "device": "cpu", **given, "dry_run": dry_run}, ADAPTERS)


def planned(*words):
    return plan.from_spec(parse(*words), ADAPTERS)


def problems(*words):
    with pytest.raises(UsageError) as caught:
        parse(*words)
    return [str(problem) for problem in caught.value.problems]


def test_more_pairs_of_nodes_and_ranks_than_anyone_reads_are_refused():
    many = ",".join(map(str, range(1, 102)))
    said = problems("--nnodes", many, "--nproc-per-node", many)
    assert any("they make 10,201 rows of each system" in one for one in said)


@pytest.fixture
def slurm(monkeypatch):
    """Its commands are on PATH, wherever this runs."""
    which = checks.shutil.which
    monkeypatch.setattr(checks.shutil, "which", lambda one: one if one.startswith("s") else which(one))


def sizes(*words):
    made = planned("-f", "pytorch", "-m", "bert", *words)
    assert not made.skips
    return [(job.nnodes, job.world_size, job.batch_size) for job in made.jobs]


@pytest.mark.usefixtures("slurm")
def test_a_sweep_varies_one_factor_while_the_other_is_as_flags_have_it_or_crosses_them():
    both = ("--sweep", "batch-size=2,8", "--sweep", "workers=1,2")
    assert sizes(*both[:2]) == [(1, 1, 2), (1, 1, 8)]
    assert sizes(*both, "-b", "3") == [(1, 1, 2), (1, 1, 8), (1, 1, 3), (1, 2, 3)]
    assert sizes(*both, "--crossed") == [(1, 1, 2), (1, 2, 2), (1, 1, 8), (1, 2, 8)]
    assert sizes(*both, "-b", "8", "--nproc-per-node", "2") == [(1, 2, 2), (1, 2, 8), (1, 1, 8)]
    assert sizes("--size", "1n1d-b2,1n2d-b8,1n2d") == [(1, 1, 2), (1, 2, 8), (1, 2, 4)]
    assert sizes("--sweep", "workers=2,4", "--nnodes", "2", "--launcher", "slurm") == [(2, 2, 4), (2, 4, 4)]
    assert parse("--sweep", "workers=1,4").threads == parse("--nproc-per-node", "4").threads


def test_servers_are_swept_as_workers_are():
    words = ("-f", "fake", "-m", "bert_tiny", "--parallelism", "parameter-server", "-b", "3", "--ps-mode", "async")
    swept = [*words, "--sweep", "workers=1,2", "--sweep", "servers=2,4", "--sweep", "batch-size=8"]
    rows = [(job.world_size, job.servers, job.batch_size) for job in planned(*swept, "--servers", "2").jobs]
    assert rows == [(1, 2, 3), (2, 2, 3), (1, 4, 3), (1, 2, 8)]
    rows = [(job.world_size, job.servers, job.batch_size) for job in planned(*words, "--size", "1n2d+3s-b8,1n1d").jobs]
    assert rows == [(2, 3, 8), (1, 1, 3)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--sweep", "bach-size=4"],
            "batch-size=N,..., workers=N,... or servers=N,.... Did you mean 'batch-size'?",
        ),
        (["--sweep", "batch-size=4,0"], "'batch-size=4,0' is not usable; allowed: batch-size= whole numbers from 1"),
        (["--sweep", "workers="], "'workers=' is not usable"),
        (["--sweep", "workers=1", "--sweep", "workers=2"], "workers is swept twice. Give all its values at once"),
        (
            ["--sweep", "workers=3", "--nnodes", "2", "--launcher", "slurm"],
            "--sweep workers=3: they are not as many on each of 2",
        ),
        (["--sweep", "workers=512"], "workers=512: there are at most 256 on a node"),
        (["--sweep", "batch-size=4", "--size", "1n1d"], "--size is given too. Leave out one of them"),
        (
            ["--sweep", "batch-size=4", "--global-batch-size", "8"],
            "rows have batch sizes of their own",
        ),
        (["--sweep", "batch-size=1,4", "-m", "vgg16_cifar"], "--sweep 1: vgg16_cifar has a BatchNorm"),
        (["--crossed", "--sweep", "workers=2"], "it takes the values of one --sweep with those of another"),
        (["--size", "1n1d-b0"], "'1n1d-b0' is not usable"),
        (["--sweep", "servers=2"], "--sweep servers=2: there are no parameter servers"),
        (["--size", "1n1d+2s"], "--size +2s: there are no parameter servers"),
        (["--size", "1n1d+0s", "--parallelism", "parameter-server"], "'1n1d+0s' is not usable"),
        (["--servers", "2"], "there are no parameter servers. Add --parallelism parameter-server"),
        (["--parallelism", "servers"], "allowed: data, parameter-server"),
        (["--parallelism", "parameter-server", "--servers", "0"], "whole numbers from 1 to 4,096"),
        (["--parallelism", "parameter-server", "--ps-mode", "asynch"], "Did you mean 'async'?"),
        (["--parallelism", "parameter-server", "--launcher", "horovod"], "horovod: it starts no parameter servers yet"),
        (["--workers", "2", "--nproc-per-node", "2"], "--workers is given too. Leave out one of them"),
        (["--workers", "3", "--nnodes", "2", "--launcher", "slurm"], "--workers 3: they are not as many on each of 2"),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_a_sweep_or_servers_that_cannot_be_is_one_message(words, said):
    (found,) = problems(*words)
    assert said in found


def test_each_number_of_servers_and_mode_is_a_row_proven_with_one_server():
    words = "-f fake -m bert_tiny --parallelism parameter-server --servers 1,2 --workers 2 --ps-mode sync,async,geo"
    made = planned(*words.split())
    assert [(job.servers, job.ps_mode) for job in made.jobs] == [(1, "sync"), (1, "async"), (2, "sync"), (2, "async")]
    assert [job.size for job in made.jobs][:2] == ["1n2d+1s sync", "1n2d+1s async"]
    assert len({job.id for job in made.jobs}) == len({job.work for job in made.jobs}) == 4
    assert {skip.why for skip in made.skips} == {"a framework that sleeps has no copies of its own"}
    proofs = {job.ps_mode: asked.trajectories(job) for job in made.jobs[2:]}
    assert [(one.ranks, one.run.servers) for one in proofs["sync"]] == [(1, 1), (1, 1), (2, 2)]
    assert [(one.ranks, one.run.servers) for one in proofs["async"]] == [(1, 1), (1, 1)]


def test_servers_take_pushes_in_step_and_as_they_come_unless_asked():
    """Of the frameworks with servers some have one of both alone: by either some have no row."""
    words = "-f fake -m bert_tiny --parallelism parameter-server --servers 2 --workers 2"
    made = planned(*words.split())
    assert [job.ps_mode for job in made.jobs] == ["sync", "async"]


@pytest.mark.usefixtures("slurm")
def test_nodes_that_are_machines_of_their_own_share_no_threads(monkeypatch):
    """In a job of Slurm's this machine is one of its nodes."""
    monkeypatch.setattr(launchers.find("slurm"), "elsewhere", lambda nnodes, hosts: False)
    assert parse("--nnodes", "2", "--launcher", "slurm").threads == parse().threads


@pytest.fixture
def emulation(monkeypatch):
    """Its programs and rights are there, wherever this runs."""
    monkeypatch.setattr(launchers.find("emulated"), "missing", lambda: "")


@pytest.mark.usefixtures("emulation")
def test_each_bandwidth_and_compression_is_a_row_whose_proof_does_not_wait_for_the_link():
    words = "-f pytorch,jax -m resnet_tiny --bandwidth 0.1,1 --gradient-compression none,fp16,dgc -b 2"
    made = planned(*words.split())
    rows = [(job.system, job.size, job.launcher) for job in made.jobs]
    assert rows[:4] == [
        ("pytorch", "2n2d at 0.1 Gb/s", "emulated"),
        ("pytorch", "2n2d at 1 Gb/s", "emulated"),
        ("pytorch+fp16-gradients", "2n2d at 0.1 Gb/s", "emulated"),
        ("pytorch+fp16-gradients", "2n2d at 1 Gb/s", "emulated"),
    ]
    assert [system for system, *_ in rows[4:]] == [*["pytorch+dgc"] * 2, *["jax"] * 2, *["jax+dgc"] * 2]
    assert len({job.id for job in made.jobs}) == len(made.jobs)
    assert len({job.work for job in made.jobs}) == 6
    (skip,) = made.skips
    assert skip.why == "option compression takes none or dgc, not fp16"
    (alone, own, together) = asked.trajectories(made.jobs[-1])
    assert [one.run.options["compression"] for one in (alone, own, together)] == ["none", "none", "dgc"]
    assert (together.ranks, together.run.bandwidth, together.run.launcher) == (2, 0.0, "emulated")
    assert asked.trajectories(made.jobs[-1]) != asked.trajectories(made.jobs[-2])
    assert [one.name for one in asked.trajectories(made.jobs[-1])] == [
        one.name for one in asked.trajectories(made.jobs[-2])
    ]
    assert parse("--bandwidth", "1").threads == max(1, parse().threads // 2)
    assert parse("--bandwidth", "1", "--workers", "4").grid == ((2, 2, 0, 0),)


@pytest.mark.usefixtures("emulation")
def test_latencies_are_crossed_with_bandwidths():
    made = planned(*["-f", "fake", "-m", "resnet_tiny", "--latency", "1,10", "--bandwidth", "0.1,1"])
    links = [f"{bandwidth} Gb/s and {ms} ms" for ms in (1, 10) for bandwidth in (0.1, 1)]
    assert [(job.size, job.launcher) for job in made.jobs] == [(f"2n2d at {link}", "emulated") for link in links]
    assert made.jobs[0].id == "resnet_tiny-fp32-fake-2n1d-0.1gbit-1ms-b16"
    assert len({job.work for job in made.jobs}) == 4
    assert [job.size for job in planned("-f", "fake", "-m", "resnet_tiny", "--latency", "5").jobs] == ["2n2d at 5 ms"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "-f pytorch -m word2vec_tiny --parallelism parameter-server --set tables=torchrec",
            "tables=torchrec has tables in the ranks: ask for --workers without --parallelism",
        ),
        ("-f pytorch -m resnet_tiny --gradient-compression dgc", "one rank has none to exchange it with"),
        (
            "-f pytorch -m bert_tiny --gradient-compression dgc --workers 2",
            "corrects the momentum of SGD; bert_tiny is",
        ),
        (
            "-f pytorch -m vgg_cifar_tiny --gradient-compression fp16 --parallelism parameter-server",
            "these go to parameter servers",
        ),
        (
            "-f mxnet,pytorch -m resnet_tiny --gradient-compression powersgd --workers 2",
            "takes none or 2bit or dgc, not powersgd",
        ),
    ],
)
def test_gradients_that_are_not_compressed_say_why(words, why):
    (skip,) = planned(*words.split()).skips
    assert why in skip.why


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bandwidth", "0"], "'0' is not usable; allowed: numbers from 0.001 to 1,000, separated by commas"),
        (["--latency", "0.01"], "'0.01' is not usable; allowed: numbers from 0.1 to 1,000, separated by commas"),
        (["--latency", "1", "--nnodes", "1"], "one node has no link. Ask for --nnodes 2"),
        (["--bandwidth", "1,fast"], "'1,fast' is not usable"),
        (["--bandwidth", "1", "--nnodes", "1"], "one node has no link. Ask for --nnodes 2"),
        (["--bandwidth", "1", "--launcher", "local", "--nnodes", "1"], "Choose --launcher emulated"),
        (["--gradient-compression", "dcg"], "Did you mean 'dgc'?"),
        (
            ["--gradient-compression", "dgc", "--set", "compression=none"],
            "--set compression is given too. Leave out one of them",
        ),
        (["-f", "fake", "--gradient-compression", "dgc"], "--gradient-compression: 'compression' is not usable"),
        (["-f", "jax", "--gradient-compression", "fp16"], "--gradient-compression: 'fp16' is not usable"),
    ],
)
@pytest.mark.usefixtures("emulation")
def test_a_link_or_a_compression_that_cannot_be_is_one_message(words, said):
    (found,) = problems("-m", "resnet_tiny", *words)
    assert said in found


def test_all_frameworks_by_default_but_not_the_fake_one():
    assert parse().frameworks == ("jax", "mxnet", "oneflow", "paddle", "pytorch", "tensorflow")


def test_bert_means_bert_base():
    assert parse("--model", "bert,resnet50").models == ("bert_base", "resnet50")


def test_quick_is_the_default_on_cpu():
    protocol = parse().protocol
    assert (protocol.warmup_steps, protocol.windows, protocol.steps_per_window, protocol.repeats) == (2, 3, 2, 3)


@pytest.mark.parametrize(
    ("models", "name", "steps"),
    [("word2vec,ctr_dnn", "fast", 100), ("word2vec,bert", "quick", 2), ("simnet_bow_tiny", "fast", 100)],
)
def test_where_all_steps_take_milliseconds_windows_have_many(models, name, steps):
    protocol = parse("--model", models).protocol
    assert (protocol.name, protocol.steps_per_window) == (name, steps)


def test_dlperf_protocol_is_20_and_100_steps_7_times():
    protocol = parse("--protocol", "dlperf").protocol
    assert (protocol.warmup_steps, protocol.windows * protocol.steps_per_window, protocol.repeats) == (20, 100, 7)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), (0.0, 0.0)),
        (("--device", "cuda"), (5.0, 2.0)),
        (("--device", "cuda", "--protocol", "quick"), (0.0, 0.0)),
        (("--device", "cuda", "--warmup-steps", "3"), (0.0, 2.0)),
        (("--device", "cuda", "--steps-per-window", "3"), (5.0, 0.0)),
    ],
)
def test_on_cuda_warm_up_and_windows_are_of_seconds_unless_steps_are_asked_for(words, seconds):
    protocol = parse(*words, dry_run=True).protocol
    assert (protocol.warmup_seconds, protocol.window_seconds) == seconds


def test_single_numbers_go_over_the_protocol():
    protocol = parse("--protocol", "dlperf", "--repeats", "2", "--windows", "1").protocol
    assert (protocol.warmup_steps, protocol.windows, protocol.steps_per_window, protocol.repeats) == (20, 1, 20, 2)


def test_several_values_of_an_option_are_a_row_each():
    jobs = planned("--model", "bert", "--frameworks", "pytorch,jax", "--set", "pytorch.clip_norm=1.0,off").jobs
    assert [job.system for job in jobs] == ["pytorch", "pytorch clip_norm=off", "jax"]
    (said,) = problems("--model", "bert", "--frameworks", "pytorch", "--set", "compile=on,onn")
    assert "compile=onn" in said
    assert "Did you mean 'on'?" in said


def test_a_length_chooses_the_size_of_a_network():
    words = ["--model", "bert,bert_base_512,bert_large,gpt2_256", "--frameworks", "numpy", "--sequence-length"]
    assert [job.model for job in planned(*words, "512").jobs] == ["bert_base_512", "bert_large_512", "gpt2_512"]
    (said,) = problems(*words[:1], "bert", *words[2:], "2048")
    assert said.startswith("--sequence-length 2048: bert_base has rows of 128 or 512 tokens."), said
    (said,) = problems(*words[:1], "vgg16", *words[2:], "128")
    assert said.startswith("--sequence-length 128: vgg16 reads no tokens."), said


def test_a_batchnorm_sees_more_than_one_value():
    words = ["--model", "vgg16_cifar,resnet50", "--frameworks", "numpy"]
    (said,) = problems(*words, "--batch-size", "1")
    assert said.startswith("--batch-size 1: vgg16_cifar has a BatchNorm, bn6, that would see one value"), said
    (said,) = problems(*words, "--global-batch-size", "2", "--nproc-per-node", "1,2")
    assert "Choose at least 4, or leave out vgg16_cifar." in said
    assert planned(*words, "--batch-size", "2").jobs


def test_a_group_is_its_models_each_once():
    jobs = planned("--model", "vgg16,collective", "--frameworks", "numpy").jobs
    assert [job.model for job in jobs] == ["vgg16", "resnet50", "se_resnext50", "bert_large", "transformer"]


def test_a_framework_named_twice_is_two_rows_of_one_system():
    jobs = planned("--frameworks", "pytorch,jax,pytorch,pytorch").jobs
    assert [(job.system, job.duplicate_of) for job in jobs if job.model == "bert_base"] == [
        ("pytorch", ""),
        ("jax", ""),
        ("pytorch#2", "bert_base-fp32-pytorch-b4"),
        ("pytorch#3", "bert_base-fp32-pytorch-b4"),
    ]
    assert len({job.id for job in jobs}) == len(jobs)


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ((), []),
        (("--aa", "2"), ["jax#2", "mxnet#2"]),
        (("--protocol", "dlperf"), ["jax#2"]),
        (("--protocol", "dlperf", "--frameworks", "paddle"), []),
        (("--protocol", "dlperf", "--aa", "0"), []),
        (("--aa", "2", "--nproc-per-node", "1,2"), ["jax#2", "jax#2", "mxnet#2", "mxnet#2"]),
    ],
)
def test_the_first_rows_of_each_table_are_made_twice(words, again):
    jobs = planned("--model", "bert", *words).jobs
    assert [job.system for job in jobs if job.duplicate_of] == again


@pytest.mark.parametrize(
    ("asked", "device", "meant"),
    [
        ("amp", "cpu", "amp_bf16"),
        ("amp", "cuda", "amp_fp16"),
        ("bf16", "cuda", "amp_bf16"),
        ("fp16", "cpu", "amp_fp16"),
        ("fp32", "cuda", "fp32"),
        ("tf32", "cuda", "tf32"),
    ],
)
def test_precision_depends_on_the_device(asked, device, meant):
    assert resolve(asked, device) == meant


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--frameworks", "pytorhc"], ["--frameworks", "'pytorhc'", "Did you mean 'pytorch'?"]),
        (["--model", "resnet"], ["--model", "'resnet'", "resnet50"]),
        (["--precision", "fp8"], ["--precision", "'fp8'", "fp32, tf32, amp, fp16, bf16"]),
        (["--batch-size", "0"], ["--batch-size", "'0'", "a whole number from 1 to 10,000,000, or max"]),
        (["--batch-size", "-3"], ["--batch-size", "'-3'"]),
        (["--repeats", "two"], ["--repeats", "'two'"]),
        (["--until", "2%", "--repeats", "9"], ["--repeats 9: --until says how many there are. Leave out one of them"]),
        (["--until", "0"], ["--until: '0'", "a share of a rate between 0 and 100 %. Try --until 2%."]),
        (["--until", "100%"], ["--until: '100%'"]),
        (["--until", "2%", "--max-blocks", "1"], ["--max-blocks: '1'", "a whole number from 7 to 1,000"]),
        (["--max-blocks", "9"], ["--max-blocks 9: it limits --until, which is not given. Leave it out."]),
        (["--max-time", "60"], ["--max-time 60: it limits --until"]),
        (["--until", "2%", "--max-time", "2d"], ["--max-time: '2d'", "seconds, more than 0", "90s, 15m, 2h"]),
        (["--timeout", "m"], ["--timeout: 'm'", "90s, 15m, 2h"]),
        (["--precision", "fp33"], ["--precision: 'fp33'", "bf16, auto."]),
        (["--precision", "auto,fp32"], ["--precision auto,fp32: auto stands alone."]),
        (["--frameworks", "al"], ["--frameworks: 'al'", ", all. Did you mean 'all'?"]),
        (["--warmup-steps", "²"], ["--warmup-steps", "'²'"]),
        (["--timeout", "0"], ["--timeout", "seconds, more than 0"]),
        (["--timeout", "nan"], ["--timeout", "seconds, more than 0"]),
        (["--predict", "8"], ["--predict 8: no row has several devices"]),
        (["--source", ","], ["--source ,: it names nothing"]),
        (["--data", "x" * 300], ["--data", "there is no such folder"]),
        (["--timeout", "1e400"], ["--timeout", "at most 10,000,000"]),
        (["--timeout", "１"], ["--timeout", "seconds, more than 0"]),
        (["--until", "２%"], ["--until: '２%'"]),
        (["--batch-size", "9" * 20], ["--batch-size", "a whole number from 1 to 10,000,000, or max"]),
        (["--nproc-per-node", "1000000"], ["--nproc-per-node", "whole numbers from 1 to 256"]),
        (["--nnodes", "1000000"], ["--nnodes", "whole numbers from 1 to 4,096"]),
        (["--repeats", "9" * 5000], ["--repeats", "a whole number from 1 to 1,000"]),
        (["--protocol", "quik"], ["--protocol", "Did you mean 'quick'?"]),
        (["--env", "docker", "--image", "Mine Own"], ["--image", "'Mine Own'", "NAME:TAG"]),
        (["--env", "docker", "--image", "torch=a:1"], ["--image: 'torch'", "Did you mean 'pytorch'?"]),
        (
            ["--env", "docker", "--image", "a:1,b:2"],
            ["--image b:2: all frameworks already had the image a:1. Name one."],
        ),
        (["--env", "apptainer", "--image", "nvcr.io/nvidia/jax:25.08-py3"], ["--image", "docker://NAME:TAG"]),
        (["--image", "ngc"], ["--image ngc: --env venv uses no container. Choose --env docker, podman or apptainer,"]),
        (["--container-arg", "gpus=all"], ["--container-arg", "--env venv uses no container"]),
        (["--env", "docker", "--container-arg", "gpu=all"], ["--container-arg", "'gpu'", "Did you mean 'gpus'?"]),
        (
            ["--env", "docker", "--container-arg", "shm-size=big"],
            ["--container-arg shm-size=big: shm-size takes size of /dev/shm", "16g"],
        ),
        (
            ["--env", "docker", "--container-arg", "infiniband=yes"],
            ["--container-arg infiniband=yes: infiniband takes on:"],
        ),
        (["--env", "docker", "--container-arg", "extra=-e 'A"], ["--container-arg", "No closing quotation"]),
        (
            ["--env", "docker", "--launcher", "horovod", "--set", "communication=horovod"],
            ["--launcher horovod: horovodrun is in no image"],
        ),
        (["--env", "conda"], ["--env", "venv, current"]),
        (["--set", "clip_norm"], ["--set", "OPTION=VALUE"]),
        (["--set", "clip=off", "--model", "bert"], ["--set", "'clip'", "Did you mean 'clip_norm'?"]),
        (["--set", "compile=maybe"], ["--set", "'compile=maybe'"]),
        (["--set", "layout=nchw", "--set", "layout=nhwc"], ["--set layout=nhwc: layout was already set to nchw"]),
        (["--set", "torch.layout=nchw"], ["--set: 'torch'", "Did you mean 'pytorch'?"]),
        (["--data", "/nowhere"], ["--data /nowhere: there is no such folder", "python -m dlperf.data"]),
        (
            ["--batch-size", "8", "--global-batch-size", "16"],
            ["--batch-size 8: --global-batch-size 16 is given too. Leave out one of them."],
        ),
    ],
)
def test_each_wrong_field_is_named_with_what_is_allowed(words, parts):
    (problem,) = problems(*words)
    for part in parts:
        assert part in problem


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400)])
def test_a_time_may_have_a_unit(text, seconds):
    assert parse("--timeout", text).timeout == seconds


def test_all_wrong_fields_come_at_once():
    found = problems("--model", "vgg", "--precision", "int8", "--frameworks", "theano", "--batch-size", "x")
    assert [problem.partition(":")[0] for problem in found] == [
        "--frameworks",
        "--model",
        "--precision",
        "--batch-size",
    ]


def test_a_foreign_data_folder_is_refused(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"not tokens")
    (problem,) = problems("--model", "bert", "--data", str(tmp_path))
    assert "--data" in problem
    assert "python -m dlperf.data bert" in problem


def test_cuda_needs_a_gpu_unless_it_is_a_dry_run(monkeypatch):
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look(()))
    with pytest.raises(UsageError, match="nvidia-smi finds no GPU"):
        parse("--device", "cuda")


def test_a_row_for_each_model_precision_and_framework():
    made = planned("--model", "bert,resnet50", "--precision", "fp32,amp", "--frameworks", "pytorch,tensorflow")
    assert len(made.jobs) + len(made.skips) == 8


def test_compile_on_and_off_are_two_systems():
    made = planned("--model", "bert", "--frameworks", "pytorch", "--compile", "on,off")
    assert {job.system for job in made.jobs} == {"pytorch", "pytorch+inductor"}


def test_an_option_of_one_framework_leaves_the_others_alone():
    made = planned("--model", "resnet50", "--frameworks", "pytorch,tensorflow", "--set", "pytorch.layout=nchw")
    systems = {job.system for job in made.jobs}
    assert "pytorch layout=nchw" in systems
    assert "tensorflow" in systems


def test_an_option_that_a_framework_lacks_makes_a_skip_that_says_so():
    made = planned("--model", "resnet50", "--frameworks", "pytorch,fake", "--set", "layout=nchw")
    (skip,) = made.skips
    assert (skip.system, skip.status) == ("fake", "option")
    assert skip.why.startswith("has no option layout; it has ")


def test_an_option_may_need_another_environment():
    words = ["--model", "bert", "--frameworks", "pytorch,tensorflow", "--set", "tensorflow.communication=horovod"]
    made = planned(*words)
    assert {(job.system, job.environment) for job in made.jobs} == {
        ("pytorch", "cpu"),
        ("tensorflow+horovod", "cpu-horovod"),
    }


def test_an_environment_that_nobody_builds_yet_is_a_skip(monkeypatch):
    words = ["--model", "bert", "--frameworks", "pytorch", "--device", "cuda", "--set", "communication=horovod"]
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look((gpu.Gpu("some GPU", None, "", ""),)))
    (skip,) = planned(*words).skips
    assert (skip.system, skip.status) == ("pytorch+inductor+horovod", "not_yet")
    assert skip.why == "horovod on cuda is not built yet"
    assert [job.environment for job in planned(*words, "--env", "current").jobs] == ["cuda-horovod"]


def test_an_option_of_one_family_does_not_concern_the_other():
    made = planned("--model", "resnet50,bert", "--frameworks", "pytorch", "--set", "clip_norm=off")
    assert {job.system for job in made.jobs} == {"pytorch", "pytorch clip_norm=off"}
    assert not made.skips


def test_what_upstream_does_not_support_is_a_skip_with_its_reason(bfloat16):
    made = planned("--model", "bert", "--precision", "amp")
    skipped = {skip.adapter: skip for skip in made.skips}
    assert set(skipped) == {"oneflow", "paddle"}
    assert all(skip.status == "unavailable" and skip.why for skip in skipped.values())


def test_job_ids_are_file_names_and_unique():
    made = planned("--model", "bert,resnet50", "--precision", "fp32,amp", "--compile", "on,off")
    ids = [job.id for job in made.jobs]
    assert len(set(ids)) == len(ids)
    assert all("/" not in job_id and " " not in job_id for job_id in ids)


def test_repeats_come_in_blocks_of_all_jobs_in_random_order():
    made = planned("--model", "bert", "--precision", "fp32")
    runs = plan.order(made, 20, seed=3)
    blocks = [runs[start : start + len(made.jobs)] for start in range(0, len(runs), len(made.jobs))]
    assert all({job.id for _, job in block} == {job.id for job in made.jobs} for block in blocks)
    assert [repeat for repeat, _ in runs] == sorted(repeat for repeat, _ in runs)
    assert len({tuple(job.id for _, job in block) for block in blocks}) > 1
    assert plan.order(made, 20, seed=3) == runs


# --- several ranks ----------------------------------------------------------------------------------------------------


def test_each_pair_of_nodes_and_ranks_is_a_row():
    words = ["-f", "pytorch", "-m", "bert", "--nnodes", "1,2,4", "--nproc-per-node", "1,8", "--launcher", "slurm"]
    jobs = plan.from_spec(parse(*words, dry_run=True), ADAPTERS).jobs
    assert [(j.nnodes, j.nproc_per_node) for j in jobs] == [(1, 1), (1, 8), (2, 1), (2, 8), (4, 1), (4, 8)]
    assert {job.batch_size for job in jobs} == {4}
    assert [job.global_batch_size for job in jobs] == [4, 32, 8, 64, 16, 128]
    assert len({job.id for job in jobs}) == 6


def test_one_node_starts_locally_and_hosts_mean_mpi_over_all_of_them():
    assert parse("--nproc-per-node", "2").launcher == "local"
    made = parse("--hosts", "node1,node2:4", dry_run=True)
    assert (made.launcher, made.nnodes, made.hosts) == ("mpi", (2,), ("node1", "node2"))


def test_threads_are_shared_by_the_ranks_of_a_node_the_same_in_all_rows(monkeypatch):
    monkeypatch.setattr(checks.machine, "usable_cores", lambda: 8.0)
    assert parse("--nproc-per-node", "1,4").threads == 2
    assert parse("--nproc-per-node", "1,4", "--threads", "3").threads == 3


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--nproc-per-node", "0"], ["--nproc-per-node", "'0'", "whole numbers from 1 to 256"]),
        (["--nnodes", "two"], ["--nnodes", "'two'"]),
        (
            ["--nproc-per-node", "1,3", "--global-batch-size", "8"],
            ["--global-batch-size 8:", "among 3 devices. Choose a multiple of 3."],
        ),
        (["--hosts", "127.0.0.1", "--nnodes", "2"], ["--nnodes 2: only 1 host is named"]),
        (
            ["--hosts", "127.0.0.1:2", "--nproc-per-node", "4"],
            ["--nproc-per-node 4: 127.0.0.1 has slots for 2."],
        ),
        (["--hosts", "127.0.0.1,no-such-host.invalid"], ["--hosts no-such-host.invalid: this machine cannot resolve"]),
        (["--hosts", "127.0.0.1", "--hostfile", "x"], ["--hostfile x: --hosts is given too"]),
        (["--launcher", "slrum"], ["--launcher", "Did you mean 'slurm'?"]),
        (
            ["--launcher", "local", "--nnodes", "2"],
            ["--launcher local:", "For 2 nodes choose torchrun, mpi, horovod, slurm, kub"],
        ),
        (
            ["--launcher", "mpi", "--nnodes", "2"],
            ["--launcher mpi: it needs the names of the nodes. Give them with --hosts or --hostfile."],
        ),
        (["--launcher", "local", "--launcher-arg", "partition=x"], ["--launcher-arg", "partition", "none"]),
        (["--launcher", "slurm", "--launcher-arg", "partion=x"], ["--launcher-arg", "Did you mean 'partition'?"]),
        (["--launcher-arg", "partition"], ["--launcher-arg", "KEY=VALUE"]),
        (["--launcher", "kubernetes"], ["--launcher", "--launcher-arg image=", "the image of the pods"]),
    ],
)
def test_what_is_wrong_with_places_is_told_before_anything_starts(words, parts):
    found = problems(*words)
    assert any(all(part in problem for part in parts) for problem in found), found


def test_a_launcher_whose_program_is_missing_says_which_package_has_it(monkeypatch):
    monkeypatch.setattr(checks.shutil, "which", lambda program: None)
    (found,) = problems("--launcher", "mpi")
    step = "Install it (Debian: openmpi-bin), or choose local."
    assert found == f"--launcher mpi: mpirun is not on PATH. {step}"
    (found,) = problems("--launcher", "slurm", "--nnodes", "2")
    assert "sbatch, scontrol, squeue, scancel are not on PATH. Install them (Debian: slurm-client)." in found
    (found,) = problems("--nnodes", "2")
    assert "--hosts or --hostfile" in found


def test_torchrun_is_for_pytorch_alone():
    made = planned("-f", "pytorch,jax", "-m", "bert", "--launcher", "torchrun", "--nproc-per-node", "2")
    assert [job.adapter for job in made.jobs] == ["pytorch"]
    assert [(skip.adapter, skip.status) for skip in made.skips] == [("jax", "option")]
    assert made.skips[0].why == "its environment does not have the launcher torchrun"


def test_horovodrun_is_for_those_that_communicate_with_horovod():
    words = ["-f", "pytorch,jax", "-m", "bert", "--launcher", "horovod", "--nproc-per-node", "2"]
    whys = {skip.adapter: skip.why for skip in planned(*words).skips}
    lacks = "its environment does not have the launcher horovod"
    assert whys == {"pytorch": f"{lacks}; --set communication=horovod brings it", "jax": lacks}
    made = planned(*words, "--set", "pytorch.communication=horovod")
    assert [job.adapter for job in made.jobs] == ["pytorch"]


def test_ten_thousand_rows_are_planned_at_once():
    nodes, ranks = (",".join(map(str, range(1, most + 1))) for most in (100, 25))
    words = ["-f", "pytorch", "-m", "resnet50,bert", "-p", "fp32,bf16", "--launcher", "slurm"]
    made = parse(*words, "--nnodes", nodes, "--nproc-per-node", ranks, dry_run=True)
    assert len(plan.from_spec(made, ADAPTERS).jobs) == 10_000


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A data folder with two formats and 16 images."""
    root = tmp_path_factory.mktemp("photos")
    photos_.draw(root / "drawn", 4, 4)
    photos_.prepare(Options(root / "drawn", root / "data", ("folder", "recordio")), quiet=True)
    return str(root / "data")


RESNET = ["--model", "resnet_tiny", "--frameworks", "pytorch", "--batch-size", "2"]


def test_each_input_is_a_row_that_takes_the_first_format_that_its_loader_reads(photos):
    native, dali = planned(*RESNET, "--data", photos, "--input", "native,dali").jobs
    assert (native.system, native.input, native.format, native.environment) == ("pytorch", "native", "folder", "cpu")
    assert (dali.system, dali.input, dali.format, dali.environment) == ("pytorch+dali", "dali", "recordio", "cpu-dali")


def test_a_format_that_a_loader_does_not_read_is_a_skip_that_says_how_to_make_one(photos):
    (skip,) = planned(*RESNET, "--data", photos, "--format", "recordio").skips
    assert skip.status == "option"
    assert "reads folder; there is recordio: python -m dlperf.data imagenet --format folder" in skip.why


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--input", "dali"], ["--input dali: without --data"]),
        (["--data", "PHOTOS", "--input", "dally"], ["--input: 'dally'", "Did you mean 'dali'?"]),
        (["--data", "PHOTOS", "--format", "tfrecord"], ["--format tfrecord:", " has folder, recordio. "]),
        (["--data", "PHOTOS", "--batch-size", "17"], ["--data", "fewer than the 17"]),
        (["--data", "PHOTOS", "--model", "bert"], ["--data", "python -m dlperf.data bert"]),
    ],
)
def test_what_does_not_fit_the_images_is_named(photos, words, parts):
    (problem,) = problems(*RESNET, *(photos if word == "PHOTOS" else word for word in words))
    assert [part in problem for part in parts] == [True] * len(parts), problem


def on(machine, *words):
    """By framework: nothing where its row runs on a machine of this architecture, else status and reason."""
    made = plan.from_spec(parse("--model", "bert", *words), ADAPTERS, machine)
    return {**{job.adapter: None for job in made.jobs}, **{one.adapter: (one.status, one.why) for one in made.skips}}


def test_what_has_no_wheel_for_arm_is_a_row_that_says_so():
    rows = on("aarch64")
    assert {name for name, row in rows.items() if row is None} == {"jax", "pytorch", "tensorflow"}
    assert rows["paddle"] == ("unavailable", "PaddlePaddle 3.3.1 has no wheel for Arm Linux")
    assert rows["oneflow"] == ("unavailable", "OneFlow 0.9.0 has no wheel for Arm Linux")
    assert rows["mxnet"][0] == "unavailable"
    assert "libarmpl_lp64_mp.so" in rows["mxnet"][1]


@pytest.mark.parametrize("machine", ["riscv64", "ppc64le", ""])
def test_a_machine_that_no_lock_is_for_has_rows_with_the_reason(machine):
    rows = on(machine)
    assert len(rows) == 6
    assert {status for status, _ in rows.values()} == {"not_yet"}
    assert all(f"this machine is {machine}" in why for _, why in rows.values())
    assert rows["jax"][1].startswith("cpu is locked for x86_64 and aarch64 only")


def test_a_lock_of_a_variant_serves_the_machines_that_it_says():
    settings = ("--set", "communication=horovod", "--frameworks", "mxnet,pytorch")
    assert on("x86_64", *settings) == {"mxnet": None, "pytorch": None}
    assert {status for status, _ in on("aarch64", *settings).values()} == {"not_yet"}


def test_what_we_did_not_lock_is_the_users_to_know():
    assert set(on("riscv64", "--env", "current", "--frameworks", "jax").values()) == {None}
    image = ("--env", "docker", "--frameworks", "paddle", "--image")
    assert on("aarch64", *image, "mine:1") == {"paddle": None}
    assert on("aarch64", *image[:-1])["paddle"][0] == "unavailable"


def test_threads_are_no_more_than_a_control_group_allows(monkeypatch):
    """More would spin at their barriers while the group is throttled; half a core still has one."""
    for quota, threads in ((3.9, 3), (1.0, 1), (0.5, 1), (None, 8)):
        monkeypatch.setattr(checks.machine, "_cpu_quota", lambda quota=quota: quota)
        monkeypatch.setattr(checks.machine.os, "sched_getaffinity", lambda _: range(8))
        assert parse().threads == threads
