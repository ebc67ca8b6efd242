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
case ${1:-} in
    --ci)
        shift
        is_ci=1
        CODEHUB_KUBERNETES_LAB=$(mktemp -d /var/tmp/codehub-kubernetes-ci.XXXXXX)
        # No test of the selection loses the node, and a busy machine must not.
        CODEHUB_KUBERNETES_NODE_GRACE=300s
        export CODEHUB_KUBERNETES_LAB CODEHUB_KUBERNETES_NODE_GRACE
        set -- "${ci[@]}" "$@"
        ;;
    --clean-up-after) is_ci=1 ;; # PID: see below
    *) is_ci= ;;
esac
# shellcheck source=env.sh
. "$here/env.sh"
cd "$here/../.." || exit 1
keep=
[ -z "$is_ci" ] && [ -e "$lab/run/ready" ] && keep=1

# run COMMAND…: in a process group of its own, which finish ends. In the background: bash would handle a signal only after it.
run() {
    setsid env --default-signal=INT,QUIT "$@" &
    echo $! > "$group_file"
    wait $!
    local result=$?
    : > "$group_file"
    return $result
}
finish() {
    local group
    group=$(cat "$group_file" 2>/dev/null)
    if [ -n "$group" ]; then
        kill -INT -- "-$group" 2>/dev/null # as Ctrl-C: tests stop what they started
        for _ in $(seq 300); do
            kill -0 -- "-$group" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$group" 2>/dev/null
    fi
    [ -n "$keep" ] || "$here/down.sh"
    rm -f "$group_file"
    [ -z "$is_ci" ] || rm -rf "$lab"
}
if [ "${1:-}" = --clean-up-after ]; then
    group_file=$lab/group
    tail --pid="$2" -f /dev/null
    [ ! -d "$lab" ] || finish
    exit 0
fi
if [ -n "$is_ci" ]; then
    group_file=$lab/group
    # Cleans up even if this script is killed.
    setsid "$here/test.sh" --clean-up-after $$ > /dev/null 2>&1 < /dev/null &
else
    group_file=$(mktemp)
fi
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# The node's namespaces have no network: what tests install must be there before.
programs=(xterm)
[ -n "$is_ci" ] || programs+=(code-server)
for program in "${programs[@]}"; do
    run .venv/bin/python -m testing.codehub.ide "$program" > /dev/null || exit 1
done
run "$here/up.sh" || exit 1
tests=("$folder")
for argument in "$@"; do
    [[ $argument != packages/* ]] || tests=()
done
# One node, and tests that restart its parts: one after the other.
export PYTEST_ADDOPTS="-n 0 ${PYTEST_ADDOPTS:-}" TEST_LOGS=.parts/kubernetes TEST_RUNNER="scripts/kubernetes/exec.sh --start"
run scripts/test.sh "${tests[@]}" "$@"
