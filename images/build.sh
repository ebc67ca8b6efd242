#!/usr/bin/env bash
# Builds codehub/code-server:1 and codehub/jupyterlab:1 from Debian's, PyPI's and npm's packages alone.
#   images/build.sh [code-server|jupyterlab …]      BASE=image to start from another base
# When no base can be pulled one is made by debootstrap (as root). pip and npm run on the host, with the host's settings
# and certificates; only apt runs in the build. `docker` is the one that DOCKER_HOST or its context names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(code-server jupyterlab)
# One base for all: the digest that the recipes name.
base=${BASE:-$(sed -n 's/^ARG BASE=//p' images/code-server/Dockerfile)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# locked_for VERSION FILE: the locked packages that a Python of this version needs. pip would ask the host's Python.
locked_for() {
    .venv/bin/python - "$@" <<'EOF'
import sys
from pathlib import Path

from packaging.requirements import Requirement

version, lock = sys.argv[1:]
python = {"python_full_version": version, "python_version": ".".join(version.split(".")[:2])}
for line in Path(lock).read_text().replace("\\\n", " ").splitlines():
    named, *hashes = line.split(" --hash=")
    if not hashes:
        continue
    locked = Requirement(named)
    if locked.marker is None or locked.marker.evaluate(python):
        print(f"{locked.name}{locked.specifier}", *(f"--hash={value.strip()}" for value in hashes))
EOF
}

if ! docker image inspect "$base" >/dev/null 2>&1 && ! docker pull -q "$base" >/dev/null 2>&1; then
    base=codehub/base:1
    if ! docker image inspect "$base" >/dev/null 2>&1; then
        echo "build: no base can be pulled; making one with debootstrap" >&2
        debootstrap --variant=minbase bookworm "$work/base" >"$work/debootstrap.log" 2>&1 || { tail -20 "$work/debootstrap.log" >&2; exit 1; }
        tar -C "$work/base" -c . | docker import - "$base" >/dev/null
        rm -rf "$work/base"
    fi
fi

for name in "${names[@]}"; do
    mkdir -p "$work/$name"
    cp images/"$name"/* "$work/$name/"
    case $name in
        code-server)
            scripts/bootstrap.sh dev >/dev/null
            bin=$(.venv/bin/python -m testing.codehub.ide code-server | tail -1)
            cp -a "$(dirname "$bin")" "$work/$name/ide" ;;
        jupyterlab)
            # Wheels for the image's Python, not for this machine's: Debian's may be older than what a package asks for.
            system=$(docker build -q --network host --build-arg BASE="$base" --target system "$work/$name")
            version=$(docker run --rm --network none "$system" python3 -c 'import platform; print(platform.python_version())')
            scripts/bootstrap.sh dev >/dev/null
            locked_for "$version" packages/codehub/src/codehub/adapters/ide/jupyterlab.txt >"$work/jupyterlab.txt"
            .venv/bin/python -m pip download -q --disable-pip-version-check --dest "$work/$name/wheels" --no-deps --require-hashes \
                --only-binary=:all: --python-version "$version" -r "$work/jupyterlab.txt" 2>"$work/pip.log" ||
                { tail -5 "$work/pip.log" >&2; exit 1; }
            .venv/bin/python -c 'import sys, pathlib; from codehub.adapters.ide.jupyterlab import write_kernel; write_kernel(pathlib.Path(sys.argv[1]))' \
                "$work/$name/kernel" ;;
        *) echo "build: no recipe images/$name" >&2; exit 2 ;;
    esac
    docker build -q --network host --build-arg BASE="$base" -t "codehub/$name:1" "$work/$name"
done
