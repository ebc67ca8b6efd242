#!/usr/bin/env bash
# Runs the tests: all of them in parallel, then the few that failed once more, alone.
#
# A test that only passes alone is UNSTABLE: it is listed at the end with its first failure kept in
# .parts/unstable.log, and is a bug to fix (docs/adr/0003). .parts/failed.log has each failure as soon as it happens.
# More than a handful of failures is never a matter of instability and ends the run at once.
# TEST_RUNNER: a command that runs pytest. TEST_LOGS: another directory than .parts.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
most_unstable=6
read -ra pytest <<< "${TEST_RUNNER:-} .venv/bin/python -m pytest"
logs=${TEST_LOGS:-.parts}
mkdir -p "$logs"
first=$logs/first-run.log
failed=$logs/failed.txt
rm -f "$failed" "$logs/failed.log" "$logs/unstable.log"
export PYTEST_FAILED_FILE=$failed

"${pytest[@]}" "$@" 2>&1 | tee -i "$first"
code=${PIPESTATUS[0]}
[ "$code" = 1 ] && [ -s "$failed" ] || exit "$code"
count=$(wc -l < "$failed")
if [ "$count" -gt "$most_unstable" ]; then
    echo "$count tests failed."
    exit 1
fi

cp "$first" "$logs/unstable.log"
echo
echo "Running the $count that failed once more, alone:"
mapfile -t again < "$failed"
PYTEST_FAILED_FILE= "${pytest[@]}" -p no:cacheprovider -n 0 "${again[@]}"
code=$?
[ "$code" = 0 ] || exit "$code"
echo
echo "UNSTABLE: these failed in the parallel run and passed alone (see $logs/unstable.log):"
sed 's/^/  /' "$failed"
