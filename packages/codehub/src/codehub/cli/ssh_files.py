"""The files on the user's machine that SSH needs: our own key, the known hosts, and the block in `~/.ssh/config`."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from codehub.domain.errors import Conflict

SUFFIX = ".codehub"
# OpenSSH's own list with AES-GCM first: where the processor has instructions for it, a copy takes half of the CPU time.
# The whole list, because clients before 8.1 cannot move a cipher to the front.
CIPHERS = (
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr"
)
# More lines would be keys of other hosts, or markers such as @cert-authority.
_HOST_KEY = re.compile(r"[a-z0-9@.-]{1,100} [A-Za-z0-9+/]{1,10000}={0,2}")
_BEGIN, _END = "# --- CodeHub: begin (codehub config-ssh) ---", "# --- CodeHub: end ---"
# ssh gives the ProxyCommand to a shell. Before 9.6, it takes any host name, such as one from a repository's submodule: in
# quotes it is one word, and names with a quote are left out.
_HOST = f'Host *{SUFFIX} "!*\'*"'
# Never across another beginning: what stands between a block that lost its end and the next one is the user's.
_BLOCK = re.compile(rf"{re.escape(_BEGIN)}\r?\n(?:(?!{re.escape(_BEGIN)}).)*?{re.escape(_END)}\r?\n?", re.DOTALL)


def folder() -> Path:
    """Return the folder of the stored tokens."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base, "codehub")


def identity() -> Path:
    return folder() / "id_ed25519"


def known_hosts() -> Path:
    return folder() / "known_hosts"


def ensure_identity() -> str:
    """Return the public part of the key that `codehub ssh` uses. Created on first use."""
    path = identity()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        keygen = shutil.which("ssh-keygen")
        if keygen is None:
            raise Conflict("ssh-keygen is not installed here: install OpenSSH's client")
        comment = f"codehub@{os.uname().nodename}"
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)
    return path.with_name(path.name + ".pub").read_text().strip()


def with_host(text: str, name: str, host_key: str) -> str:
    """Return a known-hosts file with exactly this key for a name."""
    kept = [line for line in text.splitlines() if line.split(" ", 1)[0] != name]
    return "\n".join([*kept, f"{name} {host_key}"]) + "\n"


def remember_host(name: str, host_key: str) -> None:
    if not _HOST_KEY.fullmatch(host_key):
        raise Conflict("the server sent no SSH host key: a type and a key were expected, on one line")
    _changed(known_hosts(), lambda text: with_host(text, name, host_key))


def read(path: Path) -> str:
    """Return a file's text with its own line ends, and with bytes that are no UTF-8. Empty if there is no file."""
    if not path.exists():
        return ""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _changed(path: Path, change: Callable[[str], str]) -> None:
    """Rewrite the file as a whole under a lock, because several `ssh` may start at once."""
    for each in (folder(), path.parent):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder() / f"{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = read(path)
        new = change(old)
        if new == old:
            return
        # Follow a link to the real file: users may keep their dotfiles elsewhere.
        target = path.resolve()
        partial = target.with_name(target.name + ".codehub-new")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(new)
        if target.exists():
            os.chmod(partial, target.stat().st_mode & 0o777)
        partial.replace(target)


def own_command() -> str:
    """Return the command of this `codehub`, independent of the PATH of the process that runs `ssh`."""
    beside = Path(sys.executable).with_name("codehub")
    if beside.exists():
        return shlex.quote(str(beside))
    return f"{shlex.quote(sys.executable)} -m codehub.cli.main"


def has_aes(cpuinfo: str) -> bool:
    """Return whether a processor has instructions for AES, from Linux's /proc/cpuinfo."""
    return re.search(r"^(flags|Features)\s*:.*\baes\b", cpuinfo, re.MULTILINE) is not None


def _ciphers() -> list[tuple[str, str]]:
    try:
        fast = has_aes(Path("/proc/cpuinfo").read_text())
    except OSError:
        fast = sys.platform == "darwin"  # all of its processors do
    return [("Ciphers", CIPHERS)] if fast else []


def options(*, server: str | None, fd_passing: bool) -> list[tuple[str, str]]:
    """Return the `ssh` options, for the block and for the command line."""
    named = f" --server {shlex.quote(server)}" if server else ""
    return [
        ("ProxyCommand", f"{own_command()} ssh --stdio{' --fd-pass' if fd_passing else ''}{named} '%n'"),
        ("ProxyUseFdpass", "yes" if fd_passing else "no"),
        ("UserKnownHostsFile", str(known_hosts())),
        ("StrictHostKeyChecking", "yes"),
        ("IdentityFile", str(identity())),
        ("ForwardAgent", "no"),
        # Waking can take any time; progress is on standard error.
        ("ConnectTimeout", "0"),
        ("ServerAliveInterval", "30"),
        ("User", "coder"),
        *_ciphers(),
    ]


def block(*, server: str | None, fd_passing: bool) -> str:
    """Return the block. It ends with `Host *`, so that lines after it apply to all hosts, as they did before."""
    lines = [f"  {name} {value}" for name, value in options(server=server, fd_passing=fd_passing)]
    return "\n".join([_BEGIN, _HOST, *lines, "Host *", _END]) + "\n"


def with_block(text: str, wanted: str | None) -> str:
    """Return the configuration with or without our block. Everything else stays unchanged.

    A new block is at the top: `ssh` takes the first value that it finds, and a user's own `Host *` with another user, a
    time limit or without host checking would win. A block that is there already stays where it is.
    """
    found = _BLOCK.search(text)
    if found is None:
        return text if wanted is None else "\n".join([wanted, text] if text else [wanted])
    before, after = text[: found.start()], _BLOCK.sub("", text[found.end() :])
    if wanted is not None:
        return before + wanted + after
    if before:
        return (before[:-1] if before.endswith("\n\n") else before) + after
    return after.removeprefix("\n")


def change_config(path: Path, wanted: str | None) -> None:
    _changed(path, lambda text: with_block(text, wanted))
