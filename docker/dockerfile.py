"""The Dockerfile of an environment's image, and the image's name. Pure.

It is called dlperf/<adapter>:<key>-<digest>, where the digest is of the environment and of the Dockerfile, so that an
image of another lock is never taken for this one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import dlperf.docker
from dlperf.catalog import locks
from dlperf.catalog.adapter import Adapter

#: public images of Python, by minor version: the newest when the locks were made. The same for all machines.
BASES = {
    "3.10": "python:3.10-slim-bookworm@sha256:68d914ec641a0b69267ce65184d000a2bc3a9ee2590ab702b82250ab2385735a",
    "3.11": "python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b",
}
PREFIX = "dlperf/"
#: where an image has its environment
PLACE = "/opt/dlperf"
#: of the Dockerfiles
FOLDER = Path(dlperf.docker.__path__[0])


def text(adapter: Adapter, key: str) -> str:
    """The Dockerfile of an environment."""
    from jinja2 import Environment as Templates
    from jinja2 import StrictUndefined

    spec = adapter.environments[key]
    site_packages = f"{PLACE}/lib/python{spec.python[0]}/site-packages"
    template = (FOLDER / "Dockerfile.j2").read_text(encoding="utf-8")
    return (
        Templates(undefined=StrictUndefined, keep_trailing_newline=True)
        .from_string(template)
        .render(
            title=adapter.title,
            adapter=adapter.name,
            device=key,
            python=spec.python[0],
            packages=packages(adapter, key),
            base=BASES.get(spec.python[0], f"python:{spec.python[0]}-slim-bookworm"),
            variables=[
                (name, value.replace("{site_packages}", site_packages))
                for name, value in (spec.variables or {}).items()
            ],
        )
    )


def packages(adapter: Adapter, key: str) -> tuple[str, ...]:
    """Debian's, that the image has besides."""
    return adapter.images[key].packages if key in adapter.images else ()


def name(adapter: Adapter, key: str) -> str:
    """Our image of an environment. RunError if its lock cannot be read."""
    both = f"{locks.digest(adapter, key)}\0{text(adapter, key)}"
    return f"{PREFIX}{adapter.name}:{key}-{hashlib.sha256(both.encode()).hexdigest()[:12]}"
