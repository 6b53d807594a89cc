"""The lines of records.jsonl. Each holds a record, its own digest, that of the line before and that of what was stored
when the comparison began, so that what was edited, removed or moved by hand is noticed. Whoever makes all digests again
is not. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field

from dlperf.schema import Record
from dlperf.stored import DAMAGED, checksum, decoded, record_from

#: what a line has besides the fields of a Record: its own digest, over all else; that of the line before; that of
#: comparison.json when the run was made, which older lines lack
OWN, BEFORE, BEGUN = "digest", "previous", "comparison"


@dataclass
class Found:
    """What lines hold. last: the digest of the last one, which the next is to name. warnings: of lines that were passed
    over or do not follow; caveats: those of them that no crash explains, for the report."""

    records: list[Record] = field(default_factory=list)
    last: str = ""
    warnings: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)


def line(record: Record, previous: str, begun: str) -> tuple[bytes, str]:
    """A record as one line, and its digest. previous: that of the line before; empty for the first. begun: that of
    comparison.json."""
    data = {**dataclasses.asdict(record), BEGUN: begun, BEFORE: previous}
    own = checksum(data)
    return json.dumps({**data, OWN: own}).encode() + b"\n", own


def read(name: str, data: bytes, noted: str, older: bool, begun: tuple[str, Collection[str]]) -> Found:
    """Every line that is as it was written. name: of the file, for messages. noted: the digest of a line that was
    stored, if one is known: later ones may have followed. older: whether lines without digests are as they were
    written, as those of older versions, before any that has one. begun: the name of comparison.json, and the digests
    that it had when runs were made."""
    found, seen, odd, lost, same = Found(), {""}, [], False, True
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            told = decoded(text)
            record = record_from(told)
            own = told.pop(OWN, "")
            right = own == checksum(told) or (older and not own and not found.last)
        except DAMAGED:
            found.warnings.append(f"{name}: line {number} is damaged and was passed over; its run counts as missing.")
            lost = True  # a crash left half of it, or it was the one that the next line names
            continue
        if right:
            found.records.append(record)
            odd += [] if lost or told.get(BEFORE, "") == found.last else [str(number)]
            same = same and told.get(BEGUN) in (None, *begun[1])
        else:
            found.caveats.append(f"{name}: line {number} was changed after it was written, and is not used.")
        lost = not own and bool(found.last)
        if own:
            found.last = str(own)
            seen.add(found.last)
    if odd:
        which = f"line {odd[0]} does" if len(odd) == 1 else f"lines {', '.join(odd[:10])} do"
        found.caveats.append(
            f"{name}: {which} not follow the one before: records were removed, added or moved by hand."
        )
    if noted not in seen:
        found.last = noted  # so that it is noticed again
        if not lost:
            found.caveats.append(f"{name}: records at its end were removed by hand.")
    if not same:
        found.caveats.append(f"{begun[0]} was changed by hand after runs were made.")
    found.warnings += found.caveats
    return found
