"""What this machine is, which rows will run on it and how, and what the first comparison will take."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence

from dlperf import __version__, cache, machine, models, sources
from dlperf.adapters import cpu, gpu
from dlperf.catalog import reader
from dlperf.catalog.adapter import RUNNABLE, Adapter
from dlperf.cli import Parser, exit_code
from dlperf.comparison import estimate
from dlperf.envs import pythons
from dlperf.flags import DEFAULTS
from dlperf.planning import checks, obstacles, plan, spec
from dlperf.planning.spec import AUTO
from dlperf.precision import resolve
from dlperf.report import text
from dlperf.words import count

#: kinds of CPUs, with what decides which kernels a framework has there, the oldest first
CLASSES: Mapping[str, frozenset[str]] = {
    "no AVX (Nehalem)": frozenset({"ssse3", "sse4_1", "sse4_2", "popcnt"}),
    "AVX (Sandy Bridge)": frozenset({"avx"}),
    "AVX2 (Haswell; Zen to Zen 3)": frozenset({"avx2", "fma", "f16c"}),
    "AVX-512 (Skylake-X)": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}),
    "AVX-512 and bfloat16 (Cooper Lake; Zen 4)": frozenset({"avx512_vnni", "avx512_bf16"}),
    "AMX (Sapphire Rapids)": frozenset({"amx_tile", "amx_int8", "amx_bf16", "avx_vnni", "avx512_fp16"}),
}
ARM: Mapping[str, frozenset[str]] = {
    "Arm": frozenset({"asimd"}),
    "Arm with bfloat16": frozenset({"asimd", "bf16", "i8mm"}),
}
#: kinds of GPUs by a card that has their compute capability
GPUS = {
    **{"P100": "6.0", "V100": "7.0", "T4": "7.5", "A100": "8.0", "A10": "8.6", "L4": "8.9"},
    **{"H100, H200": "9.0", "B200": "10.0", "RTX 5090": "12.0"},
}
#: in a table's cell
NOT_SUPPORTED = "–"


def classes() -> dict[str, frozenset[str]]:
    """Kind of CPU -> all that it has."""
    found: dict[str, frozenset[str]] = {}
    has: frozenset[str] = frozenset()
    for name, more in CLASSES.items():
        has |= more
        found[name] = has
    return {**found, **ARM}


def kernels(adapter: Adapter, family: str, precision: str, found: frozenset[str]) -> str:
    """One word for a row: of cpu.KERNELS, or NOT_SUPPORTED where the framework has no such precision on a CPU."""
    if adapter.support_of(family, "cpu", precision, "synthetic").status not in RUNNABLE:
        return NOT_SUPPORTED
    entry = cpu.kernels(adapter.kernels_of(family, "cpu", precision), found)
    return str(entry["kernels"]) if entry else "unknown"


def table(adapters: Sequence[Adapter]) -> str:
    """adapters/KERNELS.md: what each framework has on each kind of CPU and GPU, as the adapters' own tables say."""
    return f"{_cpu_table(adapters)}\n{_gpu_table(adapters)}"


