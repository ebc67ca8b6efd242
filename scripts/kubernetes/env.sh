# Sourced by the scripts beside it: where the test cluster's programs and its state live.
# Both are outside the clone, so that several clones share one build and `make clean` does not cost five minutes.
# kubernetes_build: raised by every change of what build.sh builds, so that an older build is not used.
kubernetes_version=1.20.2
kubernetes_source=1.20.5+really1.20.2-1.1+deb12u1
kubernetes_build=2
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/codehub
prefix=${CODEHUB_KUBERNETES_PREFIX:-$cache/kubernetes-$kubernetes_version-$kubernetes_build}
lab=${CODEHUB_KUBERNETES_LAB:-/var/tmp/codehub-kubernetes}
node=node1
say() { printf 'kubernetes: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
# A second node, with a directory of its own, gets its own cgroup too.
cgroup=codehub-k8s${CODEHUB_KUBERNETES_LAB:+-$(basename "$CODEHUB_KUBERNETES_LAB")}
