#!/usr/bin/env bash
# Runs a command in the test cluster's namespaces, with kubectl on the path: exec.sh [--start] kubectl get pods -A
# --start: start the cluster first if it does not run, or if one of its programs ended.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
if [ "$1" = --start ]; then
    shift
    "$here/up.sh"
fi
pid=$(cat "$lab/run/pid/namespaces" 2>/dev/null) && [ -d "/proc/$pid" ] || die "the test cluster is not running: make kubernetes-up"
export KUBECONFIG=$lab/kubeconfig PATH=$prefix/bin:$prefix/usr/bin:$prefix/usr/sbin:$PATH CODEHUB_TEST_KUBERNETES=$lab CODEHUB_TEST_KUBERNETES_PROGRAMS=$prefix
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY || true
exec nsenter -t "$pid" -m -n -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
