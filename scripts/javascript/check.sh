#!/usr/bin/env bash
# Type-checks the JavaScript of the dashboard and of sari's page with TypeScript, which is installed into .parts/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/retry.sh
here=scripts/javascript
into=.parts/javascript
if ! command -v npm >/dev/null; then
    printf 'javascript: not checked: install Node.js 20 or later with npm\n' >&2
    [ "${CI:-}" != true ]
    exit
fi
mkdir -p "$into"
exec 9> "$into/lock"
flock 9
if ! cmp -s "$here/package-lock.json" "$into/installed.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$into"
    retry npm ci --prefix "$into" --ignore-scripts --no-audit --no-fund --loglevel=error
    cp "$here/package-lock.json" "$into/installed.json"
fi
"$into/node_modules/.bin/tsc" -p "$here"
