#!/usr/bin/env bash
# Installs the real parts the tests run against, through Debian's packages, when run as root on Debian.
# What cannot be had is named by the test run itself (testing/parts.py): left out on a contributor's machine, a failure in CI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/retry.sh

declare -A package_of=(
    [dockerd]=docker.io [chromium]=chromium [chromium-headless-shell]=chromium-headless-shell [debootstrap]=debootstrap [bwrap]=bubblewrap [slirp4netns]=slirp4netns [nginx]=nginx-light
    [zstd]=zstd [setfattr]=attr [git]=git [wrk]=wrk [g++]=g++ [openssl]=openssl
    [systemd-analyze]=systemd [sshd]=openssh-server [ssh]=openssh-client [rsync]=rsync [vim]=vim [htop]=htop
    [gopls]=gopls [go]=golang-go [clangd]=clangd [ctags]=universal-ctags
    [docker-registry]=docker-registry [linux.uml]=user-mode-linux [mkfs.xfs]=xfsprogs [mkfs.ext4]=e2fsprogs [insmod]=kmod
    [fcgiwrap]=fcgiwrap [git-lfs]=git-lfs [ip]=iproute2
    [dpkg-source]=dpkg-dev [patch]=patch [curl]=curl
)
missing=()
for command in "${!package_of[@]}"; do
    command -v "$command" >/dev/null 2>&1 || [ -x "/usr/sbin/$command" ] || missing+=("${package_of[$command]}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    printf 'parts: not installed: %s\n' "${missing[*]}" >&2
    exit 0
fi
mkdir -p .parts
exec 9> .parts/parts.lock
flock 9
printf 'parts: installing %s\n' "${missing[*]}" >&2
# Servers that Debian's packages would start by themselves are not wanted: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
install() {
    # Another apt or dpkg may hold the lock, for example the updates of a machine that was just started.
    local apt=(apt-get -o DPkg::Lock::Timeout=300 -qq)
    {
        "${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
    } > .parts/apt.log 2>&1
}
if ! retry install; then
    tail -n 20 .parts/apt.log >&2
    printf 'parts: could not install %s\n' "${missing[*]}" >&2
    [ "${CI:-}" != true ]
fi
