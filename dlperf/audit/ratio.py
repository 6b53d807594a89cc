"""A printed cell that is one figure over another. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlperf.audit.cells import Cell

NARROW = re.compile(r"fp32|tf32|fp16|bf16|amp|mixed", re.IGNORECASE)
#: of a heading, that its cells are held against something else than fewer devices; and that they are shares of a change
COMPARED = re.compile(r"\bvs\b|\bover\b|relative|normali[sz]ed|\bratio\b|compared|baseline", re.IGNORECASE)
#: likewise, that it is fewer devices
FEWER = re.compile(
    r"\b(vs\.?|over|relative to|compared (to|with)|normali[sz]ed (to|by)|baseline:?|against|from) (the |a )?"
    r"(\d+|one|single) ?x?[ -]?(gpus?|devices?|nodes?|workers?|trainers?|cards?|accelerators?|chips?|machines?)\b",
    re.IGNORECASE,
)
GAINS = re.compile(r"\bgain\b|improvement|uplift|\bfaster\b|overhead|\bdelta\b|\bdiff(erence)?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Ratio:
    """A printed cell that is one rate over another. scale: 100 of per cent, over the devices of an efficiency."""

    cell: Cell
    above: Cell
    below: Cell
    scale: float
    less: float = 0.0  # subtracted before scaling: 1 of an overhead

    @property
    def number(self) -> float:
        return (self.above.number / self.below.number - self.less) * self.scale

    @property
    def span(self) -> tuple[float, float]:
        """What it may be before its rates were rounded."""
        if self.above is self.below:
            return self.number, self.number
        low = (self.above.low / (self.below.high or 1e-12) - self.less) * self.scale
        return low, (self.above.high / max(self.below.low, 1e-12) - self.less) * self.scale

    @property
    def rounds(self) -> bool:
        return self.off <= self.cell.ulp / 2 * (1 + 1e-9)

    @property
    def cut(self) -> bool:
        return 0 <= self.number - self.cell.number < self.cell.ulp * (1 - 1e-9)

    @property
    def off(self) -> float:
        return abs(self.number - self.cell.number)

    @property
    def told_by(self) -> bool:
        """Whether it gives the cell, by two digits at least, as 3.0 has."""
        return (self.cell.digits > 1 or (self.cell.decimals > 0 and self.cell.number >= 1)) and (
            self.rounds or self.cut or self.near
        )

    @property
    def near(self) -> bool:
        """Off by one in the last digit; by two, where its rates may have had more digits."""
        return self.off < (2.5 if self.possible else 1.5) * self.cell.ulp

    @property
    def possible(self) -> bool:
        """Whether rates that round to what is printed give it."""
        low, high = self.span
        value, half = self.cell.number or 0, self.cell.ulp / 2
        return low <= value + half and value - half <= high

    @property
    def possible_if_cut(self) -> bool:
        """The same of a ratio that is cut instead of rounded."""
        low, high = self.span
        return low < self.cell.number + self.cell.ulp and self.cell.number <= high

    @property
    def told(self) -> str:
        number = f"{self.number:,.{self.cell.decimals + 1}f}"
        over = f"{self.above.figure.printed} over {self.below.figure.printed}"
        shares = f", of {self.above.size} devices" if self.scale not in (1.0, 100.0) else ""
        return f"{number}: {over}{shares}"


def compared(column: str) -> bool:
    """Whether its cells are not over fewer devices: over another system, or precision."""
    column = FEWER.sub(" ", column)
    other = NARROW.search(column) and not re.search(r"scaling|efficien", column, re.IGNORECASE)
    return bool(other or COMPARED.search(column))


def gains(one: Cell) -> bool:
    return bool(GAINS.search(one.figure.column.replace("_", " ")))


def percent(one: Cell) -> float:
    """100 of per cent; of an efficiency also where it is not said, as 97."""
    bare = one.figure.quantity == "efficiency" and one.number > 3
    return 100.0 if "%" in one.figure.printed + one.figure.unit or bare else 1.0


def scale_of(one: Cell, own: Cell, base: Cell) -> float:
    """What a ratio of two sizes is multiplied by: of an efficiency their devices."""
    if one.figure.quantity == "speedup":
        return percent(one)
    return percent(one) * max(base.devices, 1) / max(own.devices, 1)
