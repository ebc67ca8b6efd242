#!/usr/bin/env bash
# Stops the test cluster with everything that runs in it, pods and tests included, and removes its state.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
rm -f "$lab/run/ready"
# Whatever sees a mount of this node belongs to it: its programs, its pods, and what exec.sh ran. The node's mount namespace is
# its own, so no other process sees one.
members() {
    local pid
    for pid in $(grep -lsE -- "/$(basename "$lab")/(private|kubelet|containerd)/" /proc/[0-9]*/mountinfo | cut -d/ -f3); do
        [ "/proc/$pid/ns/mnt" -ef /proc/self/ns/mnt ] || echo "$pid"
    done
}
for _ in $(seq 100); do
    mapfile -t left < <(members)
    [ ${#left[@]} -gt 0 ] || break
    kill -KILL "${left[@]}" 2>/dev/null
    sleep 0.1
done
[ ${#left[@]} = 0 ] || say "these processes do not end: ${left[*]}"
for hierarchy in /sys/fs/cgroup/*/"$cgroup" /sys/fs/cgroup/"$cgroup"; do
    [ ! -d "$hierarchy" ] || find "$hierarchy" -depth -type d -exec rmdir {} \; 2>/dev/null
done
rm -rf "$lab/run" "$lab/private" "$lab/kubelet" "$lab/cni" "$lab/volumes" "$lab/containerd" 2>/dev/null
[ ${#left[@]} = 0 ]
