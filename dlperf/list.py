"""List the frameworks, the models, the adapters' options, or what is supported where."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from dlperf import models
from dlperf.catalog import locks, reader
from dlperf.catalog.adapter import INPUTS, Adapter
from dlperf.cli import Parser, exit_code
from dlperf.models.parameters import count
from dlperf.planning.spec import default_batch_size
from dlperf.precision import TABLE as PRECISIONS
from dlperf.words import columns

Row = Mapping[str, object]


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.list", description=__doc__)
    made.add_argument(
        "what", nargs="?", choices=LISTS, metavar="WHAT", help=f"{', '.join(LISTS)}; default: all of them"
    )
    made.add_argument("--json", action="store_true", help="as JSON, with all fields")
    made.add_argument("--all", action="store_true", help="also models without a title, which train in a moment")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 for a wrong request."""
    asked = parser().parse_args(argv)
    return exit_code(lambda: _list([asked.what] if asked.what else list(LISTS), asked.json, asked.all))


def _list(names: Sequence[str], as_json: bool, every: bool) -> int:
    adapters = reader.adapters()
    lists = {**LISTS, "models": all_models} if every else LISTS
    found = {name: [*lists[name](adapters)] for name in names}
    if as_json:
        print(json.dumps(found if len(names) > 1 else found[names[0]], indent=1, ensure_ascii=False))
        return 0
    texts = {name: _text(rows) for name, rows in found.items()}
    if "models" in texts and not every:
        small = [name for name in models.NAMES if name not in models.family(name).TITLES]
        texts["models"] += f"\n--all lists {len(small)} more, which train in a moment: {', '.join(small)}"
    print("\n\n".join(texts.values()))
    return 0


def _text(rows: Sequence[Row]) -> str:
    cells = [[_cell(value) for value in row.values()] for row in rows]
    return columns([[name.replace("_", " ") for name in rows[0]], *cells])


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one}" for key, one in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.10g}" if isinstance(value, (int, float)) else str(value or "-")


def frameworks(adapters: Mapping[str, Adapter]) -> Iterator[Row]:
    """versions: by environment, of the package that is the framework, as its lock has it. default: whether a
    comparison of all frameworks has it."""
    for name, adapter in adapters.items():
        yield {
            "framework": name,
            "title": adapter.title,
            "kind": adapter.kind.name,
            "default": adapter.default,
            "devices": adapter.devices,
            "versions": {key: version for key in adapter.environments if (version := _version(adapter, key))},
        }


def _version(adapter: Adapter, key: str) -> str:
    if not adapter.has_lock(key):
        return ""
    pinned = {one.name: one.version for one in locks.read(adapter.environments[key].lock)}
    return next((pinned[name.lower()] for name in adapter.distribution if name.lower() in pinned), "")


def listed_models(adapters: Mapping[str, Adapter]) -> Iterator[Row]:
    """Those with a title."""
    return (row for row in all_models(adapters) if row["title"])


def all_models(adapters: Mapping[str, Adapter]) -> Iterator[Row]:
    """gigaflops: of a training step for one `sample`. frameworks: of all by default, those that have the family."""
    for name in models.NAMES:
        family = models.family(name)
        yield {
            "model": name,
            "title": family.TITLES.get(name, ""),
            "aliases": [alias for alias, of in models.ALIASES.items() if of == name],
            "parameters": count(family.parameters(models.config(name))),
            "gigaflops": _three_digits(models.flops(name) / models.units(name) / 1e9),
            "sample": family.SAMPLE.removesuffix("s"),
            "batch_size_on_cpu": default_batch_size(name, "cpu", "fp32"),
            "batch_size_on_cuda": {kind: family.BATCH_SIZE["cuda"][kind] for kind in ("fp32", "amp")},
            "frameworks": [
                one.name for one in adapters.values() if one.default and models.FAMILY_OF[name] in one.families
            ],
        }


def _three_digits(value: float) -> float:
    """`1021`, `24.5`, `0.428`."""
    return float(f"{value:.0f}" if value >= 1000 else f"{value:.3g}")


def options(adapters: Mapping[str, Adapter]) -> Iterator[Row]:
    """values: the first is the default, but on the devices that `default` names; any: whether others are taken."""
    for adapter in adapters.values():
        for option in adapter.options.values():
            yield {
                "framework": adapter.name,
                "option": option.name,
                "values": option.values,
                "any": option.any,
                "default": option.defaults,
                "families": option.family or ("all",),
                "about": option.about,
            }


def support(adapters: Mapping[str, Adapter]) -> Iterator[Row]:
    """status: yes, untested, not_yet (ours to do), unavailable (theirs) or never; why: of those that are not run."""
    for adapter in adapters.values():
        for one in adapter.support:
            yield {
                "framework": adapter.name,
                "device": one.device,
                "families": one.family,
                "precisions": _all(one.precision, PRECISIONS),
                "input": _all(one.input, INPUTS),
                "status": one.status,
                "why": one.why,
            }
        mentioned = {family for one in adapter.support for family in one.family}
        missing = tuple(family for family in models.FAMILIES if family not in mentioned)
        if missing:
            why = adapter.support_of(missing[0], "cpu", "fp32", "synthetic").why
            everywhere = {"device": ("cpu", "cuda"), "families": missing, "precisions": ("all",), "input": ("all",)}
            yield {"framework": adapter.name, **everywhere, "status": "not_yet", "why": why}


def _all(values: Sequence[str], known: Sequence[str] | Mapping[str, object]) -> Sequence[str]:
    return ("all",) if set(values) == set(known) else values


LISTS: Mapping[str, Callable[[Mapping[str, Adapter]], Iterator[Row]]] = {
    "frameworks": frameworks,
    "models": listed_models,
    "options": options,
    "support": support,
}


if __name__ == "__main__":
    sys.exit(main())
