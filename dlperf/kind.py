"""The one table of the kinds of systems: whose scripts a row runs, if any, and what follows for whoever plans or shows
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """What all systems of a kind have in common.

    name: as Job.kind and the column `origin` of results.csv have it. run: whether it is run, on the machines of the
    comparison. worker: whether our worker trains it, so that our launchers start its ranks, and these report events.
    proven: whether it hands out what proves that it did the same work. ranked: whether it may be called fastest.

    Of those that are not ranked, which have a table of their own in the report: title, about: of that table. columns:
    keys of Job.about that it shows, and their titles. declared: what stands before the table of what they compute.
    called, caveat: what they are called in a sentence, and what a reader must know of them.
    """

    name: str
    run: bool = True
    worker: bool = False
    proven: bool = False
    ranked: bool = False
    title: str = ""
    about: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    declared: str = ""
    called: str = ""
    caveat: str = ""


NATIVE = Kind("native", worker=True, proven=True, ranked=True)
UPSTREAM = Kind(
    "upstream",
    title="Upstream systems",
    about=(
        "These systems train with the scripts that others published. Batch, data and the work of a step are theirs, so "
        "they are in no ranking, and there is no proof. Their figures come from what the scripts print: all samples "
        "over all seconds after the warm-up, as for native systems."
    ),
    columns={"batch": "its batch argument", "estimator": "timed by", "script": "script", "image": "image"},
    declared="What these scripts compute, by reading them:",
    called="Third-party scripts",
    caveat="which do other work and are not ranked",
)
IMPORTED = Kind(
    "imported",
    run=False,
    title="Imported figures",
    about=(
        "These runs were not made by dlperf, nor on this machine: their figures are read from the logs of others, or "
        "are what others published. They are in no ranking, and there is no proof. What a log tells is timed as the "
        "runs of native systems are: all samples over all seconds after the warm-up."
    ),
    columns={"estimator": "timed by", "source": "source"},
    declared="What these systems compute, as their source says:",
    called="Imported figures",
    caveat="which were not measured on this machine and are not ranked",
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (NATIVE, UPSTREAM, IMPORTED)}
