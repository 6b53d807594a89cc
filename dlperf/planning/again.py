"""From a Spec to the options that ask for it: the inverse of dlperf.planning.checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dlperf.planning.spec import MAX_BLOCKS, PROTOCOLS, TIMEOUTS, Spec


def options(spec: Spec) -> dict[str, object]:
    """By their names, with what was resolved: the device, threads, the launcher. Of what is as without it, not all."""
    protocol = PROTOCOLS.get(spec.protocol.name, PROTOCOLS["quick"])
    asked: dict[str, object] = {
        "model": spec.models,
        "precision": spec.precisions,
        "frameworks": spec.frameworks,
        "batch_size": "max" if spec.largest_batch else spec.batch_size,
        "global_batch_size": spec.global_batch_size,
        "compile": spec.compile,
        "tuned": spec.tuned,
        "source": [f"{name}={folder}" for name, folder in spec.sources.items()],
        "set": spec.settings,
        "device": spec.device,
        "env": spec.env,
        "image": [f"{name}={reference}" if name else reference for name, reference in spec.images.items()],
        "container_arg": spec.container_arguments,
        "threads": spec.threads,
        "allow_reference": spec.allow_reference,
        "emulate_cpu": spec.emulate_cpu,
        "size": [_size(*row) for row in spec.grid] if spec.sizes else (),
        "nnodes": () if spec.sizes else spec.nnodes,
        "nproc_per_node": () if spec.sizes else spec.nproc_per_node,
        "parallelism": "parameter-server" if spec.servers else None,
        "servers": spec.servers,
        "ps_mode": spec.ps_modes,
        "bandwidth": [f"{one:g}" for one in spec.bandwidths],
        "latency": [f"{one:g}" for one in spec.latencies],
        "hosts": spec.hosts,
        "launcher": spec.launcher,
        "launcher_arg": spec.launcher_arguments,
        "allocation": spec.allocation,
        "predict": spec.predict,
        "protocol": spec.protocol.name,
        "windows": spec.protocol.windows,
        "aa": spec.aa,
        "seed": spec.seed,
        "no_verify": not spec.verify,
    }
    if spec.data != "synthetic":
        asked |= {"data": spec.data, "input": spec.inputs, "format": spec.formats}
    # naming a number of steps has them take no seconds at least
    if spec.protocol.warmup_steps != protocol.warmup_steps or not spec.protocol.warmup_seconds:
        asked["warmup_steps"] = spec.protocol.warmup_steps
    if spec.protocol.steps_per_window != protocol.steps_per_window or not spec.protocol.window_seconds:
        asked["steps_per_window"] = spec.protocol.steps_per_window
    if spec.until:
        asked["until"] = f"{100 * spec.until:.15g}%"
        asked["max_blocks"] = spec.protocol.repeats if spec.protocol.repeats != MAX_BLOCKS else None
        asked["max_time"] = spec.max_time or None
    else:
        asked["repeats"] = spec.protocol.repeats
    if spec.timeout != TIMEOUTS.get(spec.protocol.name):
        asked["timeout"] = spec.timeout
    return {name: value for name, value in asked.items() if value is not None and not _empty(value)}


def _size(nodes: int, ranks: int, batch_size: int, servers: int) -> str:
    of_servers = f"+{servers}s" if servers else ""
    return f"{nodes}n{nodes * ranks}d{of_servers}" + (f"-b{batch_size}" if batch_size else "")


def _empty(value: object) -> bool:
    return value == "" or (isinstance(value, (tuple, list, Mapping)) and not value)
