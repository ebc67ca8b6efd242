"""What an instance may see: its uid, and the bubblewrap view of its home and a read-only system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codehub.domain.errors import Terminal
from codehub.workspaced.start_environment import git_identity

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Files in /etc that programs need. An allow-list: configuration of other services, including CodeHub's, contains secrets.
_ETC = (
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "locale.gen",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nanorc",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "skel",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "xattr.conf",
    "xdg",
)
_OWN_ETC = ("profile", "gitconfig", "passwd", "group", "hosts", "hostname", "resolv.conf", "nsswitch.conf")
# A login shell gets the same PATH as every other program. The system's file would set a different one.
_PROFILE = """PATH="{path}"
export PATH
if [ -n "${{PS1-}}" ]; then
    if [ -n "${{BASH_VERSION-}}" ] && [ -f /etc/bash.bashrc ]; then
        . /etc/bash.bashrc
    else
        PS1='$ '
    fi
fi
"""
HOME = "/home/coder"  # as on every runtime


@dataclass(frozen=True, slots=True)
class View:
    """The content of a sandbox besides the system. `hidden` are CodeHub's own directories, wherever they are."""

    home: Path
    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    etc: Path  # the workspace's own files
    tmp_bytes: int
    seccomp_fd: int | None
    terminals: Path | None = None  # a mounted devpts


@cache
def bubblewrap() -> str | None:
    """Return bubblewrap's path if it is installed and the kernel allows it."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    words = ["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "--size", "4096"]
    tried = subprocess.run(
        [program, *words, "--tmpfs", "/tmp", "true"],  # noqa: S108 - inside the sandbox
        capture_output=True,
        check=False,
    )
    return program if tried.returncode == 0 else None


def wrap(program: str, command: Sequence[str], view: View, uid: int | None) -> list[str]:
    """Wrap the command in bubblewrap. If started as root, it becomes `uid` inside and keeps none of root's privileges."""
    words = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", (view.etc / "hostname").read_text().strip()]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    words += _way_to([Path("/etc", name) for name in _ETC])
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in _OWN_ETC:
        words += ["--ro-bind", str(view.etc / name), f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    if view.terminals is not None:
        words += ["--dev-bind", str(view.terminals), "/dev/pts"]
    for name in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - inside the sandbox
        words += ["--perms", "1777", "--size", str(view.tmp_bytes), "--tmpfs", name]
    words += ["--perms", "0755", "--size", str(1 << 20), "--tmpfs", "/run"]
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
    words += _way_to([Path(HOME), view.home, *view.writable])
    # Files that contain the home's outside path, from before it was /home/coder, continue to work.
    words += ["--bind", str(view.home), HOME, "--symlink", HOME, str(view.home)]
    for path in view.writable:
        words += ["--bind", str(path), str(path)]
    words += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", HOME]
    if view.seccomp_fd is not None:
        words += ["--seccomp", str(view.seccomp_fd)]
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
    """Return options for parent directories, which bubblewrap would make accessible to root only."""
    above = dict.fromkeys(parent for path in paths for parent in reversed(path.parents) if len(parent.parts) > 1)
    return [word for parent in above for word in ("--perms", "0755", "--dir", str(parent))]


@dataclass(frozen=True, slots=True)
class Person:
    """The user as the workspace's programs see it. `name` is the owner's user name, or empty."""

    uid: int
    name: str = ""


def write_etc(place: Path, person: Person, workspace_id: str, nameserver: str | None, path: str) -> None:
    """Write the workspace's own files in /etc: its user, its host name, its PATH, and name resolution."""
    place.mkdir(mode=0o755, exist_ok=True)
    place.chmod(0o755)
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    name, uid = f"ws-{workspace_id[-12:]}", person.uid
    files = {
        "profile": _PROFILE.format(path=path),
        "gitconfig": git_identity(person.name),
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\ncoder:x:{uid}:{uid}::{HOME}:{shell}\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ncoder:x:{uid}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {name}\n",
        "hostname": f"{name}\n",
        "resolv.conf": _resolver(nameserver),
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    }
    for file, content in files.items():
        (place / file).write_text(content)
        (place / file).chmod(0o644)


def _resolver(nameserver: str | None) -> str:
    """Return the machine's resolv.conf. With its own network: its search domains and the nameserver in that network."""
    try:
        lines = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        lines = []
    if nameserver is None:
        return "".join(lines)
    kept = [line for line in lines if line.split(None, 1)[:1] in (["search"], ["domain"], ["options"])]
    return "".join([f"nameserver {nameserver}\n", *kept])


def check_reachable(path: Path, uid: int | None) -> None:
    """Check that the uid can reach its home, which it must without a sandbox.

    A closed directory is reported, not opened.
    """
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
    """Return the directories of CodeHub's Python and its environment."""
    return tuple(dict.fromkeys(Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix)))


def python_dirs(program: str) -> tuple[Path, ...]:
    """Return the directories that a workspace sees: Python and, if it contains the program, CodeHub's environment."""
    return tool_dirs() if Path(program).is_relative_to(sys.prefix) else (Path(sys.base_prefix).resolve(),)
