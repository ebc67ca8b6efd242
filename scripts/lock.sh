#!/usr/bin/env bash
# Locks requirements/*.in into requirements/*.txt: every package with its hashes, no registry named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/bootstrap.sh run
for name in uv run dev docs; do
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
        "requirements/$name.in" -o "requirements/$name.txt"
done
# What CodeHub installs for workspaces is part of the package.
for name in jupyterlab pip; do
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
        --no-annotate "requirements/$name.in" -o "packages/codehub/src/codehub/adapters/ide/$name.txt"
done
# What sari installs for itself is part of its package, in the versions that it is tested with.
.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
    --no-annotate packages/sari/pyproject.toml -c requirements/dev.txt -o packages/sari/src/sari/install/dependencies.txt
if grep -nE 'https?://' requirements/*.txt packages/codehub/src/codehub/adapters/ide/*.txt \
    packages/sari/src/sari/install/dependencies.txt; then
    echo "lock: a requirements file names an address" >&2
    exit 1
fi
