# One image for the server and the clients. Both stages take the same base; give another one, such as one that knows
# your own certificate authority or package index, by --build-arg PYTHON_IMAGE=...
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /opt/perdl
# What perdl stands on comes first, a layer of its own that stays when only perdl changes.
COPY pyproject.toml ./
RUN /opt/perdl/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
      > requirements.txt \
    && /opt/perdl/bin/pip install --no-cache-dir --disable-pip-version-check -q -r requirements.txt
COPY README.md LICENSE ./
COPY common common
COPY configs configs
COPY perdl perdl
COPY perdl_client perdl_client
COPY perdl_server perdl_server
RUN /opt/perdl/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps . \
    && /opt/perdl/bin/pip uninstall -q -y pip

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/perdl /opt/perdl
# Like /tmp, so that a fresh volume takes any user, whichever --user says.
RUN mkdir -m 1777 /state
ENV PATH=/opt/perdl/bin:$PATH \
    HOME=/state \
    FLWR_HOME=/state/flower \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /state
VOLUME /state
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["perdl", "health", "/state"]
ENTRYPOINT ["perdl"]
CMD ["--help"]
