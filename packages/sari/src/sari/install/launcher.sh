#!/bin/sh
''':'
# The `sari` command: a shell reads this part, Python what follows it.
#
# In a terminal, `sari search TEXT` must not be slower than `rg`, and Python alone takes as long to start as ripgrep
# needs for a thousand files. So ripgrep answers here unless a daemon holds the workspace in memory and the workspace is
# large. Everything unusual is left to Python: other flags, a pipe (whose reader gets the best matches first), refused
# folders, rejected queries.
python=@PYTHON@
ripgrep=@RIPGREP@

# Sets `root` as sari.registry.roots does, or fails.
find_root() {
    [ -z "$SARI_WORKSPACE_ROOT$CLAUDE_PROJECT_DIR" ] && [ -n "$HOME" ] && cd -P . 2>/dev/null || return 1
    # Not in a directory that was removed.
    [ "$PWD" -ef . ] || return 1
    root=$PWD
    while [ ! -e "$root/.git" ]; do
        root=${root%/*}
        [ -n "$root" ] || { root=$PWD; break; }
    done
    case $root/ in
        // | /proc/* | /sys/* | /dev/* | */site-packages/* | */dist-packages/* | */node_modules/* | */pkg/mod/*) return 1 ;;
    esac
    ! [ "$root" -ef "$HOME" ]
}

# Sets `size` to what the daemon says of the root: large, small or nothing (sari.daemon.warm_roots).
find_size() {
    size=
    case $SARI_REGISTRY_FILE in
        '') known=$HOME/.local/share/sari/warm-roots ;;
        /*) known=${SARI_REGISTRY_FILE%/*}/warm-roots ;;
        *) return 1 ;;
    esac
    [ -r "$known" ] || return 0
    while read -r says path; do
        [ "$path" != "$root" ] || size=$says
    done < "$known"
}

search() {
    mode= case= query=
    for word; do
        case $mode:$case:$word in
            :*:-w | :*:--word) mode=words ;;
            :*:-E | :*:--regex) mode=regex ;;
            *::-i | *::--ignore-case) case=ignore ;;
            *::-s | *::--case-sensitive) case=respect ;;
            *:-*) return ;;
            *) [ -z "$query" ] && query=$word || return ;;
        esac
    done
    case $mode:$query in
        *: | *'
'*) return ;;
        # It may match a line break.
        regex:*'\'[nxu]* | regex:*'(?'*) return ;;
        words:*) mode=-Fw ;;
        regex:*) mode=--no-fixed-strings ;;
        *) mode=-F ;;
    esac
    case $case in
        ignore) case=-i ;;
        respect) case=-s ;;
        *) case=-S ;;
    esac
    find_root && find_size && [ "$size" != large ] && cd "$root" || return
    set -- --no-config --hidden --glob '!.git' --color never --line-number --no-heading --with-filename \
        --max-columns 400 --max-columns-preview "$mode" "$case" --regexp "$query"
    # Limits the memory of ripgrep: an ignore file may be a link to a device without an end. Applied in subshells only.
    limit="ulimit -d 2097152"
    { messages=$($limit 2>/dev/null; "$ripgrep" "$@" 2>&1 >&3 3>&- </dev/null); } 3>&1
    code=$?
    if [ $code -gt 1 ]; then
        case $messages in
            'rg: ./'*'(os error 5)'* | 'rg: ./'*'(os error 27)'* | 'rg: ./'*'(os error 28)'* | 'rg: ./'*'(os error 122)'*)
                messages=${messages##*: }
                echo "sari: the output cannot be written: ${messages% (os error*}" >&2
                exit 1 ;;
            'rg: ./'*)
                # Some files cannot be read, and are ignored. The exit code says whether others match.
                ($limit 2>/dev/null; "$ripgrep" "$@" --quiet --no-messages </dev/null)
                code=$? ;;
            *)
                # The query was rejected before anything was printed. Python says why.
                cd "$OLDPWD"
                return ;;
        esac
    fi
    # For the next search, and for other clients. Closing the terminal does not end it.
    trap '' HUP
    [ "$size" = small ] || "$python" -EP -m sari.cli.warm_up "$root" </dev/null >/dev/null 2>&1 &
    exit $code
}

case $1 in
    search)
        shift
        # A terminal, a file or /dev/null.
        if [ -c /dev/stdout ] || [ -f /dev/stdout ]; then search "$@"; fi
        exec "$python" -IS "$0" search "$@" ;;
    mcp) exec "$python" -IS "$0" "$@" ;;
esac
exec "$python" -EPs "$0" "$@"
'''
import sys

if sys.flags.no_site:
    # What `site` would do for an environment, and nothing of the rest.
    sys.prefix = sys.exec_prefix = @ENVIRONMENT@
    sys.path += @PACKAGES@

from sari.cli.main import main

sys.exit(main())
