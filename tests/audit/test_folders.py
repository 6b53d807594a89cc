"""A table in a folder with the logs that it is of: what each says of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlperf.audit import reading
from dlperf.audit.rules import audit_all


def oneflow(devices: int, steps: int = 120, batch: int = 128) -> str:
    """Of 400 img/s a device, after a first line that took 20 s more."""
    head = ["model = resnet50", f"batch_size_per_device = {batch}", f"gpu_num_per_node = {devices}", "num_nodes = 1"]
    lines = [
        f"train: epoch 0, iter {step}, loss: {7 - step / 100}, top_1: 0.0, top_k: 0.1, "
        f"samples/s: {400.0 * devices:.3f} {1597e6 + 20 + step * batch / 400:.7f}"
        for step in range(20, steps + 1, 20)
    ]
    return "\n".join([*head, "use_fp16 = False", *lines]) + "\n"


def megatron(steps: int = 60) -> str:
    return "".join(
        f" iteration {step:8}/     200 | consumed samples: {512 * step} | elapsed time per iteration (ms): 3720.0 | "
        f"global batch size:   512 | lm loss: {10 - step / 50:.6E} | loss scale: 1.0 |\n"
        for step in range(10, steps + 1, 10)
    )


def speeds(*rates: float) -> str:
    """Of a script that prints a rate every 20 batches of 1024 samples."""
    return "".join(
        f"Epoch[0] Batch [{20 * at}]\tSpeed: {rate:.2f} samples/sec\tloss={7 - at / 10:.4f}\n"
        for at, rate in enumerate(rates, 1)
    )


ONE = "| GPUs | batch | samples/s |\n|---|---|---|\n| 8 | 128 | {} |\n"
README = """# OneFlow ResNet50, FP32, batch size = 128 per device

{text}

| num_nodes | gpu_num_per_node | samples/s |
|---|---|---|
| 1 | 1 | 400.00 |
| 1 | 8 | {rate} |
"""
WEAK = """# Llama-2-13B, H100

