"""The JSON Schemas in report/schemas: of what others may read, and of what an adapter's authors write. They are made of
the types by which dlperf reads these files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from places import ROOT

from dlperf.catalog import keys
from dlperf.runs import messages
from dlperf.schema import Comparison, Record
from dlperf.stored import Manifest

FOLDER = ROOT / "report" / "schemas"
PUBLISHED = sorted((ROOT / "report" / "published").glob("*/results.json"))
#: by type and field, what dlperf reads for one that its first versions did not write
OLDER = {"Job": {"environment": "Where it is absent, as in reports of 2026-11-21, it is the key of the device."}}


def schema(title: str, **types: Any) -> str:
    """Of one type; or of events, by name."""
    refs, parts = msgspec.json.schema_components(types.values(), ref_template="#/$defs/{name}")
    for name, fields in OLDER.items():
        for field, says in fields.items() if name in parts else ():
            parts[name]["required"].remove(field)
            parts[name]["properties"][field]["description"] = says
    for part in parts.values():  # what msgspec 0.23 tells, and older ones do not
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
        for field in part.get("properties", {}).values():
            if field.get("default") == {}:
                del field["default"]
    named = {
        "anyOf": [{"properties": {"event": {"const": name}}, **ref} for name, ref in zip(types, refs, strict=True)]
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **(refs[0] if len(types) == 1 else named), "$defs": parts}, indent=1) + "\n"


MADE = {
    "results.json": schema("results.json of a report", whole=Comparison),
    "comparison.json": schema("comparison.json of a comparison's folder", whole=Manifest),
    "records.jsonl": schema("a line of records.jsonl, but for its digests", whole=Record),
    "events.jsonl": schema("a line of events.rank<N>.jsonl", **messages.EVENTS),
    "adapter.toml": schema("adapter.toml, as JSON has it", whole=keys.Adapter),
}


@pytest.mark.parametrize("name", MADE)
def test_the_published_schemas_are_those_of_the_types(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.schema.json"
    if request.config.getoption("--update-golden"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(MADE[name], encoding="utf-8")
    assert path.read_text(encoding="utf-8") == MADE[name]


@pytest.mark.parametrize("results", PUBLISHED, ids=lambda path: path.parent.name)
def test_published_results_are_as_their_schema_says(results: Path) -> None:
    validator = Draft202012Validator(json.loads((FOLDER / "results.json.schema.json").read_text(encoding="utf-8")))
    data = json.loads(results.read_text(encoding="utf-8"))
    assert [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(data)] == []
    del data["jobs"][0]["device"]
    data["records"][-1]["seconds"] = "1"
    assert {error.json_path for error in validator.iter_errors(data)} == {
        "$.jobs[0]",
        f"$.records[{len(data['records']) - 1}].seconds",
    }


def test_the_schemas_are_schemas() -> None:
    for file in FOLDER.iterdir():
        Draft202012Validator.check_schema(json.loads(file.read_text(encoding="utf-8")))


def test_there_are_no_others() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {f"{name}.schema.json" for name in MADE}
