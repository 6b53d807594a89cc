"""Reads what adapter.toml says of scripts and of figures that are not ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from dlperf.catalog.adapter import DEVICES, INPUTS, Adapter, Option
from dlperf.catalog.environment import Replacement
from dlperf.catalog.script import BATCHES, RATES, Imported, Log, Part, Script, Source
from dlperf.catalog.tables import Tables
from dlperf.models import FAMILY_OF, NAMES
from dlperf.precision import TABLE as PRECISIONS

#: conditions that `when` may have besides an adapter's options, and their values
CONDITIONS = {
    "device": DEVICES,
    "precision": tuple(PRECISIONS),
    "ranks": ("one", "several"),
    "nodes": ("one", "several"),
}
#: of imported figures, and what is meant if one is left out; the batch must be there
SIZES = {"batch_size": 0, "nnodes": 1, "nproc_per_node": 1}


class Foreign(Tables):
    """See dlperf.catalog.script for what is read."""

    def source(self, table: Mapping[str, Any]) -> Source:
        self.known("source.", table, {"repository", "commit", "replace"})
        for one in table.get("replace", ()):
            self.known("source.replace.", one, {"file", "old", "new"})
        source = Source(
            self.text(table, "repository"),
            self.text(table, "commit"),
            tuple(
                Replacement(self.text(one, "file"), self.text(one, "old"), str(one.get("new", "")))
                for one in table.get("replace", ())
            ),
        )
        if not re.fullmatch(r"[\w][\w./-]*", source.commit):
            self.wrong("source.commit", source.commit, "a commit's hash, or if that is unknown a tag or branch")
        return source

    def script(self, model: str, table: Mapping[str, Any]) -> Script:
        where = f"script.{model}."
        texts = {"folder", "inside", "input", "data", "batch", "start"}
        parts = {"command", "variables", "effective", "differs"}
        self.known(where, table, {*texts, *parts, "stops", "warmup_steps", "extra_steps", "log", "batch_size"})
        self.one_of("script", model, NAMES)
        return Script(
            model=model,
            folder=self.text(table, "folder"),
            inside=str(table.get("inside", "")),
            input=self.one_of(where + "input", table.get("input", "native"), INPUTS),
            data=str(table.get("data", "")),
            batch=self.one_of(where + "batch", table.get("batch", ""), BATCHES),
            batch_size={
                self.one_of(where + "batch_size", precision, tuple(PRECISIONS)): self.number(
                    where + "batch_size", size, 1
                )
                for precision, size in table.get("batch_size", {}).items()
            },
            start=self.one_of(where + "start", table.get("start", "once"), ("once", "node")),
            stops=bool(table.get("stops", True)),
            warmup_steps=self.number(where + "warmup_steps", table.get("warmup_steps", 0)),
            extra_steps=self.number(where + "extra_steps", table.get("extra_steps", 0)),
            log=self.log(where + "log", table.get("log", {})),
            command=self.parts(where + "command", table, "words"),
            variables=self.parts(where + "variables", table, "values"),
            effective=self.parts(where + "effective", table, "values"),
            differs=self.parts(where + "differs", table, "text"),
        )

    def parts(self, where: str, table: Mapping[str, Any], content: str) -> tuple[Part, ...]:
        """Tables with `when` and a command line (words), NAME = VALUE (values) or a sentence (text)."""
        found = []
        for index, one in enumerate(table.get(where.rpartition(".")[2], ())):
            place = f"{where}[{index}]"
            self.known(place + ".", one, {"when", content} if content != "values" else set(one))
            when = {str(name): self._listed(values) for name, values in one.get("when", {}).items()}
            rest = {str(name): str(value) for name, value in one.items() if name != "when"}
            words: tuple[str, ...] = ()
            try:
                words = tuple(shlex.split(rest.get("words", "")))
            except ValueError as error:
                self.says(place + ".words", f"a shell cannot split it into words: {error}.")
            if content != "values" and not rest.get(content):
                self.says(f"{place}.{content}", "missing.")
            found.append(Part(when, words, rest if content == "values" else {}, rest.get("text", "")))
        return tuple(found)

    @staticmethod
    def _listed(values: object) -> tuple[str, ...]:
        return tuple(str(value) for value in values) if isinstance(values, list) else (str(values),)

    def log(self, where: str, table: Mapping[str, Any]) -> Log:
        self.known(where + ".", table, {"line", "first", "every", "timestamp", "rate_of", "milliseconds", "ranks"})
        text = str(table.get("line", ""))
        try:
            line = re.compile(text)
        except re.error as error:
            self.says(where + ".line", f"not a regular expression: {error}.")
            line = re.compile("")
        groups = set(line.groupindex)
        timed = groups & {"timestamp", "seconds", "rate"}
        if "step" not in groups or len(timed) != 1 or groups - timed - {"step", "loss"}:
            needed = "step, and exactly one of timestamp, seconds and rate; it may have loss"
            self.says(where + ".line", f"must have the named groups {needed}.")
        if ("timestamp" in groups) != bool(table.get("timestamp")):
            self.says(where + ".timestamp", "give the format of the group timestamp, if and only if the line has one.")
        return Log(
            line=line,
            first=self.number(where + ".first", table.get("first", 0)),
            every=self.number(where + ".every", table.get("every", 1), least=1),
            timestamp=str(table.get("timestamp", "")),
            rate_of=self.one_of(where + ".rate_of", table.get("rate_of", "all"), RATES),
            milliseconds=bool(table.get("milliseconds", False)),
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

    def imported(self, tables: object) -> list[Imported]:
        """Each, and no two of the same."""
        if not isinstance(tables, list):
            self.says("imported", "must be [[imported]], once for each model and size.")
            return []
        found = [self.figures(f"imported[{index}]", table) for index, table in enumerate(tables)]
        seen = set()
        for index, one in enumerate(found):
            of = (one.model, one.device, one.precision, one.size)
            if of in seen:
                self.says(f"imported[{index}]", "another one is of the same model and size. Its runs belong there.")
            seen.add(of)
        return found

    def figures(self, where: str, table: Mapping[str, Any]) -> Imported:
        where += "."
        texts = {"model", "device", "precision", "input", "source", "files", "differs"}
        self.known(where, table, {*texts, *SIZES, "log", "rates", "effective", "versions"})
        log, rates = table.get("log"), table.get("rates", [])
        if bool(table.get("files")) == bool(rates) or bool(table.get("files")) != isinstance(log, dict):
            self.says(where + "files", "give files and a table log, or else rates.")
        if not isinstance(rates, list):
            self.wrong(where + "rates", rates, "a list of numbers, one for each run")
            rates = []
        size = {name: self.number(where + name, table.get(name, default), 1) for name, default in SIZES.items()}
        return Imported(
            model=self.one_of(where + "model", table.get("model", ""), NAMES),
            device=self.one_of(where + "device", table.get("device", ""), DEVICES),
            precision=self.one_of(where + "precision", table.get("precision", ""), tuple(PRECISIONS)),
            input=self.one_of(where + "input", table.get("input", "native"), INPUTS),
            source=self.text(table, "source"),
            files=tuple(self.path.parent / name for name in self.texts(table, "files")) if "files" in table else (),
            log=self.log(where + "log", log) if isinstance(log, dict) else None,
            rates=tuple(self.positive(where + "rates", rate) for rate in rates),
            differs=str(table.get("differs", "")),
            effective=self.strings(where + "effective", table.get("effective", {})),
            versions=self.strings(where + "versions", table.get("versions", {})),
            **size,
        )
