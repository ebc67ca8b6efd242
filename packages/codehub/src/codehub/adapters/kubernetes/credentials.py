"""Bearer tokens that change: files that the kubelet rotates, and exec plugins whose tokens expire.

Each client has one `Credentials`. It returns the current token and discards its cache if the API server rejects it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from codehub.adapters.kubernetes.kubeconfig import ClusterAccess, ExecPlugin
from codehub.domain.errors import BackendDown

# client-go reads token files once a minute: the kubelet replaces them well before they expire.
_FILE_BELIEVED_FOR = timedelta(minutes=1)
# A token that is about to expire may expire in transit.
_BEFORE_EXPIRY = timedelta(seconds=30)
_PLUGIN_TIMEOUT_S = 60.0
_MOST_OUTPUT = 1 << 20


@dataclass(frozen=True, slots=True)
class _Known:
    token: str
    until: datetime | None
    certificate: tuple[bytes, bytes] | None = None


def utcnow() -> datetime:
    return datetime.now(UTC)


class Credentials:
    def __init__(self, access: ClusterAccess, now: Callable[[], datetime] = utcnow) -> None:
        self._access = access
        self._now = now
        self._known: _Known | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """Return the token, or an empty string if the user authenticates with a certificate."""
        return (await self._current()).token

    async def certificate(self) -> tuple[bytes, bytes] | None:
        """Return the client certificate and key of an exec plugin, as PEM."""
        return (await self._current()).certificate

    def refuse(self) -> None:
        """Discard the cached credentials after the API server answered 401."""
        self._known = None

    async def _current(self) -> _Known:
        if self._access.exec_plugin is None and self._access.token_file is None:
            return _Known(self._access.token, None)
        async with self._lock:
            known = self._known
            if known is None or (known.until is not None and self._now() >= known.until):
                known = self._known = await self._renewed()
            return known

    async def _renewed(self) -> _Known:
        plugin, file = self._access.exec_plugin, self._access.token_file
        if plugin is not None:
            return parse_credential(await run_plugin(plugin, self._access), plugin)
        assert file is not None
        try:
            token = (await asyncio.to_thread(file.read_text, encoding="ascii")).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BackendDown(f"the Kubernetes token {file} cannot be read: {error}") from error
        return _Known(token, self._now() + _FILE_BELIEVED_FOR)


async def run_plugin(plugin: ExecPlugin, access: ClusterAccess) -> bytes:
    info: dict[str, object] = {"interactive": False}
    if plugin.provide_cluster_info:
        info["cluster"] = await asyncio.to_thread(_cluster_info, access)
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": info}
    env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MOST_OUTPUT,
        )
    except OSError as error:
        hint = f" {plugin.install_hint}" if plugin.install_hint else ""
        raise BackendDown(f"the exec plugin {plugin.command} cannot be run: {error.strerror}.{hint}") from error
    try:
        async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise BackendDown(f"the exec plugin {plugin.command} did not answer in {_PLUGIN_TIMEOUT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if process.returncode != 0:
        output = err.decode("utf-8", "replace").strip()[-500:]
        raise BackendDown(f"the exec plugin {plugin.command} failed with code {process.returncode}: {output}")
    return out


def _cluster_info(access: ClusterAccess) -> dict[str, object]:
    """Return `spec.cluster` of an ExecCredential: how the plugin itself can reach the cluster."""
    try:
        authority = b"" if access.authority is None else access.authority.read()
    except OSError as error:
        raise BackendDown(f"the cluster's certificate authority cannot be read: {error}") from error
    optional = {
        "tls-server-name": access.server_name,
        "insecure-skip-tls-verify": access.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": access.proxy_url,
    }
    return {"server": access.server, **{name: value for name, value in optional.items() if value}}


def parse_credential(raw: bytes, plugin: ExecPlugin) -> _Known:
    """Parse an ExecCredential's status. Errors never contain its token."""
    try:
        document = json.loads(raw)
        status = document["status"]
        token = str(status.get("token") or "")
        certificate = status.get("clientCertificateData"), status.get("clientKeyData")
        expires = status.get("expirationTimestamp")
        until = datetime.fromisoformat(expires) - _BEFORE_EXPIRY if expires else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackendDown(f"the exec plugin {plugin.command} printed no ExecCredential") from error
    if document.get("apiVersion") != plugin.api_version:
        raise BackendDown(
            f"the exec plugin {plugin.command} answered as {document.get('apiVersion')}, not {plugin.api_version}"
        )
    pair = None
    if certificate[0] and certificate[1]:
        pair = (str(certificate[0]).encode(), str(certificate[1]).encode())
    if not token and pair is None:
        raise BackendDown(f"the exec plugin {plugin.command} gave neither a token nor a certificate")
    return _Known(token, until, pair)
