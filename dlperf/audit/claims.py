"""What a text says of all its figures: of how many steps, runs and a warm-up of how many steps they are. Pure."""

from __future__ import annotations

import re

NUMBER = r"\d{1,3}(?:,\d{3})+|\d+"
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = {name: number for number, name in enumerate(_WORDS, 1)} | {"twenty": 20, "fifty": 50, "hundred": 100}
_ANY = rf"(?P<number>{NUMBER}|{'|'.join(_NUMBERS)})"
_STEPS = r"(?:steps|iterations|iters|batches|mini-?batches)\b(?! (?:per|a|each) (?:epoch|second))"
#: steps from one to another
WINDOW = re.compile(
    r"\b(?:steps?|iterations?|iters?|batches)\s*(\d[\d,]*)\s*(?:-|–|—|to|through|until|\.\.+)\s*(\d[\d,]*)",
    re.IGNORECASE,
)
#: what a text says of all its figures, by what cells have of it
CLAIMS = {
    "steps": re.compile(
        rf"(?<![\w.,-])(?<!first )(?<!last )(?<!every )(?<!after )(?<!initial )(?<!log_every=){_ANY}[ -]+"
        rf"(?:(?:training|timed|measured|consecutive|full|optimi[sz]er|global)[ -])?{_STEPS}",
        re.IGNORECASE,
    ),
    "warmup": re.compile(
        rf"(?:{_ANY}|first (?P<first>{NUMBER}))[ -]+(?:steps |iterations |batches )?(?:of |as |for |are )?warm-?up|"
        rf"warm-?up (?:phase |period )?(?:of |for |=|: ?)?(?P<after>{NUMBER})",
        re.IGNORECASE,
    ),
    "runs": re.compile(
        rf"(?<![\w.,-]){_ANY} (?:independent |separate |repeated |full |identical )?"
        r"(?:runs|repetitions|repeats|trials)\b|"
        rf"\b(?:repeated|runs?) (?P<after>{NUMBER}|{'|'.join(_NUMBERS)}) times",
        re.IGNORECASE,
    ),
}
#: what stands before a number of steps that is of a warm-up
WARM = re.compile(r"\bwarm-?(ed )?up\W+(\w+\W+){0,2}$", re.IGNORECASE)


def claims(prose: str, what: str) -> list[float]:
    told = CLAIMS[what].finditer(prose)
    return [_number(one) for one in told if what != "steps" or not WARM.search(prose[: one.start()])]


def _number(found: re.Match[str]) -> float:
    told = next(one for one in found.groupdict().values() if one).lower().replace(",", "")
    return float(_NUMBERS.get(told, told))


def steps_of(prose: str) -> float:
    """How many steps ran, those of a warm-up among them, as far as a text tells; 0 where it does not."""
    timed = claims(prose, "steps")
    if not timed or (until := window(prose)[1]):
        return float(until) if timed else 0.0
    return max(timed) + (0.0 if PART.search(prose) else max(claims(prose, "warmup"), default=0.0))


def window(prose: str) -> tuple[int, int]:
    """The first and last step of those that a text says are timed; 0 twice where it does not tell, or several."""
    found = {
        tuple(int(each.replace(",", "")) for each in one.groups())
        for one in WINDOW.finditer(prose)
        if not OTHERS.match(prose, one.end()) and not WARM.search(prose[: one.start()])
    }
    return next(iter(found)) if len(found) == 1 else (0, 0)  # type: ignore[return-value]


#: behind a window, that it is not that of a figure; and that a warm-up is a part of the steps that are told
OTHERS = re.compile(
    r"\W{0,3}(\w+\W+){0,3}(warm|skip|discard|exclu|ignor|drop|not (counted|timed|measured))", re.IGNORECASE
)
PART = re.compile(
    r"\bthe first \w+ (steps |iterations |batches |of (these|them) )?(are|is|being|as|were)\b|"
    r"\bof which\b|\bincluding\b",
    re.IGNORECASE,
)


def runs_of(prose: str) -> float:
    """How many runs each figure is of; 0 where a text does not tell, or tells several numbers."""
    told = {*claims(prose, "runs")}
    return told.pop() if len(told) == 1 else 0.0
