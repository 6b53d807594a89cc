"""Why rows cannot run on this machine, or in their environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dlperf import models
from dlperf.adapters import cpu, gpu
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.environment import EnvironmentSpec, ImageSpec
from dlperf.launchers.containers import ENGINES, NGC
from dlperf.planning.spec import Spec
from dlperf.precision import TABLE
from dlperf.schema import Job


def too_old(spec: Spec, adapter: Adapter, family: str, precision: str, options: Mapping[str, str]) -> str:
    """Why the CPU that would run a row lacks what its kernels need, and what to do; empty if it does not, or where
    that CPU is not known."""
    found = None if spec.instructions is None else frozenset(spec.instructions)
    entries = adapter.kernels_of(family, spec.device, precision, options)
    why: str = cpu.refusal(entries, found, spec.allow_reference)
    if not why:
        return ""
    if not cpu.refusal(adapter.kernels_of(family, spec.device, "fp32", options), found):
        why += "; run --precision fp32"
    return why + (", or --allow-reference to wait for it" if not cpu.refusal(entries, found, True) else "")


def other_gpu(spec: Spec, adapter: Adapter, environment: str, precision: str) -> str:
    """Why the GPUs that would run a row are not those that it needs, and what runs on them; empty if they are, or where
    they are not known."""
    lacks: str = gpu.refusal(TABLE[precision].kernels, spec.gpus)
    if lacks:
        return lacks
    made = made_of(spec, adapter, environment)
    why: str = gpu.refusal(made.kernels, spec.gpus, made.cuda) if made else ""
    others = _others(spec, adapter, environment) if why else []
    return why + (f"; instead (untested): {', or '.join(others)}" if others else "")


def made_of(spec: Spec, adapter: Adapter, environment: str) -> EnvironmentSpec | ImageSpec | None:
    """What is known of the kernels that a row is computed with."""
    if from_lock(spec, adapter):
        return adapter.environments.get(environment)
    ngc = spec.env in ENGINES and spec.images.get(adapter.name, spec.images.get("", "")) == NGC
    return adapter.images.get(spec.device) if ngc else None


def _others(spec: Spec, adapter: Adapter, environment: str) -> list[str]:
    """What else has kernels for these GPUs; nobody has run it."""
    image, found = adapter.images.get(spec.device), []
    if image and image.kernels and not gpu.refusal(image.kernels, spec.gpus, image.cuda):
        found.append(f"--env docker --image {adapter.name}={NGC}")
    made = adapter.environments.get(environment)
    newest = made.capabilities[-1] if made and made.otherwise else ""
    newer = newest.replace("sm_", "compute_") in (gpu.runs(spec.gpus) or ())
    return found + ([made.otherwise] if made and newer else [])


def uncompressed(row: Job, world: int, servers: int) -> str:
    """Why the gradients of a row on so many ranks are not compressed as it was asked; empty if they are."""
    kind = row.compression
    if kind == "none":
        return ""
    if servers:
        return f"compression={kind} is of gradients that ranks exchange; these go to parameter servers"
    if world == 1:
        return f"compression={kind} is of gradients that ranks exchange; one rank has none to exchange it with"
    if kind == "dgc" and not hasattr(models.family(row.model).optimizer(1), "momentum"):
        return f"deep gradient compression corrects the momentum of SGD; {row.model} is trained by Adam"
    return ""


def unbuilt(adapter: Adapter, environment: str, device: str) -> str:
    """Why there is no environment of this variant; empty if there is."""
    variant = environment.removeprefix(device).removeprefix("-")
    if not variant or environment in adapter.environments:
        return ""
    return f"{variant} on {device} is not built yet"


def from_lock(spec: Spec, adapter: Adapter) -> bool:
    """Whether this adapter's environments, or the images of them, are made from our locks."""
    return spec.env == "venv" or (spec.env in ENGINES and not spec.images.get(adapter.name, spec.images.get("", "")))


def no_image(adapter: Adapter, environment: str, device: str, images: Mapping[str, str]) -> str:
    """Why there can be no image; empty if there can. images: as in Spec."""
    asked = images.get(adapter.name) or images.get("", "")
    if asked == NGC:
        known = adapter.images.get(device)
        return (
            ""
            if known and known.ngc
            else f"NVIDIA's registry has no image of {adapter.title} for {device} that we know of"
        )
    if not asked and (environment != device or environment not in adapter.environments):
        return f"dlperf builds no image of {environment}; --image {adapter.name}=REF names one that has it"
    return ""
