"""Lists the branches of a repository from this machine, for the dialog that creates a workspace.

The address comes from a user, and this machine can reach hosts that users must not. Therefore only HTTPS and HTTP are
allowed, every address of the host is checked first, git connects to the checked address regardless of later DNS answers, no
redirect is followed, no configuration or hook of this machine is read, and time, memory and output are bounded.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codehub.adapters.addresses import is_public, own_addresses
from codehub.adapters.own_threads import OwnThreads
from codehub.domain.errors import Invalid, Unavailable
from codehub.domain.repository import RepositoryUrl
from codehub.fair_slots import FairSlots

_TIMEOUT_S = 15.0
_MOST_OUTPUT = 1 << 20
# git reads a whole answer into memory before it prints anything. It needs less than 64 MiB for an ordinary repository.
_MOST_MEMORY_KIB = 256 << 10
_LIMITED = ["/bin/sh", "-c", f'ulimit -v {_MOST_MEMORY_KIB} && exec "$@"', "sh"]
_AT_ONCE = 4
_NOBODY = 65534
_LINE = re.compile(r"[0-9a-f]{40,64}\trefs/heads/(\S+)")
_HEAD = re.compile(r"ref: refs/heads/(\S+)\tHEAD")
_OLDEST_GIT = (2, 37)  # the first that connects to a given address (http.curloptResolve)
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Branches:
    default: str
    names: tuple[str, ...]


class GitRemote:
    """Lists branches.

    `allowed`: private networks that workspaces, and thus their owners, may reach. `ca` as for workspaces.
    """

    def __init__(self, allowed: Sequence[str] = (), ca: str = "") -> None:
        self._allowed = [ipaddress.ip_network(text) for text in allowed]
        self._ca = ca
        self._slots = FairSlots(_AT_ONCE)
        # As many as slots. The shared threads check passwords, and a name server that never answers keeps its thread.
        self._threads = OwnThreads("git-remote", _AT_ONCE)

    async def branches(self, url: RepositoryUrl, username: str, token: str, user_id: str = "") -> Branches:
        """Return the branches. Raises Invalid with the problem. Without a token, username and token are empty.

        `user_id` asks. Users take turns, so that one who asks a slow host many times does not make the others wait.
        """
        if url.uses_ssh:
            raise Invalid("branches are not listed over SSH: type the branch")
        host, port = _host_and_port(url)
        async with self._slots.turn(user_id):
            address = await self._checked_address(host, port)
            pin = f"{host.strip('[]')}:{port}:{address}"
            with tempfile.TemporaryDirectory(prefix="codehub-git-") as folder:
                os.chmod(folder, 0o755)  # noqa: S103 - git runs as nobody, and the folder contains no secrets
                run = partial(self._run, url.url, pin, Path(folder), username, token)
                code, output = await self._threads.run(run)
        if code != 0:
            raise Invalid(_explained(output, url, bool(token)))
        head = _HEAD.search(output)
        names = tuple(_LINE.findall(output))
        return Branches(head[1] if head else "", names)

    async def _checked_address(self, host: str, port: int) -> str:
        # Without a limit of ours: a lookup cannot be cancelled, and its user keeps the slot until the resolver gives up.
        lookup = partial(socket.getaddrinfo, host.strip("[]"), port, type=socket.SOCK_STREAM)
        try:
            found = await self._threads.run(lookup)
        except (OSError, UnicodeError):
            raise Invalid(f"there is no host named {host}") from None
        own = own_addresses()
        addresses = [str(entry[4][0]) for entry in found]
        # One forbidden address is enough to refuse: we cannot control which of them git would use.
        if not addresses or not all(is_public(address, own, self._allowed) for address in addresses):
            raise Invalid(f"{host} cannot be reached from here; type the branch")
        address = addresses[0]
        return f"[{address}]" if ":" in address else address

    def _run(self, url: str, pin: str, folder: Path, username: str, token: str) -> tuple[int, str]:
        program = shutil.which("git")
        if program is None or _version(program) < _OLDEST_GIT:
            raise Unavailable("git 2.37 or newer is needed here to list branches")
        settings = {
            "http.curloptResolve": pin,
            "http.followRedirects": "false",
            "http.lowSpeedLimit": "1",
            "http.lowSpeedTime": "10",
            "core.hooksPath": "/nonexistent",
        }
        if self._ca:
            (folder / "ca.pem").write_text(_system_bundle() + self._ca)
            settings["http.sslCAInfo"] = str(folder / "ca.pem")
        nobody = _NOBODY if os.geteuid() == 0 else None
        read_fd = -1
        if token:
            # Passed through a pipe, so that it is neither in a file nor in the arguments nor in the environment.
            read_fd, write_fd = os.pipe()
            os.write(write_fd, f"username={username}\npassword={token}\n".encode())
            os.close(write_fd)
            if nobody is not None:
                os.fchown(read_fd, nobody, nobody)
            # By path: a plain /bin/sh redirects only from single-digit descriptors.
            settings["credential.helper"] = f"!cat /dev/fd/{read_fd}; :"
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        try:
            child = subprocess.Popen(
                [*_LIMITED, program, *words, "ls-remote", "--symref", "--", url, "HEAD", "refs/heads/*"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(),
                cwd=folder,
                start_new_session=True,
                pass_fds=(read_fd,) if token else (),
                user=nobody,
                group=nobody,
                extra_groups=None if nobody is None else [],
            )
        finally:
            if read_fd >= 0:
                os.close(read_fd)
        with child:
            return _bounded(child)


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ALLOW_PROTOCOL": "https:http",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/true",
        "GIT_CEILING_DIRECTORIES": "/",
    }


def _bounded(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert child.stdout is not None
    output, give_up = b"", time.monotonic() + _TIMEOUT_S
    try:
        while True:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, give_up - time.monotonic()))
            if not ready:
                raise Invalid("the host does not answer: check the URL, or type the branch")
            data = os.read(child.stdout.fileno(), 65536)
            if not data:
                return child.wait(_TIMEOUT_S), output.decode(errors="replace")
            output += data
            if len(output) > _MOST_OUTPUT:
                raise Invalid("the repository has too many branches to list: type the branch")
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def _version(program: str) -> tuple[int, ...]:
    output = subprocess.run([program, "--version"], env=_environment(), capture_output=True, check=False).stdout
    found = re.search(rb"(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _host_and_port(url: RepositoryUrl) -> tuple[str, int]:
    host, colon, port = url.host.rpartition(":")
    if colon and port.isdigit() and not host.endswith(":"):
        return host, int(port)
    return url.host, _PORTS[url.scheme]


def _system_bundle() -> str:
    for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
        with contextlib.suppress(OSError):
            return Path(path).read_text(encoding="utf-8", errors="replace") + "\n"
    return ""


def _explained(output: str, url: RepositoryUrl, has_token: bool) -> str:
    if re.search(r"[Oo]ut of memory|died of signal", output):
        return f"{url.host} sends too much: check the URL, or type the branch"
    if re.search(r"Authentication failed|could not read (?:Username|Password)|error: 40[13]", output):
        if has_token:
            return f"{url.host} refused your credential for this repository"
        return (
            f"{url.host} wants a credential: add one on your account page, or with `codehub git-auth add {url.host}`"
        )
    if re.search(r"not found|not valid: is this a git repository|error: 404", output):
        return f"there is no repository at {url.url}"
    if re.search(r"SSL|certificate", output):
        return f"the certificate of {url.host} is not trusted here"
    if re.search(r"redirect|error: 30\d", output):
        return f"{url.url} has moved: use its new address"
    return f"{url.host} cannot be reached: check the URL"
