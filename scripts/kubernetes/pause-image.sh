#!/usr/bin/env bash
# Makes the image of the pods' sandboxes out of Debian's static busybox.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$lab/images"
cp "$(find "$prefix/bin" "$prefix/usr/bin" -name busybox | head -1)" "$work/bin/busybox"
python3 "$here/image.py" "$lab/images/pause.tar" codehub-test/pause:1 '["/bin/busybox", "sleep", "2147483647"]' "$work"
