#!/bin/sh
# Sets sari up on a machine that has only Python 3.11 or later. All arguments are install.py's: see `bootstrap.sh --help`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

say() { printf 'sari: %s\n' "$*" >&2; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "Python 3.11 or later is needed and was not found. Install it, or set PYTHON to its path."
    return 1
}

python=$(find_python)
# A plain Debian python3 can make no environments.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian's python3-venv"
        apt-get update -qq >/dev/null
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv python3-pip >/dev/null
    else
        say "this Python cannot make environments. On Debian or Ubuntu: sudo apt-get install python3-venv python3-pip"
        exit 1
    fi
fi
exec "$python" "$here/install.py" "$@"