def _gpu_table(adapters: Iterable[Adapter]) -> str:
    lines = [
        "# Kernels by GPU",
        "",
        "What the frameworks' wheels of the CUDA environments have, read from their binaries (`make capabilities`), in",
        "every precision; tf32 needs sm_80 or later. *native*: kernels for the GPU, or PTX, which the driver compiles.",
        "*none*: they cannot run; [README.md](README.md#gpus-that-a-lock-does-not-fit) says what should. None of",
        "these was run: the H200 of report/published had PyTorch 2.11 and JAX 0.11 of its own.",
        "",
        "| framework | CUDA | driver | "
        + " | ".join(f"{name}, sm_{one.replace('.', '')}" for name, one in GPUS.items())
        + " |",
        "|---|---|---|" + "---|" * len(GPUS),
    ]
    for adapter in adapters:
        made = adapter.environments["cuda"]
        found = [cpu.kernels(made.kernels, gpu.runs([gpu.Gpu("", None, "", one)])) for one in GPUS.values()]
        cells = [str(one["kernels"]) if one else "unknown" for one in found]
        least = gpu.LEAST_DRIVER.get(made.cuda or 0, "unknown")
        lines.append(f"| {adapter.title} | {made.cuda or 'unknown'} | {least} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cpu_table(adapters: Iterable[Adapter]) -> str:
    kinds = classes()
    lines = [
        "<!-- Made from adapters/*/adapter.toml, [[kernels]] and capabilities: `python -m dlperf.doctor --table`. -->",
        "# Kernels by CPU",
        "",
        "What the wheels that dlperf installs compute matrix products and convolutions with. *native*: their own",
        "kernels for the precision. *emulated*: their own, which convert to float32 and back. *reference*: a plain",
        "loop of last resort, which runs with `--allow-reference` only. *none*: it fails. –: the framework has no such",
        f"precision on a CPU. Several words are for {', '.join(models.FAMILIES)},",
        "as far as they have the precision. `amp` is bfloat16 on a CPU.",
        "What was run, and what was read in the libraries' source, stands beside each entry in adapter.toml; on Arm,",
        "PyTorch was only read.",
        "",
        "| framework | precision | " + " | ".join(kinds) + " |",
        "|---|---|" + "---|" * len(kinds),
    ]
    for adapter in adapters:
        for asked in ("fp32", "amp"):
            precision = resolve(asked, "cpu")
            cells = [_no_wheel(adapter, name) or _cell(adapter, precision, found) for name, found in kinds.items()]
            lines.append(f"| {adapter.title} | {asked} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _no_wheel(adapter: Adapter, kind: str) -> str:
    """For the cell of a kind of CPU for which there is nothing to install."""
    return "no wheel" if kind in ARM and adapter.environments["cpu"].lacks("aarch64") else ""


def screen(adapters: Mapping[str, Adapter]) -> str:
    """What a newcomer wants to know before the first comparison, on one screen."""
    found = cpu.flags()
    chosen = [one for one in adapters.values() if one.default]
    lines = [f"dlperf {__version__} on this machine", "", *_machine(chosen, found), ""]
    lines += [*_rows(chosen, found), ""]
    lines += _gpu_rows(adapters, gpu.look().gpus)
    lines += _first_comparison(adapters)
    return "\n".join(lines)


def kind(found: frozenset[str]) -> str:
    """The newest kind of CPU all of whose instruction sets this one has."""
    kinds = ARM if "asimd" in found else {name: has for name, has in classes().items() if name not in ARM}
    names = [name for name, has in kinds.items() if has <= found]
    return names[-1] if names else "of no kind that dlperf knows"


def _machine(chosen: Sequence[Adapter], found: frozenset[str] | None) -> list[str]:
    told = machine.describe()
    processor = f"{told.get('cpu', 'unknown')}, {count(machine.usable_cores(), 'core')}"
    free = estimate.free(cache.folder())
    return [
        f"CPU      {processor}: {kind(found) if found is not None else 'its instruction sets are hidden'}",
        f"Memory   {told.get('memory_bytes', 0) / 1e9:.1f} GB, {machine.available_memory() / 1e9:.1f} available",
        f"Disk     {'unknown' if free is None else f'{free / 1e9:.0f} GB'} free in {cache.folder()}",
        *[f"GPU      {line}" for line in _gpus(gpu.look())],
        f"Python   {platform.python_version()}; {_pythons(chosen)}",
    ]


def _pythons(chosen: Iterable[Adapter]) -> str:
    """What the environments will be made with: "3.11 for JAX and PyTorch; 3.10 (to be fetched) for OneFlow"."""
    found: dict[str, list[str]] = {}
    for adapter in chosen:
        versions = adapter.environments["cpu"].python
        there = pythons.at_hand(versions)
        found.setdefault(there.version if there else f"{versions[0]} (to be fetched)", []).append(adapter.title)
    return "; ".join(f"{version} for {text.listing(titles)}" for version, titles in found.items())


def _rows(chosen: Sequence[Adapter], found: frozenset[str] | None) -> list[str]:
    """Each framework in both precisions: what its kernels are, or why there are none."""
    head = "Rows on the CPU"
    width = max(len(name) for name in (head, *(one.title for one in chosen)))
    lines = [f"{head:<{width}}  fp32       amp (bfloat16)"]
    for one in chosen:
        cells = [_cell(one, precision, found) for precision in ("fp32", "amp_bf16")]
        lines.append(f"{one.title:<{width}}  {cells[0]:<9}  {cells[1]}")
    whys = {why: None for one in chosen for precision in ("fp32", "amp_bf16") for why in _whys(one, precision, found)}
    return lines + [f"  {why}" for why in whys]


def _gpus(found: gpu.Look) -> list[str]:
    return [one.about + _shared(one) for one in found.gpus] or [found.why or "none"]


def _shared(one: gpu.Gpu) -> str:
    return f"; others hold {(one.used_bytes or 0) / 2**30:.1f} GiB of its memory" if one.shared else ""


def _gpu_rows(adapters: Mapping[str, Adapter], gpus: tuple[gpu.Gpu, ...]) -> list[str]:
    """Each framework: whether its environment has kernels for these GPUs, or what has; nothing without a GPU."""
    if not gpus:
        return []
    asked = checks.from_arguments({**DEFAULTS, "model": "bert", "device": "cuda", "dry_run": True}, adapters)
    lines = ["Rows on the GPU (no adapter has been run on one)"]
    for one in (adapters[name] for name in asked.frameworks):
        why = obstacles.other_gpu(asked, one, "cuda", "fp32")
        known = gpu.runs(gpus) is not None and one.environments["cuda"].capabilities
        lines.append(f"{one.title}: {why or ('its environment has kernels' if known else 'unknown')}")
    return [*lines, ""]


def _cell(adapter: Adapter, precision: str, found: frozenset[str] | None) -> str:
    """One word for all its families that have this precision, or one for each where they differ."""
    if found is None:
        return "unknown"
    cells = [kernels(adapter, family, precision, found) for family in adapter.families]
    cells = [one for one in cells if one != NOT_SUPPORTED] or [NOT_SUPPORTED]
    return " / ".join(cells if len(set(cells)) > 1 else cells[:1])


def _whys(adapter: Adapter, precision: str, found: frozenset[str] | None) -> Iterable[str]:
    for family in adapter.families if found is not None else ():
        entries = adapter.kernels_of(family, "cpu", precision)
        entry = cpu.kernels(entries, found)
        if entry and entry["kernels"] != "native":
            yield f"{adapter.title}: {cpu.refusal(entries, found) or entry['why']}"


def _first_comparison(adapters: Mapping[str, Adapter]) -> list[str]:
    """What the first comparison will do, by the command that is here, and what that takes."""
    arguments = {**DEFAULTS, "model": "bert", "precision": AUTO, "dry_run": True}
    asked = checks.from_arguments(arguments, adapters)
    planned = plan.from_spec(asked, adapters)
    expected = estimate.expected(asked, planned.jobs * asked.protocol.repeats, adapters)
    command = "make compare" if sources.in_checkout() else "dlperf compare --model bert --precision auto"
    lines = [f"{command} (BERT-base, all frameworks)", f"  {spec.chosen_precision(asked, adapters)}"]
    lines += [f"  {line}" for line in estimate.text(expected)]
    return lines + [f"  not run: {one.title}: {one.why}" for one in planned.skips]


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.doctor", description=__doc__)
    about = "print what frameworks have on which kind of CPU, as Markdown"
    made.add_argument("--table", action="store_true", help=about)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for a wrong request."""
    asked = parser().parse_args(argv)
    return exit_code(lambda: _print(table(_native()) if asked.table else screen(reader.adapters()) + "\n"))


def _native() -> list[Adapter]:
    return [one for one in reader.adapters().values() if one.default]


def _print(page: str) -> int:
    sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
