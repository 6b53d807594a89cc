"""How often a comparison measures: the protocol, and what limits --until."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlperf import models
from dlperf.planning.arguments import Arguments
from dlperf.planning.spec import CUDA_SECONDS, FIRST_LOOK, MAX_BLOCKS, PROTOCOLS, Protocol


class Often(Arguments):
    def protocol(self, device: str, chosen: Sequence[str]) -> Protocol:
        """chosen: models."""
        usual = "dlperf" if device == "cuda" else "fast" if all(map(models.fast, chosen)) else "quick"
        name = self.choice("protocol", tuple(PROTOCOLS)) if self.arguments["protocol"] else usual
        base = PROTOCOLS[name]
        seconds = CUDA_SECONDS if (name, device) == ("dlperf", "cuda") else (0.0, 0.0)
        return Protocol(
            warmup_seconds=0.0 if self.arguments.get("warmup_steps") else seconds[0],
            window_seconds=0.0 if self.arguments.get("steps_per_window") else seconds[1],
            name=name,
            warmup_steps=self.count("warmup_steps", base.warmup_steps),
            windows=self.count("windows", base.windows),
            steps_per_window=self.count("steps_per_window", base.steps_per_window),
            repeats=self.repeats(base.repeats),
        )

    def repeats(self, usual: int) -> int:
        """Blocks at most, where --until adds them."""
        if not self.arguments.get("until"):
            return int(self.count("repeats", usual))
        if self.arguments.get("repeats"):
            says = "--until says how many there are. Leave out one of them; --max-blocks N limits --until."
            self.problem("repeats", self.arguments["repeats"], says)
        return int(self.count("max_blocks", MAX_BLOCKS, least=FIRST_LOOK))

    def until(self) -> float:
        text = self.arguments.get("until")
        for name in ("max_blocks", "max_time"):
            if text is None and self.arguments.get(name):
                self.problem(name, self.arguments[name], "it limits --until, which is not given. Leave it out.")
        found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,18})?)%", text or "0%")
        share = float(found[1]) / 100 if found else 0.0
        if text is not None and not 0 < share < 1:
            self.wrong("until", text, "a share of a rate between 0 and 100 %", "Try --until 2%.")
        return share
