#!/usr/bin/env bash
# Builds the programs of a real Kubernetes node, once, into a cache outside the clone.
#
# Everything comes from the Debian mirrors this machine already uses, by package name: the server programs are compiled
# from Debian 12's source package, etcd, containerd, runc, the CNI plug-ins and busybox are its binary packages. Nothing
# is installed: packages are unpacked below the cache, and apt reads a private copy of the package lists.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
[ ! -e "$prefix/complete" ] || exit 0
[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || die "the test cluster is built on Debian 12, amd64 only"
for command in apt-get dpkg-source dpkg-deb patch xz; do
    command -v "$command" >/dev/null || die "$command is missing: apt-get install dpkg-dev patch xz-utils"
done
mkdir -p "$cache"
exec 9> "$prefix.lock"
flock -n 9 || { say "waiting for another build"; flock 9; }
[ ! -e "$prefix/complete" ] || exit 0
work=$prefix.build
new=$prefix.new
rm -rf "$new"
mkdir -p "$new/bin" "$work/apt/sources" "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/debs" "$work/gopath/src/k8s.io"
started=$SECONDS
step() {
    say "$((SECONDS - started)) s: $*"
    echo "$*" > "$work/step"
}
# A step may take minutes: report every 20 seconds that it goes on. The compiler lists each package in compiled.log.
: > "$work/compiled.log"
(
    while sleep 20 > /dev/null 2>&1 && kill -0 $$ 2> /dev/null; do
        compiled=$(wc -l < "$work/compiled.log")
        say "$((SECONDS - started)) s: still $(cat "$work/step")$([ "$compiled" = 0 ] || echo ", $compiled packages")"
    done
) 9>&- &
heartbeat=$!
trap 'kill $heartbeat 2>/dev/null || true' EXIT

# The same mirrors, with their source packages; /etc/apt stays as it is.
step "reading the package lists"
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed '/^#/d; s/^Types:.*/Types: deb deb-src/' "$file" > "$work/apt/sources/$(basename "$file")"
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$file" ] || sed -nE '/^deb(-src)? /{s/^deb(-src)? /deb /p; s/^deb /deb-src /p}' "$file" > "$work/apt/sources/$(basename "$file")"
done
chmod -R a+rX "$work/apt" # apt drops to its own user for downloads
apt=(apt-get -qq -o Acquire::Retries=5 -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/sources" -o "Dir::State::lists=$work/apt/lists"
    -o "Dir::Cache::archives=$work/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
"${apt[@]}" update

step "downloading"
(
    cd "$work/debs"
    # The version is pinned: another suite's source package may be newer and holds no servers.
    "${apt[@]}" source --download-only "kubernetes=$kubernetes_source"
    "${apt[@]}" download etcd-server etcd-client kubernetes-client containerd runc containernetworking-plugins busybox-static \
        golang-1.19-go golang-1.19-src
    mkdir -p "$work/go"
    for deb in golang-*.deb; do dpkg-deb -x "$deb" "$work/go"; done
    for deb in etcd-*.deb kubernetes-client_*.deb containerd_*.deb runc_*.deb containernetworking-*.deb busybox-*.deb; do
        dpkg-deb -x "$deb" "$new"
    done
)
rm -rf "$new/usr/share/doc" "$new/usr/share/man" "$work/gopath/src/k8s.io/kubernetes"
dpkg-source --no-check -x "$work"/debs/kubernetes_*.dsc "$work/gopath/src/k8s.io/kubernetes" > /dev/null

export GOROOT=$work/go/usr/lib/go-1.19 GOPATH=$work/gopath GOCACHE=$work/gocache GO111MODULE=off CGO_ENABLED=0 GOFLAGS='' HOME=$work LC_ALL=C
# The compiler collects its garbage less often: less CPU time, for up to 1 GB of memory per process.
export GOGC=400
PATH=$GOROOT/bin:$PATH
cd "$GOPATH/src/k8s.io/kubernetes"

# The kubelet looks every 10 seconds whether a pod that ended can be deleted, and every 60 seconds for containers that nobody
# removed. Tests delete a hundred pods: it looks every second here. Nothing else differs from the release.
speed_up() { # FILE CONSTANT OLD NEW
    grep -qE "$2 += $3\$" "$1" || die "$1 has no $2 = $3"
    sed -i -E "s/($2 +=) $3\$/\1 $4/" "$1"
}
speed_up pkg/kubelet/status/status_manager.go syncPeriod '10 [*] time.Second' time.Second
speed_up pkg/kubelet/kubelet.go ContainerGCPeriod time.Minute '5 * time.Second'

# Debian removes this generated file from the source; its own build makes it again, and so do we.
step "generating the OpenAPI definitions ($(go version))"
nice -n 5 go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rlE --include='*.go' '\+k8s:openapi-gen=' pkg cmd vendor/k8s.io/*/ |
    grep -vE '^vendor/k8s.io/(code-generator|sample-apiserver)/|_test.go$' |
    xargs grep -lE '^// *\+k8s:' | xargs -n1 dirname | sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
nice -n 5 "$work/openapi-gen" -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"

flags="-s -w"
for package in component-base/version client-go/pkg/version; do
    for pair in "gitVersion=v$kubernetes_version" gitMajor=1 gitMinor=20 gitTreeState=archive; do
        flags="$flags -X k8s.io/kubernetes/vendor/k8s.io/$package.$pair"
    done
done
# One command, so that the programs' packages are compiled and linked in parallel. Without clouds and Docker's engine.
step "compiling kube-apiserver, kube-controller-manager, kube-scheduler and kubelet"
nice -n 5 go build -v -tags "providerless dockerless" -ldflags "$flags" -o "$new/bin/" \
    ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubelet 2> "$work/compiled.log" ||
    { tail -30 "$work/compiled.log" >&2; die "the programs cannot be compiled"; }
rm -rf "$prefix"
touch "$new/complete"
mv "$new" "$prefix"
step "removing what was compiled"
kill $heartbeat 2>/dev/null || true # it reads files of the directory that is removed now
chmod -R u+w "$work" && rm -rf "$work"
say "$((SECONDS - started)) s: complete: $prefix"
