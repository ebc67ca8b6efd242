"""The reverse proxies of `deploy/` as shipped, on separate ports, in front of two listeners.

Only addresses, ports and certificates are replaced. Everything else in the files is what an operator gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testing.ports import free_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
DASHBOARD_HOST: Final = "codehub.example.org"
WORKSPACE_HOST: Final = "workspaces.example.net"
_TIMEOUT_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Edge:
    port: int
    trust: ssl.SSLContext


@asynccontextmanager
async def nginx(place: Path, api: int | str, workspaces: int | str) -> AsyncIterator[Edge]:
    """`api` and `workspaces` are ports of this machine, or other addresses for nginx's `server`."""
    port = free_port()
    await _certificate(place)
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for shipped, where in (("127.0.0.1:8000", api), ("127.0.0.1:8001", workspaces)):
        text = text.replace(shipped, where if isinstance(where, str) else f"127.0.0.1:{where}")
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = re.sub(r"/etc/ssl/codehub/\S+\.(pem|key);", rf"{place}/edge.\1;", text)
    temporary = "".join(
        f"{name}_temp_path {place}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{text}\n}}\n"
    )
    async with _running(["nginx", "-p", str(place), "-c", str(place / "nginx.conf")], place, {}):
        yield Edge(port, await _answering(port, place))


@asynccontextmanager
async def caddy(place: Path, api_port: int, workspace_port: int) -> AsyncIterator[Edge]:
    port = free_port()
    await _certificate(place)
    # Caddy would fetch certificates for these names. Here it gets one, and no port 80 to redirect from.
    head = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\thttps_port {port}\n\tskip_install_trust\n}}\n"
    tls = f"\ttls {place}/edge.pem {place}/edge.key\n"
    text = re.sub(r"^(\{\$\S+\} \{\n)", rf"\1{tls}", (DEPLOY / "Caddyfile").read_text(encoding="utf-8"), flags=re.M)
    assert text.count(tls) == 2, "the two sites of the Caddyfile"
    (place / "Caddyfile").write_text(head + text)
    environment = {
        "CODEHUB_API": f"127.0.0.1:{api_port}",
        "CODEHUB_PROXY": f"127.0.0.1:{workspace_port}",
        "HOME": str(place),
        "XDG_DATA_HOME": str(place),
    }
    program = Path(sys.executable).with_name("caddy")
    command = [str(program), "run", "--config", str(place / "Caddyfile"), "--adapter", "caddyfile"]
    async with _running(command, place, environment):
        yield Edge(port, await _answering(port, place))


async def _certificate(place: Path) -> None:
    """Create a self-signed certificate for both names."""
    names = f"subjectAltName=DNS:{DASHBOARD_HOST},DNS:{WORKSPACE_HOST}"
    process = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "2", "-subj", "/CN=codehub test", "-addext", names),
        *("-keyout", str(place / "edge.key"), "-out", str(place / "edge.pem")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


@asynccontextmanager
async def _running(command: list[str], place: Path, environment: dict[str, str]) -> AsyncIterator[None]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    with (place / "edge.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env={"PATH": path, **environment}
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answering(port: int, place: Path) -> ssl.SSLContext:
    """Wait until it completes a TLS handshake."""
    trust = ssl.create_default_context(cafile=str(place / "edge.pem"))
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=DASHBOARD_HOST)
        except OSError:
            if time.monotonic() > deadline:
                raise AssertionError((place / "edge.log").read_text(errors="replace")) from None
            await asyncio.sleep(0.05)
        else:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return trust
