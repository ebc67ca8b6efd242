"""What an instance may see: the uid it gets, and the bubblewrap view of its own home and a read-only system."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codehub.domain.errors import Terminal

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_FIRST_UID = 1_000_000_000  # above what distributions, containers and directories hand out
_UIDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class View:
    """What a sandbox holds besides the system. `hidden` are CodeHub's own places, wherever they are."""

    home: Path
    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    etc: Path  # passwd and group files of its own


def uid_for(workspace_id: str) -> int | None:
    """The workspace's own uid when CodeHub is root; else None, and the instance runs as CodeHub's user."""
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(workspace_id.encode()).digest()
    return _FIRST_UID + int.from_bytes(digest[:8], "big") % _UIDS


@cache
def bubblewrap() -> str | None:
    """Its path, when it is installed and the kernel lets it work."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    tried = subprocess.run(
        [program, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "true"],
        capture_output=True,
        check=False,
    )
    return program if tried.returncode == 0 else None


def wrap(program: str, command: Sequence[str], view: View, uid: int | None) -> list[str]:
    """The command as bubblewrap runs it; as root it becomes `uid` inside, with nothing kept of root's rights."""
    words = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for name in ("/tmp", "/var/tmp"):  # noqa: S108 - inside the sandbox
        words += ["--perms", "1777", "--tmpfs", name]
    words += ["--tmpfs", "/run", "--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    system = tuple(map(Path, _SYSTEM))
    readable = [path for path in view.readable if not any(path.is_relative_to(seen) for seen in system)]
    words += _way_to(readable)
    for path in readable:
        words += ["--ro-bind", str(path), str(path)]
    for path in view.hidden:
        if path.is_dir() and any(path.is_relative_to(seen) for seen in (*system, *view.readable)):
            words += ["--perms", "0755", "--tmpfs", str(path)]
            inside = [seen for seen in view.readable if seen.is_relative_to(path)]
            words += _way_to(inside)
            words += [word for seen in inside for word in ("--ro-bind", str(seen), str(seen))]
    words += _way_to([view.home, *view.writable])
    for path in (view.home, *view.writable):
        words += ["--bind", str(path), str(path)]
    for name in ("passwd", "group"):
        words += ["--ro-bind", str(view.etc / name), f"/etc/{name}"]
    words += ["--chdir", str(view.home)]
    if uid is None:
        return [*words, "--", *command]
    words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP", "--"]
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    drop = [
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "--no-new-privs",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]
    return [*words, setpriv, *drop, "--", *command]


def _way_to(paths: Sequence[Path]) -> list[str]:
    """Directories above, which bubblewrap would make for root alone."""
    above = dict.fromkeys(parent for path in paths for parent in reversed(path.parents) if len(parent.parts) > 1)
    return [word for parent in above for word in ("--perms", "0755", "--dir", str(parent))]


def write_etc(place: Path, uid: int, home: Path) -> None:
    """passwd and group with a name for the workspace's user, so that shells and git know who they are."""
    place.mkdir(mode=0o755, exist_ok=True)
    place.chmod(0o755)
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    for name, line in (("passwd", f"coder:x:{uid}:{uid}::{home}:{shell}\n"), ("group", f"coder:x:{uid}:\n")):
        system = Path("/etc", name).read_text(encoding="utf-8", errors="replace")
        kept = [row for row in system.splitlines(keepends=True) if row.split(":")[2:3] != [str(uid)]]
        (place / name).write_text("".join([line, *kept]))
        (place / name).chmod(0o644)


def check_reachable(path: Path, uid: int | None) -> None:
    """Without a sandbox the workspace's uid walks to its home itself; a closed directory on the way is said, not opened."""
    if uid is None:
        return
    for parent in reversed(path.parents):
        found = parent.stat()
        if not found.st_mode & (0o100 if found.st_uid == uid else 0o001):
            raise Terminal(
                f"{path} cannot be reached by the workspace's own user: {parent} is closed to others. "
                "Put CODEHUB_DATA_DIR where others may pass (/var/lib/codehub), or install bubblewrap."
            )


def tool_dirs() -> tuple[Path, ...]:
    """Python's own places: where JupyterLab and other tools of our environment are."""
    return tuple(dict.fromkeys(Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix)))
