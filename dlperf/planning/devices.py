"""Which device the rows are for, and whether this machine has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlperf import launchers
from dlperf.adapters import gpu
from dlperf.adapters.gpu import Gpu
from dlperf.catalog.adapter import DEVICES, Adapter
from dlperf.planning.arguments import Arguments
from dlperf.planning.spec import Spec


class Devices(Arguments):
    """Checks --device."""

    def device(self, chosen: Sequence[Adapter], places: Mapping[str, Any]) -> str:
        """One of DEVICES. auto takes the GPU where there is one, and never the CPU because something blocks the GPU. Of
        nodes that an engine finds, this machine tells nothing: auto is what the engine says that they have, and with
        --dry-run, which asks nobody, cuda."""
        device = self.choice("device", ("auto", *DEVICES))
        launcher = launchers.find(places["launcher"])
        if device == "cpu":
            return device
        if launcher.elsewhere(max(places["nnodes"]), places["hosts"]) and not launcher.needs_hosts:
            has = device == "cuda" or self.arguments["dry_run"] or launcher.have_gpus(places["launcher_arguments"])
            return "cuda" if has else "cpu"
        found = gpu.look()
        needed = any(one.kind.run for one in chosen) and not self.arguments["dry_run"]
        if needed and not found.gpus and (device == "cuda" or found.blocked):
            why = f"{found.why}." if found.why else "nvidia-smi finds no GPU. Is the driver installed?"
            self.problem("device", device, f"{why} Without a GPU, choose --device cpu.")
        if device == "auto" and all(adapter.devices == ("cuda",) for adapter in chosen):
            return "cuda"  # without a GPU, their rows say so
        return device if device == "cuda" else ("cuda" if found.gpus else "cpu")

    def gpus(self, device: str, places: Mapping[str, Any]) -> tuple[Gpu, ...]:
        """Those that run the rows, where they are this machine's."""
        if device != "cuda" or launchers.find(places["launcher"]).elsewhere(max(places["nnodes"]), places["hosts"]):
            return ()
        found: tuple[Gpu, ...] = gpu.look().gpus
        ranks = max(places["nproc_per_node"])
        if found and ranks > len(found) and not self.arguments["dry_run"]:
            says = f"{found[0].name} is alone here" if len(found) == 1 else f"there are {len(found)} GPUs here"
            step = "Ask for fewer ranks on each node, or let CUDA_VISIBLE_DEVICES name more GPUs."
            self.problem("nproc_per_node", ranks, f"{says}. {step}")
        return found


def changed(spec: Spec) -> str:
    """How the GPUs that ran a comparison's first rows differ from those that are here now; empty if they do not."""
    if not spec.gpus:
        return ""
    before, here = (", ".join(one.about for one in gpus) for gpus in (spec.gpus, gpu.look().gpus))
    return "" if before == here else f"it was begun on {before}; here is {here or 'none that can be used'}"
