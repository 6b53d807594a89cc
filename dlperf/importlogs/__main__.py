"""Reads the figures in logs of others' training scripts, single ones or whole trees, with file and line of each."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError, clean, did_you_mean, shown, whole_number
from dlperf.words import count

if TYPE_CHECKING:
    from dlperf.figures.published import Figure
    from dlperf.importlogs.many import File


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.importlogs", description=__doc__)
    made.add_argument(
        "paths", metavar="PATH", nargs="+", help="a log, or a folder of them such as 4n8g/r50_b128_fp32_1.log"
    )
    made.add_argument(
        "-o", "--output", metavar="DIR", help="write figures.csv and source.toml there; default: print a table"
    )
    made.add_argument("--format", metavar="F", help="of all logs; default: the one that each looks like")
    made.add_argument("--nnodes", metavar="N", help="where neither a log nor its path tells")
    made.add_argument("--nproc-per-node", metavar="N", help="devices of a node, likewise")
    made.add_argument("--batch-size", metavar="N", help="per device, likewise")
    made.add_argument("--precision", metavar="P", help="fp32, tf32, amp, fp16 or bf16, likewise")
    made.add_argument("--model", metavar="M", help="likewise, such as resnet50")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0, with what is not read on stderr; 1 where nothing could be read; 2 for a wrong request."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _import(arguments))


def _import(arguments: Mapping[str, Any]) -> int:
    from dlperf.importlogs import many, runs
    from dlperf.importlogs.formats import formats

    forms = formats()
    given = _given(arguments, forms)
    output = _output(arguments["output"])
    places = [Path(one) for one in arguments["paths"]]
    if absent := [one for one in places if not one.exists()]:
        raise UsageError(Problem("PATH", one, says="there is no such file or folder.") for one in absent)
    files = _files(places)
    made = []
    for file, found in many.every(files, arguments["format"], given):
        if isinstance(found, str):
            print(clean(f"{shown(file.label)}: not read: {found}"), file=sys.stderr)
        else:
            made.append(found)
    if not made:
        if len(files) != 1:  # else that is said
            print("Nothing could be read." if files else "There is no file in it.", file=sys.stderr)
        return 1
    figures = [figure for one in made for figure in one.figures] + list(runs.medians(made))
    if output:
        _write(output, figures, places)
        print(f"{count(len(figures), 'figure')}: {output / 'figures.csv'}")
    else:
        print(_table(figures))
    return 0


def _files(places: Sequence[Path]) -> list[File]:
    """Of all trees. Of one name the first counts."""
    from dlperf.importlogs import trees
    from dlperf.importlogs.many import File

    files, labels = [], set[str]()
    for place in places:
        for path, name, why in trees.files(place):
            label = str(Path(place.name, name)) if len(places) > 1 and place.is_dir() else name
            again = "another log of this name was read. Import them apart" if label in labels else ""
            files.append(File(path, label, why or again))
            labels.add(label)
    return files


def _given(arguments: Mapping[str, Any], forms: Mapping[str, object]) -> dict[str, str]:
    """UsageError for all flags that are wrong."""
    from dlperf.importlogs.size import PRECISIONS

    wrong = []
    if (form := arguments["format"]) is not None and form not in forms:
        wrong.append(Problem("--format", form, ", ".join(forms), did_you_mean(form, forms)))
    numbers = {"nodes": "nnodes", "devices_per_node": "nproc_per_node", "batch": "batch_size"}
    for name in numbers.values():
        if arguments[name] is not None and whole_number(arguments[name], most=10**7) is None:
            wrong.append(Problem(f"--{name.replace('_', '-')}", arguments[name], "a whole number from 1 to 10,000,000"))
    precision = arguments["precision"]
    if precision is not None and precision not in PRECISIONS:
        wrong.append(Problem("--precision", precision, ", ".join(PRECISIONS), did_you_mean(precision, PRECISIONS)))
    if wrong:
        raise UsageError(wrong)
    named = {**numbers, "precision": "precision", "model": "model"}
    return {key: arguments[name] for key, name in named.items() if arguments[name] is not None}


def _output(named: str | None) -> Path | None:
    if named is None:
        return None
    place = Path(named)
    if place.exists() and not place.is_dir():
        raise UsageError([Problem("--output", named, says="this is a file. Choose a folder.")])
    if place.is_dir() and any(place.iterdir()):
        raise UsageError([Problem("--output", named, says="it is not empty. Choose another folder.")])
    return place


def _write(place: Path, found: Sequence[Figure], sources: Sequence[Path]) -> None:
    """Both files whole, or none."""
    from dlperf.figures import published

    name = place.resolve().name
    told = ", ".join(shown(one.name or str(one)) for one in sources)
    lines = [
        f"id = {json.dumps(name)}",
        f"title = {json.dumps(f'Logs of {told}')}",
        'publisher = "not stated"',
        'url = "not stated"',
        'about = "Read from logs by dlperf importlogs; path and line are of each log, lines in options its window."',
    ]
    for table in dict.fromkeys(one.table for one in found):
        lines += ["", "[[table]]", f"id = {json.dumps(table)}", f"title = {json.dumps(table)}"]
    texts = {"figures.csv": published.text(found), "source.toml": "\n".join(lines) + "\n"}
    written = {place / f".{one}.new": text.encode() for one, text in texts.items()}
    place.mkdir(parents=True, exist_ok=True)
    try:
        for aside, content in written.items():
            aside.write_bytes(content)
    except OSError:
        for aside in written:
            aside.unlink(missing_ok=True)
        raise
    for aside, one in zip(written, texts, strict=True):
        os.replace(aside, place / one)


def _table(found: Sequence[Figure]) -> str:
    sizes = ["model", "framework", "devices", "batch"]
    head = ["case", *sizes, "column", "printed", "unit", "estimator", "steps", "where", "doubt"]
    rows = [
        [
            one.row if one.table == "." else f"{one.table}/{one.row}",
            one.model,
            one.framework,
            str(one.devices or ""),
            one.batch,
            f"{one.column}{', speedup' if one.quantity == 'speedup' else ''}",
            one.printed,
            one.unit,
            one.estimator,
            one.steps,
            f"{one.path}:{one.options.get('lines', one.options.get('runs', '') + ' runs')}",
            one.doubt,
        ]
        for one in found
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    ]
    return clean("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
