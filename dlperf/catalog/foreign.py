"""Reads what adapter.toml says of scripts and of figures that are not ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dlperf.catalog import keys
from dlperf.catalog.adapter import DEVICES, INPUTS, Adapter, Option
from dlperf.catalog.environment import Replacement
from dlperf.catalog.script import BATCHES, RATES, Imported, Log, Part, Script, Source
from dlperf.catalog.tables import Tables, listed
from dlperf.models import FAMILY_OF, NAMES
from dlperf.precision import TABLE as PRECISIONS

#: conditions that `when` may have besides an adapter's options, and their values
CONDITIONS = {
    "device": DEVICES,
    "precision": tuple(PRECISIONS),
    "ranks": ("one", "several"),
    "nodes": ("one", "several"),
}


class Foreign(Tables):
    """See dlperf.catalog.script for what is read."""

    def source(self, table: keys.Source) -> Source:
        if not re.fullmatch(r"[\w][\w./-]*", table["commit"]):
            self.wrong("source.commit", table["commit"], "a commit's hash, or if that is unknown a tag or branch")
        return Source(table["repository"], table["commit"], replacements(table), table.get("copy", {}))

    def script(self, model: str, table: keys.Script) -> Script:
        where = f"script.{model}."
        self.one_of("script", model, NAMES)
        for precision in table.get("batch_size", {}):
            self.one_of(where + "batch_size", precision, tuple(PRECISIONS))
        return Script(
            model=model,
            folder=table["folder"],
            inside=table.get("inside", ""),
            input=self.one_of(where + "input", table.get("input", "native"), INPUTS),
            data=table.get("data", ""),
            batch=self.one_of(where + "batch", table["batch"], BATCHES),
            batch_size=table.get("batch_size", {}),
            start=self.one_of(where + "start", table.get("start", "once"), ("once", "node")),
            stops=table.get("stops", True),
            warmup_steps=table.get("warmup_steps", 0),
            extra_steps=table.get("extra_steps", 0),
            log=self.log(where + "log", table["log"]),
            command=tuple(
                Part(_when(one), words=self.words(f"{where}command[{index}].words", one["words"]))
                for index, one in enumerate(table.get("command", ()))
            ),
            variables=self.values(where + "variables", table.get("variables", ())),
            effective=self.values(where + "effective", table.get("effective", ())),
            differs=tuple(Part(_when(one), text=one["text"]) for one in table.get("differs", ())),
        )

    def words(self, where: str, text: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            self.says(where, f"a shell cannot split it into words: {error}.")
            return ()

    def values(self, where: str, tables: Sequence[keys.Values]) -> tuple[Part, ...]:
        """Of tables with NAME = VALUE and `when`."""
        every = [
            (f"{where}[{index}].{name}", name, value) for index, one in enumerate(tables) for name, value in one.items()
        ]
        bad = [(place, name, value) for place, name, value in every if isinstance(value, dict) != (name == "when")]
        for place, name, value in bad:
            self.wrong(place, value, "a table" if name == "when" else "a single value")
        if bad:
            return ()
        parts = [{name: str(value) for name, value in table.items() if name != "when"} for table in tables]
        return tuple(Part(_when(table), values=part) for table, part in zip(tables, parts, strict=True))

    def log(self, where: str, table: keys.Log) -> Log:
        try:
            line = re.compile(table["line"])
        except (re.error, OverflowError, RecursionError) as error:
            self.says(where + ".line", f"not a regular expression: {error}.")
            line = re.compile("")
        groups = set(line.groupindex)
        timed = groups & {"timestamp", "seconds", "rate"}
        known = timed | {"step", "loss"} | ({"samples"} if "rate" not in timed else set())
        if "step" not in groups or len(timed) != 1 or groups - known:
            needed = "step, and exactly one of timestamp, seconds and rate; it may have loss, and samples but with rate"
            self.says(where + ".line", f"must have the named groups {needed}.")
        if ("timestamp" in groups) != bool(table.get("timestamp")):
            self.says(where + ".timestamp", "give the format of the group timestamp, if and only if the line has one.")
        return Log(
            line=line,
            first=table.get("first", 0),
            every=table.get("every", 1),
            timestamp=table.get("timestamp", ""),
            rate_of=self.one_of(where + ".rate_of", table.get("rate_of", "all"), RATES),
            milliseconds=table.get("milliseconds", False),
            ranks=self.one_of(where + ".ranks", table.get("ranks", "one"), ("one", "node", "all")),
        )

    def upstream(self, adapter: Adapter) -> None:
        """Scripts have a source, conditions that can hold, and images that an option names."""
        if bool(adapter.scripts) != bool(adapter.source):
            self.says("source", "[source] and [script.*] belong together; one of them is missing.")
        for device, one in adapter.images.items():
            values = adapter.options["image"].values if "image" in adapter.options else ()
            if set(one.named) != set(values):
                self.wrong(f"image.{device}.named", ", ".join(one.named), f"the option image's: {', '.join(values)}")
        for script in adapter.scripts.values():
            for part in (*script.command, *script.variables, *script.effective, *script.differs):
                options = adapter.options_of(FAMILY_OF.get(script.model, ""))
                self.conditions(f"script.{script.model}", part, options)

    def conditions(self, where: str, part: Part, options: Mapping[str, Option]) -> None:
        known = {**CONDITIONS, **{name: option.values for name, option in options.items()}}
        for name, values in part.when.items():
            if name not in known:
                self.wrong(f"{where}.when", name, ", ".join(known))
            elif name not in options or not options[name].any:
                for value in values:
                    self.one_of(f"{where}.when.{name}", value, known[name])

    def imported(self, tables: Sequence[keys.Imported]) -> list[Imported]:
        """Each, and no two of the same."""
        found = [self.figures(f"imported[{index}]", table) for index, table in enumerate(tables)]
        seen = set()
        for index, one in enumerate(found):
            of = (one.model, one.device, one.precision, one.size)
            if of in seen:
                self.says(f"imported[{index}]", "another one is of the same model and size. Its runs belong there.")
            seen.add(of)
        return found

    def figures(self, where: str, table: keys.Imported) -> Imported:
        where += "."
        if not ("files" in table) == ("log" in table) == ("rates" not in table):
            self.says(where + "files", "give files and a table log, or else rates.")
        return Imported(
            model=self.one_of(where + "model", table["model"], NAMES),
            device=self.one_of(where + "device", table["device"], DEVICES),
            precision=self.one_of(where + "precision", table["precision"], tuple(PRECISIONS)),
            input=self.one_of(where + "input", table.get("input", "native"), INPUTS),
            source=table["source"],
            files=tuple(self.path.parent / name for name in listed(table.get("files", ()))),
            log=self.log(where + "log", table["log"]) if "log" in table else None,
            rates=tuple(map(float, table.get("rates", ()))),
            differs=table.get("differs", ""),
            effective=table.get("effective", {}),
            versions=table.get("versions", {}),
            batch_size=table["batch_size"],
            nnodes=table.get("nnodes", 1),
            nproc_per_node=table.get("nproc_per_node", 1),
        )


def replacements(table: keys.Source | keys.Build) -> tuple[Replacement, ...]:
    return tuple(Replacement(**one) for one in table.get("replace", ()))


def _when(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Condition -> the values for which it holds, as texts."""
    when = table.get("when", {})
    listed = {name: values if isinstance(values, list) else [values] for name, values in when.items()}
    return {name: tuple(map(str, values)) for name, values in listed.items()}
