#!/usr/bin/env bash
# Runs the tests that need a cluster, inside the test node's namespaces: test.sh [pytest arguments, or some of its files]
# A node that this starts is stopped again; one that `make kubernetes-up` started stays.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
cd "$here/../.."
if [ ! -e "$lab/run/ready" ]; then
    trap '"$here/down.sh"' EXIT
fi
"$here/up.sh" || exit 1
# The node's namespaces have no network: what tests install from npm must be there before.
for program in xterm code-server; do
    .venv/bin/python -m testing.codehub.ide $program > /dev/null || exit 1
done
tests=(packages/codehub/tests/kubernetes)
for argument in "$@"; do
    [[ $argument != packages/* ]] || tests=()
done
# One node, and tests that restart its parts: one after the other.
"$here/exec.sh" .venv/bin/python -m pytest -n 0 "${tests[@]}" "$@"
