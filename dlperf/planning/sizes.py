"""Which models, how long their rows are, and how large a batch is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlperf import models
from dlperf.catalog.adapter import Adapter
from dlperf.errors import either, whole_number
from dlperf.planning.arguments import MOST, Arguments, whole
from dlperf.planning.spec import Spec


class Sizes(Arguments):
    """Checks --model, --sequence-length, --batch-size and --global-batch-size."""

    def models(self) -> tuple[str, ...]:
        known = [*models.GROUPS, *models.ALIASES, *models.NAMES]
        named = {**models.GROUPS, **{alias: (name,) for alias, name in models.ALIASES.items()}}
        found = [one for name in self.listed("model", known) for one in named.get(name, (name,))]
        length = self.count("sequence_length", None)
        return tuple(dict.fromkeys(one if length is None else self._of_length(one, length) for one in found))

    def _of_length(self, model: str, length: int) -> str:
        """The same network with rows of so many tokens."""
        lengths = models.lengths(model)
        if length not in lengths:
            has = f"has rows of {either([*map(str, lengths)])} tokens" if lengths else "reads no tokens"
            self.problem("sequence_length", length, f"{model} {has}. Choose another length, or leave out {model}.")
        return lengths.get(length, model)

    def batch_size(self) -> int | None:
        """A number; None for the default, and for the largest that runs."""
        text = self.arguments.get("batch_size")
        if text in (None, "max"):
            return None
        number = whole_number(text, most=MOST["batch_size"])
        if number is None:
            self.wrong("batch_size", text, f"{whole('batch_size')}, or max")
        return number

    def batch_sizes(self, spec: Spec, chosen: Sequence[Adapter]) -> None:
        if spec.batches and (spec.largest_batch or spec.global_batch_size is not None):
            other = "batch_size" if spec.largest_batch else "global_batch_size"
            says = "rows have batch sizes of their own. Leave it out, or these."
            self.problem(other, self.arguments[other], says)
        if spec.global_batch_size is None:
            self._largest(spec, chosen)
        elif spec.batch_size is not None or spec.largest_batch:
            says = f"--global-batch-size {spec.global_batch_size} is given too. Leave out one of them."
            self.problem("batch_size", self.arguments["batch_size"], says)
        elif uneven := [str(size) for size in spec.world_sizes if spec.global_batch_size % size]:
            says = f"it does not divide evenly among {' or '.join(uneven)} devices. "
            says += f"Choose a multiple of {math.lcm(*spec.world_sizes)}."
            self.problem("global_batch_size", spec.global_batch_size, says)
        self._normalised(spec)

    def _normalised(self, spec: Spec) -> None:
        """The variance of one value is 0, and so is what BatchNorm makes of it."""
        if spec.global_batch_size is None:
            smallest = min(filter(None, (spec.batch_size, *spec.batches)), default=None)
            field, given, ranks = "sweep" if smallest in spec.batches else "batch_size", smallest, 1
        else:
            field, given, ranks = "global_batch_size", spec.global_batch_size, max(spec.world_sizes)
        if given is None:
            return
        for model in spec.models:
            counts = models.family(model).normalised(models.config(model))
            alone = next((name for name, count in counts.items() if count * (given // ranks) == 1), None)
            if alone:
                says = f"{model} has a BatchNorm, {alone}, that would see one value of each channel. "
                self.problem(field, given, f"{says}Choose at least {2 * ranks}, or leave out {model}.")

    def _largest(self, spec: Spec, chosen: Sequence[Adapter]) -> None:
        """It is found by running out of a GPU's memory, with our worker."""
        theirs = ", ".join(adapter.name for adapter in chosen if not adapter.kind.worker)
        if spec.largest_batch and spec.device != "cuda":
            says = "it is found by running out of a GPU's memory; on a CPU other programs would be out of it too."
            self.problem("batch_size", "max", f"{says} Give a number, or choose --device cuda.")
        elif spec.largest_batch and theirs:
            says = f"dlperf cannot look for that of {theirs}. Give a number, or leave them out of --frameworks."
            self.problem("batch_size", "max", says)
