#!/usr/bin/env bash
# restart.sh kill|stop|start NAME: ends one of the cluster's programs, or starts it again with the command line it had.
# For tests of what happens when a part goes away. Run it inside the namespaces (exec.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
action=$1 name=$2
pid=$(cat "$lab/run/pid/$name")
case $action in
    kill) kill -KILL "$pid" ;;
    stop) kill -TERM "$pid" ;;
    start)
        mapfile -d '' command < "$lab/run/command/$name"
        setsid "${command[@]}" >> "$lab/run/log/$name.log" 2>&1 < /dev/null &
        echo $! > "$lab/run/pid/$name"
        exit 0 ;;
    *) die "kill, stop or start, not $action" ;;
esac
for _ in $(seq 600); do
    [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null || exit 0
    sleep 0.1
done
die "$name did not end"
