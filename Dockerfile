# nerfleet for GPUs of compute capability 7.5 or newer and driver 580 or newer. No CUDA toolkit: NVRTC and the runtime come with the wheels.
#
#   docker build -t nerfleet .
#   docker run --gpus all --shm-size 4g -v "$PWD/data:/data:ro" -v "$PWD/runs:/runs" nerfleet nerfleet train /data/fox --out /runs/fox --gpus 4
#
# BASE: any image with Python 3.11 or newer and venv. EXTRA: cuda13, or cuda12 with a PyTorch of that index.
ARG BASE=python:3.11.14-slim-bookworm

# hadolint ignore=DL3006
FROM ${BASE} AS build
ARG EXTRA=cuda13
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv /opt/nerfleet
WORKDIR /src
COPY deploy/constraints.txt /src/
# In a layer of its own: it changes seldom and is most of the image.
RUN /opt/nerfleet/bin/pip install --constraint constraints.txt torch numpy
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
COPY deploy /src/deploy
RUN /opt/nerfleet/bin/pip install --constraint constraints.txt ".[${EXTRA}]" \
    && /opt/nerfleet/bin/pip uninstall --yes pip

# hadolint ignore=DL3006
FROM ${BASE}
LABEL org.opencontainers.image.title="nerfleet" \
      org.opencontainers.image.description="Trains instant-ngp radiance fields on one GPU or a fleet of them" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/nerfleet /opt/nerfleet
# A fixed number: Kubernetes checks runAsNonRoot by it.
RUN mkdir /data /runs /cache && chown 10001:10001 /runs /cache
ENV PATH=/opt/nerfleet/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    USER=nerfleet \
    XDG_CACHE_HOME=/cache \
    NUMBA_CACHE_DIR=/cache/numba \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
USER 10001:10001
WORKDIR /runs
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "nerfleet.deploy.alive"]
ENTRYPOINT ["python", "-m", "nerfleet.deploy.pod", "--"]
CMD ["nerfleet", "--help"]
