"""A program that permanently becomes an unprivileged user, then runs a command. `codehub up` starts API and proxy with it.

Python, CodeHub and the data are often below a directory that only root can enter (such as /root). The new process gets a
separate mount namespace in which such a directory is empty except for what CodeHub needs, read-only. Nothing outside that
namespace changes.

Uses only the standard library: it runs without site-packages, as root, and exits as soon as possible.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Arguments: the plan as JSON (`plan_for`), then the command."""
    plan = json.loads(sys.argv[1])
    try:
        if plan["closed"]:
            _show_only(plan["closed"], plan["shown"])
        become(plan["uid"], plan["gid"])
        # After the change of user, which clears it.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == plan["parent"]:
            os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
    except OSError as error:
        print(
            f"codehub: cannot run API or proxy as uid {plan['uid']}: {error}. Install CodeHub where that user can read "
            "it (for example in /opt/codehub), or set CODEHUB_USER=root to run both as root.",
            file=sys.stderr,
        )
    return 1


def plan_for(uid: int, gid: int, closed: Sequence[str], shown: Sequence[str], parent: int) -> str:
    return json.dumps({"uid": uid, "gid": gid, "closed": list(closed), "shown": list(shown), "parent": parent})


def become(uid: int, gid: int) -> None:
    """Become this user permanently, without any capability. Programs that it runs cannot gain one."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def _show_only(closed: Sequence[str], shown: Sequence[str]) -> None:
    """Cover each closed directory with an empty one, and mount the shown paths into it."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount(None, "/", None, _MS_REC | _MS_SLAVE, None)
    # Opened before they are covered. Not inherited by the executed program.
    held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in shown]
    for directory in closed:
        _mount("tmpfs", directory, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
    for path, fd in held:
        if not any(path == each or path.startswith(each + "/") for each in closed):
            continue
        os.makedirs(path, mode=0o755, exist_ok=True)
        _mount(f"/proc/self/fd/{fd}", path, None, _MS_BIND | _MS_REC, None)
        _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None)
    for directory in closed:
        _mount(None, directory, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def _check(result: int, doing: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
