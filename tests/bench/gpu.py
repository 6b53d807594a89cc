"""What a machine with a GPU can tell: `make gpu`.

It needs no package index: dlperf runs from the checkout, in the running Python, and trains with the frameworks that are
installed there. The steps are in the order of what they tell; each goes on where an earlier call stopped. Peers of
ours, as users of timm, transformers and flax write them, run in the same series (tests/bench/*_plain).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: setup.cfg's package_dir, for a checkout that is not installed
FOLDERS = {"dlperf": "dlperf", **{name: name for name in ("adapters", "docker", "launchers", "models", "report")}}
#: what a step may take; a machine may be lent for ten minutes a command
SECONDS = 480.0
#: after SIGINT, for the report of what was measured
REPORT_SECONDS = 60.0
#: a framework and the plain way to use it, by the package that must be installed for it
SYSTEMS = {"pytorch": "torch", "pytorch_plain": "timm", "jax": "jax", "jax_plain": "flax"}
#: PyTorch's eager and compiled step with and without a CUDA graph of the whole of it
GRAPHS = ("--set", "graph=on,off")
#: a batch per device that fills more of a large card than DLPerf's
LARGE = 512
#: what dlperf itself needs for these steps, and where wheels of it may lie that were carried to this machine
NEEDS, CARRIED = ("jinja2", "matplotlib", "msgspec", "numpy", "packaging", "rich", "scipy"), ROOT / ".whl"
#: of files that are brought back
LEFT_OUT = ("code", "xplane")


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all steps are done; 1 if one failed; 3 if time ran out: call again."""
    arguments = _parser().parse_args(argv)
    folder = arguments.output.resolve()
    here = [name for name, package in SYSTEMS.items() if importlib.util.find_spec(package)]
    if not here:
        print(f"make gpu: {sys.executable} has neither torch nor jax: name another with PYTHON=", file=sys.stderr)
        return 2
    steps = commands(folder, arguments.device, arguments.repeats, here)
    unknown = sorted(set(arguments.steps) - set(steps))
    if unknown:
        print(f"make gpu: STEP {unknown[0]!r} is not usable; allowed: {', '.join(steps)}.", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    missing = lacking(folder)
    if missing:
        print(
            f"make gpu: {sys.executable} lacks {', '.join(missing)}, which dlperf needs. Install it there; without a "
            f"package index, bring its wheels in {CARRIED.name}/: python -m pip download --no-deps -d {CARRIED.name} "
            f"--only-binary :all: --python-version {sys.version_info[0]}.{sys.version_info[1]} {' '.join(missing)}",
            file=sys.stderr,
        )
        return 2
    until = time.monotonic() + arguments.seconds
    codes = {}
    for name in arguments.steps or steps:
        done = folder / name / "done"
        if done.exists():
            continue
        if until - time.monotonic() < 2 * REPORT_SECONDS:
            print(f"== {name}: no time left; call again", flush=True)
            codes[name] = 3
            break
        steps = commands(folder, arguments.device, arguments.repeats, here)  # what a step found changes the next
        first, had = not codes, made(folder)
        codes[name] = _step(name, steps[name], folder, until)
        if codes[name] == 3 and first and made(folder) == had:  # the next call would end in the same place
            print(
                f"== {name}: the next run does not fit into a call, so this step is left; more: --seconds", flush=True
            )
            codes[name] = 2
        if codes[name] == 3:
            break
        done.parent.mkdir(exist_ok=True)
        done.write_text(f"{codes[name]}\n")
    if arguments.pack:
        pack(folder, arguments.pack)
    print("".join(f"{name}: {_said(code)}\n" for name, code in codes.items()), end="")
    return max(codes.values(), default=0)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make gpu", description=(__doc__ or "").splitlines()[0])
    made.add_argument("steps", nargs="*", metavar="STEP", help="default: all that are not done")
    made.add_argument("--seconds", type=float, default=SECONDS, help="of this call; default: %(default)g")
    made.add_argument("--repeats", type=int, default=3, help="blocks of a comparison; default: %(default)s")
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal with tiny models")
    made.add_argument("-o", "--output", type=Path, default=ROOT / "runs" / "gpu", help="default: runs/gpu")
    made.add_argument("--pack", type=Path, metavar="FILE.tar.gz", help="write what was found to one file, too")
    return made


def lacking(folder: Path) -> list[str]:
    """Packages of NEEDS that are neither installed nor carried; those that are carried are unpacked in `site`."""
    missing, site = [name for name in NEEDS if not importlib.util.find_spec(name)], folder / "site"
    for wheel in CARRIED.glob("*.whl") if missing else ():
        shutil.unpack_archive(wheel, site, "zip")
    return [name for name in missing if not (site / name).exists()]


def commands(folder: Path, device: str, repeats: int, here: Sequence[str]) -> dict[str, list[list[str]]]:
    """Each step's commands, in order. here: those of SYSTEMS that can run."""
    ours = ",".join(name for name in here if not name.endswith("_plain"))
    common = ["--env", "current", "--device", device, "--timeout", "240"]
    models = ("resnet50", "bert", "bert_base_512") if device == "cuda" else ("resnet_tiny", "bert_tiny", "bert_tiny")
    resnet, bert, long = models
    compiled = ["--compile", "off,on"]

    def compare(name: str, model: str, precision: str, *more: str) -> list[str]:
        place = ["--resume", str(folder / name)] if (folder / name).exists() else []
        return ["compare", *(place or ["-o", str(folder / name), "-m", model, "-p", precision, *common, *more])]

    graph = ["--set", "pytorch.graph=off"] if refused(folder / "resnet50" / "records.jsonl") else []
    # --aa: a row that is measured twice would take the time of another
    blocks = ["--protocol", "dlperf" if device == "cuda" else "quick", "-r", str(repeats), "--aa", "0"]
    own, series = (["-f", who, *more, *graph, *blocks] for who, more in ((ours, []), (",".join(here), compiled)))
    amp, bf16 = ("amp", "bf16") if device == "cuda" else ("amp", "amp")
    proofs = ["verify", "-f", ours, "-m", f"{resnet},{bert}", *common[:4]]
    known = {
        "resnet50": [compare("resnet50", resnet, amp, *own)],
        "bert": [compare("bert", bert, amp, *own)],
        "largest": [compare("largest", f"{resnet},{bert}", bf16, "-f", ours, "-b", str(LARGE), *blocks)],
        "resnet50-bf16": [compare("resnet50-bf16", resnet, bf16, *series)],
        "bert-bf16": [compare("bert-bf16", bert, bf16, *series)],
        # a comparison makes the proofs of its rows; these are of what may be left, and take minutes
        "proofs": [[*proofs, "-p", one, *compiled] for one in ("fp64", amp, "fp32", "tf32", bf16)],
        "bert-512": [compare("bert-512", long, bf16, *own)],
        "graphs": [compare("graphs", f"{resnet},{bert}", amp, "-f", "pytorch", *compiled, *GRAPHS, *blocks)],
        "fp32": [compare("fp32", f"{resnet},{bert}", "fp32,tf32" if device == "cuda" else "fp32", *series)],
        "profile": [["profile", str(folder / one), str(folder / "profile")] for one in ("resnet50", "bert-bf16")],
    }
    if device == "cpu":
        known["proofs"] = [[*proofs, "-p", one] for one in ("fp64", amp)]
        del known["graphs"], known["largest"]
    return known


def refused(records: Path) -> bool:
    """Whether PyTorch's compiled step, which is captured as a CUDA graph, failed where it was first tried."""
    found = map(json.loads, records.read_text().splitlines()) if records.exists() else ()
    return any(record["failure"] and record["job"]["system"] == "pytorch+inductor" for record in found)


def _step(name: str, of_step: Sequence[Sequence[str]], folder: Path, until: float) -> int:
    """The worst exit code of its commands; 3 if time ran out."""
    codes = []
    for command in of_step:
        program, *words = command
        line = [
            sys.executable,
            "-P",
            *(["-m", f"dlperf.{program}"] if program != "profile" else [str(HERE / "profile.py")]),
        ]
        print(f"== {name}: {program} {' '.join(words)}", flush=True)
        codes.append(_run([*line, *words], variables(folder), until - REPORT_SECONDS - time.monotonic()))
        if codes[-1] == 3:
            forget_half_made(folder / "cache")
            break
    return max(codes)


def made(folder: Path) -> int:
    """How many proofs and runs are kept for the next call."""
    runs = sum(len(path.read_bytes().splitlines()) for path in folder.glob("*/records.jsonl"))
    return runs + sum(1 for _ in folder.glob("cache/**/certificate.json"))


def _run(line: Sequence[str], variables: Mapping[str, str], seconds: float) -> int:
    """Its exit code; 3 if it was interrupted for taking longer."""
    with subprocess.Popen(line, env=variables, cwd=ROOT) as running:
        try:
            return min(running.wait(max(seconds, 0)), 2)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # it keeps what was measured, and writes the report
            running.wait()
            return 3


def forget_half_made(cache: Path) -> None:
    """Delete libraries that may be cut off: Inductor's compiler, killed with its run, leaves what it has written where
    the next run loads it from."""
    for path in cache.rglob("*.so"):
        if time.time() - path.stat().st_mtime < 2 * REPORT_SECONDS:
            path.unlink()


def variables(folder: Path) -> dict[str, str]:
    """For dlperf from this checkout, with the peers' adapters, and with caches that a later call finds."""
    links = folder / "package"
    (links / "dlperf").mkdir(parents=True, exist_ok=True)
    for path in [*(ROOT / "dlperf").iterdir(), *(ROOT / name for name in FOLDERS.keys() - {"dlperf"})]:
        with suppress(FileExistsError):  # of an earlier call, which may be of an older checkout
            (links / "dlperf" / path.name).symlink_to(path)
    caches = {"DLPERF_CACHE": "", "TORCHINDUCTOR_CACHE_DIR": "inductor", "JAX_COMPILATION_CACHE_DIR": "xla"}
    kept = {name: str(folder / "cache" / inner) for name, inner in caches.items()}
    path = os.pathsep.join(filter(None, [str(links), str(folder / "site"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **kept, "PYTHONPATH": path, "DLPERF_ADAPTERS": str(HERE)}


def pack(folder: Path, path: Path) -> None:
    """All that was found, without the code that ran and without caches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as packed:
        for one in sorted(folder.iterdir()):
            if one.name not in ("package", "cache", "site"):
                packed.add(one, f"gpu/{one.name}", filter=_kept)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def _kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(info.name).name in LEFT_OUT or info.name.endswith(".npz") else info


def _said(code: int) -> str:
    return {0: "done", 1: "done, with failures", 2: "failed", 3: "not finished: call again"}[code]


if __name__ == "__main__":
    sys.exit(main())
