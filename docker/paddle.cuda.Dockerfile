# PaddlePaddle on cuda, from Dockerfile.j2; `pytest --update-golden tests/docker/test_images.py` rewrites it.
# `python -m dlperf.images build paddle --device cuda` makes the context: the lock, and in wheels/ all it lists.
ARG BASE=python:3.10-slim-bookworm@sha256:68d914ec641a0b69267ce65184d000a2bc3a9ee2590ab702b82250ab2385735a
FROM ${BASE}
# Libraries that the wheels leave to the system. Nothing is fetched for a base that has them.
# hadolint ignore=DL3008
RUN dpkg --status libgomp1 >/dev/null 2>&1 \
    || { apt-get update && apt-get install --yes --no-install-recommends libgomp1 \
         && rm -rf /var/lib/apt/lists/*; }
# No network and no secrets: nothing is looked for but in the context, and everything has a hash.
RUN --mount=type=bind,source=wheels,target=/wheels \
    --mount=type=bind,source=requirements.txt,target=/requirements.txt \
    python3.10 -m venv /opt/dlperf \
    && /opt/dlperf/bin/python -m pip install --no-cache-dir --no-index --find-links /wheels \
       --require-hashes --no-deps --disable-pip-version-check --progress-bar off -r /requirements.txt
ENV PATH=/opt/dlperf/bin:$PATH \
    LD_LIBRARY_PATH=/opt/dlperf/lib/python3.10/site-packages/nvidia/cublas/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cuda_cupti/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cuda_nvrtc/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cuda_runtime/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cudnn/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cufft/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/curand/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cusolver/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/cusparse/lib:/opt/dlperf/lib/python3.10/site-packages/nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

USER 65534:65534
