"""Markdown that text from outside cannot break: everything a template prints is escaped, unless it is Verbatim."""

from __future__ import annotations

import re
from typing import Any


class Verbatim(str):
    """Markdown that is ready."""


def escape(value: Any) -> str:
    """For running text, headings and table cells alike, as GitHub reads them; on one line."""
    if isinstance(value, Verbatim):
        return value
    text = " ".join(str(value).split())
    # Numbers in brackets are no link, and intervals are nicer to read as they are.
    text = re.sub(r"(\[[\d., ]+\](?![(\[:]))|([\\`*\[\]<>|~$&])", lambda found: found[1] or f"\\{found[2]}", text)
    # At the start of a line or of a point these would begin a heading, a list or a rule.
    text = re.sub(r"^([-+=#])(?![\w.])", r"\\\1", text)
    text = re.sub(r"^(\d{1,9})([.)])(?=\s|$)", r"\1\\\2", text)
    # Within a word an underscore is only itself, and escaped it would make names hard to read.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def fence(text: str, language: str = "text") -> Verbatim:
    """A code block whose fence is longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Verbatim(f"{ticks}{language}\n{text}\n{ticks}")
