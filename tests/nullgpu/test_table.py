"""`make nullgpu-table`: what a step launches and moves, and what an H200 could do of it at best."""

import pytest

pytestmark = [pytest.mark.nullgpu_table, pytest.mark.framework]

COLUMNS = [
    "system",
    "kernels + library calls + Triton",
    "of the host",
    "waits",
    "host ms",
    "GB",
    "ms at limits (products)",
]
COLUMNS += ["bound /s", "likely /s"]
ROWS = [
    ("resnet50", "amp_fp16", 256, "compile=off"),
    ("resnet50", "amp_fp16", 256),
    ("resnet50", "amp_bf16", 256),
    ("bert_base", "amp_bf16", 64, "compile=off"),
    ("bert_base", "amp_fp16", 64),
    ("bert_base", "amp_bf16", 64),
    ("bert_base", "amp_bf16", 512),
    ("bert_base_512", "amp_bf16", 64),
]


def row(job, found):
    step, host = found["step"], found["host"]
    launched = " + ".join(f"{step.get(kind, 0):.0f}" for kind in ("kernels", "libraries", "triton"))
    of_host = f"{host['graphs']:.0f} graph + {host.get('kernels', 0):.0f}" if "graphs" in host else "all"
    cells = [
        " ".join(map(str, job)),
        launched,
        of_host,
        f"{step.get('waits', 0):.0f}",
        f"{found['host_ms']:.1f}",
        f"{found['gigabytes']:.1f}",
        f"{found['ms']:.1f} ({found['products_ms']:.1f})",
        f"{found['bound']:,.0f}",
        f"{found['likely']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def test_table(step):
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for job in ROWS:
        print(row(job, step(*job)), flush=True)
