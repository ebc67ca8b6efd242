#!/usr/bin/env bash
# Stops the test cluster and whatever its pods left: only processes that up.sh recorded, or that are in its cgroup.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
rm -f "$lab/run/ready"
# stop NAME WORD: the recorded process, when it is still the one that was started (WORD is in its command line).
stop() {
    local pid
    pid=$(cat "$lab/run/pid/$1" 2>/dev/null) || return 0
    [ -d "/proc/$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" | grep -q -- "$2" || return 0
    kill "${3:--TERM}" "$pid" 2>/dev/null
    for _ in $(seq 100); do
        [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null
}
stop kubelet kubelet
for _ in 1 2 3; do
    find /sys/fs/cgroup/pids/"$cgroup" /sys/fs/cgroup/"$cgroup" -name cgroup.procs 2>/dev/null -exec cat {} + | sort -u | xargs -r kill -KILL 2>/dev/null
    sleep 0.3
done
for directory in /proc/[0-9]*; do
    if tr '\0' ' ' 2>/dev/null < "$directory/cmdline" | grep -q "containerd-shim-runc-v2.*-address $lab/containerd/c.sock"; then
        kill -KILL "${directory#/proc/}" 2>/dev/null
    fi
done
stop containerd containerd
stop scheduler kube-scheduler
stop controller-manager kube-controller-manager
stop apiserver kube-apiserver
stop etcd etcd
stop namespaces "sleep infinity"
for hierarchy in /sys/fs/cgroup/*/"$cgroup" /sys/fs/cgroup/"$cgroup"; do
    [ ! -d "$hierarchy" ] || find "$hierarchy" -depth -type d -exec rmdir {} \; 2>/dev/null
done
rm -rf "$lab/run" "$lab/kubelet/pods" "$lab/volumes" "$lab/containerd" 2>/dev/null
exit 0