| Model | GPUs | Seq | GBS | Tokens/s/GPU |
|---|---|---|---|---|
| Llama-2-13B | 128 | 4096 | 512 | {rate} |
"""
LOGS = {"1n1g/r.log": oneflow(1), "1n8g/r.log": oneflow(8)}


def stepped(rate: float, steps: int = 40, slow: int = 0) -> str:
    """A log with a rate for each step, up to 3 % apart, the first of which may be slow."""
    rates = [rate * (1 + 0.01 * (at % 7 - 3)) / (3 if at < slow else 1) for at in range(steps)]
    return "".join(
        f"step {at}/{steps} loss: {7 - at / 50:.3f} throughput: {one:.1f} img/s\n" for at, one in enumerate(rates, 1)
    )


def sizes(text: str, **rates: float) -> str:
    rows = "".join(f"| {gpus[1:]} | 64 | {rate} |\n" for gpus, rate in rates.items())
    return f"VGG16, A100, TF32. {text}\n\n| gpus | batch | images/s |\n|---|---|---|\n{rows}"


def elapsed(rate: float) -> str:
    """A log that tells when a line was written alone."""
    return "".join(
        f"step {at}/100 loss {7 - at / 50:.3f} elapsed {at * 64 / rate + 0.5:.3f} s\n" for at in range(10, 101, 10)
    )


HOROVOD_FILE = "horovod_2.txt"
HOROVOD = "Running benchmark...\n" + "".join(f"Iter #{at}: {257.5 + at % 3:.1f} img/sec per GPU\n" for at in range(10))
HOROVOD += "Img/sec per GPU: 257.5 +-1.2\nTotal img/sec on 2 GPU(s): 515.0 +-2.4\n"
PASSED = {f"g{gpus}.log": elapsed(300.0) for gpus in (1, 2, 4)}
SIZED = {"vgg_1.log": stepped(300.0), "vgg_2.log": stepped(590.0), "vgg_4.log": stepped(1150.0)}
LATE = {
    "n1.log": stepped(300.0, 60, slow=20),
    "n2.log": stepped(590.0, 60, slow=20),
    "n4.log": stepped(1150.0, 60, slow=20),
}
LIST = "".join(
    f'{{"step": {at}, "loss": {9 - at / 20:.2f}, "samples_per_sec": {411 + at % 5}}}\n' for at in range(1, 20)
)
TIMED = "".join(
    f"2022-09-01 08:00:{at:02d} INFO iteration {at} lr 0.1 loss {7 - at / 99:.3f} time 0.{340 + at % 5}\n"
    for at in range(1, 30)
)


def found(folder: Path, files: dict[str, str]) -> set[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    every = audit_all(reading.subjects(str(folder)))
    return {one.rule for several in every.values() for one in several}


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({"README.md": README.format(text="", rate="3200.00"), **LOGS}, set()),
        ({"README.md": README.format(text="", rate="2700.00"), **LOGS}, {"not in its log"}),
        (
            {"README.md": README.format(text="", rate="3200.00"), **LOGS, "1n8g/r.log": oneflow(8, 120, 32)},
            {"not in its log"},
        ),
        ({"README.md": README.format(text="We train 120 iterations.", rate="3200.00"), **LOGS}, set()),
        (
            {
                "README.md": README.format(text="We train 120 iterations.", rate="3200.00"),
                **LOGS,
                "1n8g/r.log": oneflow(8, 60),
            },
            {"steps that never ran"},
        ),
        (
            {"README.md": README.format(text="Every case was run 7 times.", rate="3200.00"), **LOGS},
            {"logs of its runs"},
        ),
        ({"README.md": WEAK.format(rate="4,404"), "train.log": megatron()}, set()),
        ({"README.md": WEAK.format(rate="4,910"), "train.log": megatron()}, {"not in the quoted log"}),
        ({"t.csv": "gpus,img/s\n1,99.2\n", "t.log": "{'loss': 2.1}\n{'loss': nan}\n"}, {"not read", "losses of a log"}),
        (
            {
                "a.csv": "config,gpus,tokens/s\na1,8,6411\na2,16,12338\na3,32,24127\n",
                "b.csv": "config,gpus,tokens/s\na1,8,6411\na2,16,12338\na3,32,22482\n",
            },
            {"reprint that differs"},
        ),
        ({"t.md": ONE.format("2571.19"), "train.log": speeds(2566.29, 2575.11, 2572.28, 2571.08)}, set()),
        (
            {"t.md": ONE.format("2089.42"), "train.log": speeds(2566.29, 2575.11, 2572.28, 640.0, 2582.7, 1600.14)},
            {"not in the quoted log"},
        ),
        (
            {"t.md": ONE.format("371.2"), "train.log": speeds(100.0, 811.0, 810.0, 812.0, 811.5, 811.2)},
            {"not in the quoted log"},
        ),
        (
            {
                "t.md": "# FP32\n\n| batch | iterations | samples/s |\n|---|---|---|\n| 128 | 120 | 400.00 |\n",
                "1n1g/r.log": oneflow(1, 80),
            },
            {"steps that never ran"},
        ),
        (
            {
                "a.md": "# ResNet-50, FP32, MXNet, batch size 128\n\n| GPUs | img/s |\n|---|---|\n| 32 | 11331.93 |\n",
                "b.csv": "framework,model,precision,batch,gpus,img/s\nmxnet,resnet50,fp32,128,32,11331.93\n",
                "c.csv": "system,framework,model,precision,batch,gpus,im/s\nNGC,mxnet,resnet50,fp32,128,32,11233.92\n",
            },
            {"odd one of three tables"},
        ),
        (
            {
                "a.csv": "vocabulary,latency (ms)\n3200000,22.414\n6400000,22.314\n12800000,22.352\n",
                "b.csv": "vocabulary,latency_ms\n3200000,0.022414\n6400000,0.022314\n12800000,0.022352\n",
            },
            {"unit of a copy"},
        ),
        (
            {
                f"{nodes}n8g.csv": f"framework,nodes,gpu_num_per_node,bsz,img/s\nours,{nodes},8,128,{rate}\n"
                for nodes, rate in ((1, 2887.65), (2, 5716.79), (4, 10.917))
            },
            {"more devices slower"},
        ),
        (
            {"a.csv": "gpus,seq_len,seq/s\n1,128,331.0\n", "b.csv": "gpus,seq_len,tokens/s\n1,128,98816\n"},
            {"unit changes"},
        ),
        ({"r.md": sizes("Mean of all steps.", g1=300.0, g2=590.0, g4=1150.0), **SIZED}, set()),
        ({"r.md": sizes("Mean of all steps.", g1=300.0, g2=610.0, g4=1150.0), **SIZED}, {"not in the quoted log"}),
        ({"r.md": sizes("Images over time of steps 21-60.", g1=300.0, g2=590.0, g4=1150.0), **LATE}, set()),
        (
            {"r.md": sizes("Images over time of steps 21-60.", g1=300.0, g2=590.0, g4=690.0), **LATE},
            {"not in the quoted log"},
        ),
        (
            {
                "r.md": sizes(
                    "60 steps, of which the first 20 are warm-up; steps 21-60 count.", g1=300.0, g2=590.0, g4=1150.0
                ),
                **LATE,
            },
            set(),
        ),
        (
            {"r.md": sizes("100 steps, of which the first 20 are warm-up.", g1=300.0, g2=590.0, g4=1150.0), **LATE},
            {"quoted log ends early"},
        ),
        ({"r.md": sizes("", g1=300.0, g2=600.0, g4=1200.0), **PASSED}, set()),
        (
            {"r.md": sizes("", g1=300.0, g2=560.0, g4=1200.0), **PASSED},
            {"not in the quoted log", "step beyond proportional"},
        ),
        ({"r.csv": f"log,gpus,batch,total_img_sec\n{HOROVOD_FILE},2,32,515.0\n", HOROVOD_FILE: HOROVOD}, set()),
        (
            {"r.csv": f"log,gpus,batch,total_img_sec\n{HOROVOD_FILE},2,32,551.0\n", HOROVOD_FILE: HOROVOD},
            {"not in the quoted log"},
        ),
        ({"summary.csv": "run,gpus,batch,mean_samples_per_sec\nbert_n4,4,32,412.8\n", "bert_n4.jsonl": LIST}, set()),
        (
            {"summary.csv": "run,gpus,batch,mean_samples_per_sec\nbert_n4,4,32,382.8\n", "bert_n4.jsonl": LIST},
            {"rate of its list of steps"},
        ),
        ({"r.md": sizes("", g1=187.1, g2=374.0), "t_1gpu.log": TIMED, "t_2gpu.log": TIMED}, set()),
        (
            {"r.md": sizes("", g1=187.1, g2=174.0), "t_1gpu.log": TIMED, "t_2gpu.log": TIMED},
            {"not in the quoted log", "more devices slower"},
        ),
        (
            {
                "r.md": sizes("Each cell is the median of 3 runs.", g1=300.0, g2=590.0, g4=1150.0),
                **{
                    f"{gpus}gpu/run{run}.log": text
                    for gpus, text in zip((1, 2, 4), SIZED.values(), strict=True)
                    for run in (1, 2)
                },
            },
            set(),
        ),
        (
            {
                "r.md": sizes("Each cell is the median of 3 runs.", g1=300.0, g2=590.0, g4=1150.0),
                **{
                    f"{gpus}gpu/run{run}.log": text
                    for gpus, text in zip((1, 2, 4), SIZED.values(), strict=True)
                    for run in (1, 2, 3)
                    if gpus * run < 8
                },
            },
            {"logs of each size"},
        ),
        (
            {
                "README.md": "Global batch 65536.\n\n| GPUs | throughput (thousand samples/s) |\n|---|---|\n"
                "| 1 | 6167 |\n| 2 | 11937 |\n| 4 | 23048 |\n| 8 | 42104 |\n",
                "results.csv": "gpus,throughput_ksamples_per_s\n1,6167\n2,11937\n4,23048\n8,44814\n",
            },
            {"reprint that differs"},
        ),
    ],
)
def test_what_a_table_and_its_logs_say_of_each_other(tmp_path: Path, files: dict[str, str], rules: set[str]) -> None:
    assert found(tmp_path, files) == rules


def test_a_time_whose_column_names_its_log(tmp_path: Path) -> None:
    told = [(0, "run_start"), (900_000, "run_stop")]
    log = "".join(
        f':::MLLOG {{"namespace": "", "time_ms": {1_700_000_000_000 + ms}, "event_type": "INTERVAL", "key": "{key}", '
        f'"value": null, "metadata": {{"status": "success"}}}}\n'
        for ms, key in told
    )
    head = ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "submission_benchmark", '
    head += '"value": "resnet", "metadata": {}}\n'
    table = "# Minutes to train\n\n| System | result_1 | result_2 |\n|---|---|---|\n| ours | 15.0 | {} |\n"
    logs = {"ours/result_1.txt": head + log, "ours/result_2.txt": head + "\n" + log}
    assert found(tmp_path, {"README.md": table.format("15.0"), **logs}) == set()
    assert found(tmp_path, {"README.md": table.format("14.0"), **logs}) == {"not in its log"}
    row = "| System | Benchmark | Time to train (minutes) |\n|---|---|---|\n| dgxa100 | resnet | {} |\n"
    runs = {f"results/dgxa100/resnet/result_{at}.txt": text for at, text in enumerate(logs.values())}
    assert found(tmp_path / "folders", {"README.md": row.format("15.0"), **runs}) == set()
    assert found(tmp_path / "folders", {"README.md": row.format("14.0"), **runs}) == {"not in its log"}
