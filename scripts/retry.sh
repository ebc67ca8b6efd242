# Sourced by the scripts that fetch from registries.

# retry COMMAND…: run it up to three times, some seconds apart. A dropped connection or a registry's 5xx is not an error yet.
# RETRY_WAIT_S: another time to wait.
retry() {
    local attempt wait_s=${RETRY_WAIT_S:-5}
    for attempt in 1 2; do
        "$@" && return
        printf '%s failed (attempt %s of 3), trying again in %s s\n' "$1" "$attempt" "$wait_s" >&2
        sleep "$wait_s"
    done
    "$@"
}
