#!/usr/bin/env bash
# restart.sh kill|stop|start|ended NAME: ends one of the cluster's programs, starts it again with the command line it had, or
# tells by the exit code whether it has ended. For tests of what happens when a part goes away. Run it inside the namespaces
# (exec.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
action=$1 name=$2
pid=$(cat "$lab/run/pid/$name")
# A killed program is a zombie as soon as its main thread has ended, but its ports are taken until its other threads have
# ended too: an API server that is started before that exits at once.
has_ended() {
    [ ! -d "/proc/$pid" ] || awk '/^State:/ { zombie = $2 == "Z" } /^Threads:/ { threads = $2 } END { exit !(zombie && threads <= 1) }' "/proc/$pid/status" 2>/dev/null
}
case $action in
    kill) kill -KILL "$pid" ;;
    stop) kill -TERM "$pid" ;;
    start)
        mapfile -d '' command < "$lab/run/command/$name"
        setsid "${command[@]}" >> "$lab/run/log/$name.log" 2>&1 < /dev/null &
        echo $! > "$lab/run/pid/$name"
        exit 0 ;;
    ended)
        has_ended
        exit ;;
    *) die "kill, stop, start or ended, not $action" ;;
esac
for _ in $(seq 600); do
    ! has_ended || exit 0
    sleep 0.1
done
die "$name did not end"
