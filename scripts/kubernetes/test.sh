#!/usr/bin/env bash
# Runs the tests that need a cluster, inside the test node's namespaces: test.sh [--ci] [pytest arguments, or some of its files]
# A node that this starts is stopped again; one that `make kubernetes-up` started stays.
# --ci: a selection for every change, on a node that nothing else uses and that is removed afterwards.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=packages/codehub/tests/kubernetes
ci=(
    "$folder"/test_{fields,deploy,watch,failures,homes,instances,whole_life}.py
    "$folder/test_kill_points.py::test_killed_at_the_points_of_a_claim[1]"
)
is_ci=
if [ "${1:-}" = --ci ]; then
    shift
    is_ci=1
    CODEHUB_KUBERNETES_LAB=$(mktemp -d /var/tmp/codehub-kubernetes-ci.XXXXXX)
    export CODEHUB_KUBERNETES_LAB
    set -- "${ci[@]}" "$@"
fi
# shellcheck source=env.sh
. "$here/env.sh"
cd "$here/../.." || exit 1
keep=
[ -z "$is_ci" ] && [ -e "$lab/run/ready" ] && keep=1
pytest=
finish() {
    [ -z "$pytest" ] || { kill "$pytest" 2>/dev/null; wait "$pytest"; }
    [ -n "$keep" ] || "$here/down.sh"
    [ -z "$is_ci" ] || rm -rf "$lab"
}
trap finish EXIT
# pytest runs in the background: a signal would otherwise be handled only after it ends.
trap 'exit 143' TERM
trap 'exit 130' INT
"$here/up.sh" || exit 1
# The node's namespaces have no network: what tests install from npm must be there before.
programs=(xterm)
[ -n "$is_ci" ] || programs+=(code-server)
for program in "${programs[@]}"; do
    .venv/bin/python -m testing.codehub.ide "$program" > /dev/null || exit 1
done
tests=("$folder")
for argument in "$@"; do
    [[ $argument != packages/* ]] || tests=()
done
# One node, and tests that restart its parts: one after the other.
"$here/exec.sh" .venv/bin/python -m pytest -n 0 "${tests[@]}" "$@" &
pytest=$!
wait "$pytest"
result=$?
pytest=
exit $result
