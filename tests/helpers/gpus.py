"""A program that stands in for nvidia-smi."""

import os

#: name, MiB, driver, compute capability, UUID, MIG
H200 = "NVIDIA H200, 143771, 580.159.04, 9.0, GPU-11, Disabled"
A100 = "NVIDIA A100-SXM4-80GB, 81920, 470.82.01, 8.0, GPU-22, Disabled"


def install(folder, monkeypatch, *rows, listed="", code=0):
    """Put it in front of PATH. rows: what it answers, a line for each GPU. listed: by -L. code: how it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("rows", "\n".join(rows)), ("listed", listed)):
        (folder / name).write_text(f"{text}\n" if text else "")
    script = f'case "$1" in -L) cat "{folder}/listed";; --query*) cat "{folder}/rows"; exit {code};; esac'
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
