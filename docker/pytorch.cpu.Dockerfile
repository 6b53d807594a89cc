# PyTorch on cpu, from Dockerfile.j2; `pytest --update-golden tests/docker/test_images.py` rewrites it.
# `python -m dlperf.images build pytorch --device cpu` makes the context: the lock, and in wheels/ all it lists.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
FROM ${BASE}
# No network and no secrets: nothing is looked for but in the context, and everything has a hash.
RUN --mount=type=bind,source=wheels,target=/wheels \
    --mount=type=bind,source=requirements.txt,target=/requirements.txt \
    python3.11 -m venv /opt/dlperf \
    && /opt/dlperf/bin/python -m pip install --no-cache-dir --no-index --find-links /wheels \
       --require-hashes --no-deps --disable-pip-version-check --progress-bar off -r /requirements.txt
ENV PATH=/opt/dlperf/bin:$PATH

USER 65534:65534
