#!/usr/bin/env bash
# Makes .venv from a machine that has Python 3.11 or later and nothing else of ours.
#   scripts/bootstrap.sh run|dev|docs
# Done once per set of locked requirements: the stamp holds their digest. A bootstrap that was cut off is carried on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
level=${1:?run, dev or docs}
source scripts/retry.sh

say() { printf 'bootstrap: %s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3 python3.14 python3.13 python3.12 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "Python 3.11 or later is needed and was not found. Install it, or set PYTHON to its path."
    return 1
}

digest() { cat "requirements/$level.txt" packages/*/pyproject.toml scripts/bootstrap.sh | cksum | tr ' ' -; }

main() {
    local python wanted
    wanted=$(digest)
    if [ -x .venv/bin/python ] && [ "$(cat ".venv/.codehub-$level" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    python=$(find_python)
    if ! .venv/bin/python -c pass 2>/dev/null; then
        say "making .venv with $python"
        rm -rf .venv
        if ! "$python" -m venv .venv; then
            rm -rf .venv
            if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
                say "this Python has no venv: installing Debian's python3-venv"
                export DEBIAN_FRONTEND=noninteractive
                retry apt-get -o DPkg::Lock::Timeout=300 update -qq
                retry apt-get -o DPkg::Lock::Timeout=300 install -y -qq python3-venv python3-pip >/dev/null
                "$python" -m venv .venv
            else
                say "this Python cannot make virtual environments. On Debian or Ubuntu: sudo apt-get install python3-venv"
                return 1
            fi
        fi
    fi
    if ! .venv/bin/uv --version >/dev/null 2>&1; then
        say "installing uv"
        retry .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            --require-hashes --only-binary :all: -r requirements/uv.txt 2> >(grep -v '^WARNING: Location' >&2)
        .venv/bin/uv --version >/dev/null
    fi
    say "installing the locked requirements ($level)"
    retry .venv/bin/uv pip install --python .venv/bin/python --quiet --require-hashes -r "requirements/$level.txt"
    .venv/bin/uv pip install --python .venv/bin/python --quiet --no-deps --no-build-isolation \
        -e packages/codehub -e packages/sari
    printf '%s' "$wanted" > ".venv/.codehub-$level"
    # dev.txt holds all of run.txt.
    if [ "$level" = dev ]; then level=run; digest > .venv/.codehub-run; truncate -s -1 .venv/.codehub-run; fi
    say "ready: .venv/bin/codehub, .venv/bin/sari"
}

# Two makes at once must not build one environment together.
mkdir -p .parts
exec 9> .parts/bootstrap.lock
if command -v flock >/dev/null; then flock 9; fi
main
