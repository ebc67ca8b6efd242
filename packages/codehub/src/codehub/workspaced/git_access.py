"""Gives git in this workspace access to CodeHub's credentials: sockets for git's helper and OpenSSH, and git's settings.

Everything is in the runtime folder of this start and in the environment; nothing is written into the home. The helper is
configured for each known host in a file that git reads last, and replaces other helpers for that host: a helper such as
`store` would receive the password and write it into the home. For all other hosts, git asks it after the user's own
helpers, and it only prints that CodeHub has no credential.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys

from . import agent
from .link import Link, LinkError
from .start_environment import git_config_path

_SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_LONGEST_QUESTION = 64 << 10


def configuration(helper: str, hosts: list[str], ca_file: str) -> str:
    """Return git's configuration. `hosts` are `https://HOST[:PORT]`."""
    lines = [f'[http]\n\tsslCAInfo = "{ca_file}"'] if ca_file else []
    lines.append(f'[credential]\n\thelper = "{helper} hint"')
    for host in hosts:
        if not any(char in host for char in '"\\\n\r\0 ]'):
            lines.append(f'[credential "{host}"]\n\thelper =\n\thelper = "{helper}"')
    return "\n".join(lines) + "\n"


class GitAccess:
    def __init__(self, runtime: str, link: Link) -> None:
        self._runtime = runtime
        self._link = link
        own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "credential_helper.py")
        words = [sys.executable, "-I", "-S", "-B", own, os.path.join(runtime, "credential.sock")]
        self._helper = "!" + shlex.join(words).replace("\\", "\\\\").replace('"', '\\"')
        self.configure([], "")

    def configure(self, hosts: list[str], ca: str) -> None:
        """Write git's configuration. `ca` are certificates that git trusts besides the system's."""
        ca_file = ""
        if ca:
            ca_file = os.path.join(self._runtime, "ca.pem")
            write_file(ca_file, _system_certificates() + ca)
        write_file(git_config_path(self._runtime), configuration(self._helper, hosts, ca_file))

    async def run(self) -> None:
        """Serve both sockets until cancelled."""
        old = os.umask(0o177)
        try:
            servers = [
                await asyncio.start_unix_server(self._credential, self._fresh("credential.sock")),
                await asyncio.start_unix_server(self._agent, self._fresh("agent.sock")),
            ]
        finally:
            os.umask(old)
        try:
            await asyncio.Event().wait()
        finally:
            for server in servers:
                server.close()

    def _fresh(self, name: str) -> str:
        path = os.path.join(self._runtime, name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return path

    async def _agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agent.serve_client(self._link, reader, writer)

    async def _credential(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readuntil(b"\n"))
            names = ("protocol", "host", "path")
            fields: dict[str, object] = {name: str(request.get(name, ""))[:_LONGEST_QUESTION] for name in names}
            try:
                found = await self._link.ask("credential", fields)
            except LinkError as error:
                found = {"error": str(error)}
            writer.write(json.dumps(found).encode())
            await writer.drain()
        except (OSError, ValueError, AttributeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def _system_certificates() -> str:
    for path in _SYSTEM_BUNDLES:
        with contextlib.suppress(OSError):
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read() + "\n"
    return ""


def write_file(path: str, content: str) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(path + ".new", path)
