"""Which device the rows are for, and whether this machine has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlperf import launchers
from dlperf.adapters import gpu
from dlperf.adapters.gpu import Gpu
from dlperf.catalog.adapter import DEVICES, Adapter
from dlperf.launchers.api import Node
from dlperf.planning.arguments import Arguments
from dlperf.planning.spec import Spec

UNASKED = Node(-1, -1)


class Devices(Arguments):
    """Checks --device."""

    _node: Node | None = UNASKED

    def device(self, chosen: Sequence[Adapter], places: Mapping[str, Any]) -> str:
        """One of DEVICES. auto takes the GPU where there is one, and never the CPU because something blocks the GPU. Of
        other machines this one tells nothing: auto is what they have, and cuda where nobody says, as with --dry-run."""
        device = self.choice("device", ("auto", *DEVICES))
        launcher = launchers.find(places["launcher"])
        if device == "cpu":
            return device
        if launcher.elsewhere(max(places["nnodes"]), places["hosts"]):
            node = self.node(places)
            return "cuda" if device == "cuda" or node is None or node.gpus else "cpu"
        found = gpu.look()
        needed = any(one.kind.run for one in chosen) and not self.arguments["dry_run"]
        if needed and not found.gpus and (device == "cuda" or found.blocked):
            why = f"{found.why}." if found.why else "nvidia-smi finds no GPU. Is the driver installed?"
            self.problem("device", device, f"{why} Without a GPU, choose --device cpu.")
        if device == "auto" and all(adapter.devices == ("cuda",) for adapter in chosen):
            return "cuda"  # without a GPU, their rows say so
        return device if device == "cuda" else ("cuda" if found.gpus else "cpu")

    def node(self, places: Mapping[str, Any]) -> Node | None:
        """What the other machines have that run the rows; None where these are none, or nothing tells."""
        if self._node is UNASKED:
            launcher = launchers.find(places["launcher"])
            far = launcher.elsewhere(max(places["nnodes"]), places["hosts"]) and not self.arguments["dry_run"]
            self._node = launcher.node(places["hosts"], places["launcher_arguments"]) if far else None
        return self._node

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
