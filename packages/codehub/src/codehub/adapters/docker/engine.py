"""The Docker engine's API: the connection, names and labels of our objects, and the translation of its errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import aiodocker
import aiohttp

from codehub.domain.errors import BackendDown, CodeHubError, Conflict, OutOfSpace, Terminal, Transient

INSTALLATION = "codehub.installation"
WORKSPACE = "codehub.workspace"
ROLE = "codehub.role"
DEFAULT_HOST = "unix:///var/run/docker.sock"
_QUICK_S = 30.0
FOREVER = aiohttp.ClientTimeout(total=None, sock_connect=10)


class Engine:
    """One engine as seen by one installation. Objects with another installation's label are not ours."""

    def __init__(self, host: str, installation_id: str) -> None:
        self.host = host or DEFAULT_HOST
        self.installation_id = installation_id
        self._docker: aiodocker.Docker | None = None

    @property
    def is_local(self) -> bool:
        return self.host.startswith("unix://")

    def check_local(self) -> None:
        """Check that the engine is local.

        Containers are reached through Unix sockets in a directory shared with the engine.
        """
        if not self.is_local:
            raise Terminal(
                f"the Docker engine at {self.host} is not reached through a Unix socket: CodeHub runs workspaces only on "
                "an engine of its own machine. Set DOCKER_HOST to the engine's socket (unix:///var/run/docker.sock), run "
                "CodeHub on the engine's machine, or use CODEHUB_RUNTIME=kubernetes"
            )

    @property
    def docker(self) -> aiodocker.Docker:
        if self._docker is None:
            self._docker = aiodocker.Docker(url=self.host, timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))
        return self._docker

    async def close(self) -> None:
        if self._docker is not None:
            await self._docker.close()
            self._docker = None

    async def ping(self) -> None:
        with translated("answer"):
            async with asyncio.timeout(5):
                await self.docker.version()

    def labels(self, workspace_id: str, role: str) -> dict[str, str]:
        return {INSTALLATION: self.installation_id, WORKSPACE: workspace_id, ROLE: role}

    def filters(self, role: str, workspace_id: str | None = None) -> str:
        labels = [f"{INSTALLATION}={self.installation_id}", f"{ROLE}={role}"]
        if workspace_id is not None:
            labels.append(f"{WORKSPACE}={workspace_id}")
        return json.dumps({"label": labels})

    def check_ours(self, labels: Mapping[str, str] | None, name: str) -> None:
        owner = (labels or {}).get(INSTALLATION)
        if owner != self.installation_id:
            raise Conflict(f"{name} on the Docker engine belongs to another installation ({owner}): it is left alone")

    async def get(self, path: str, /, **params: str) -> Any:
        """Return the answer's JSON, or None if the object does not exist."""
        return await self.send("GET", path, absent_is_none=True, params=params)

    async def send(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        params: Mapping[str, str] | None = None,
        absent_is_none: bool = False,
        timeout_s: float = _QUICK_S,
    ) -> Any:
        with translated(f"{method} {path}"):
            try:
                async with asyncio.timeout(timeout_s):
                    data = json.dumps(body) if body is not None else None
                    async with self._asked(path, method, dict(params or {}), data, "application/json") as response:
                        raw = await response.read()
                        return json.loads(raw) if raw.strip() else None
            except aiodocker.DockerError as error:
                if error.status == 404 and absent_is_none:
                    return None
                raise

    async def remove(self, path: str, /, **params: str) -> None:
        """Remove an object. Succeeds if it is absent or already being removed."""
        with translated(f"remove {path}"):
            try:
                async with asyncio.timeout(60):
                    async with self._asked(path, "DELETE", params):
                        pass
            except aiodocker.DockerError as error:
                in_progress = error.status == 409 and "already in progress" in str(error)
                if error.status != 404 and not in_progress:
                    raise

    async def has_file(self, container: str, path: str) -> bool:
        """Return whether a path exists in a container, running or not."""
        return await self.read_archive(container, path, 0) is not None

    async def read_archive(self, container: str, path: str, most: int) -> bytes | None:
        """Return the first `most` bytes of a tar of a path in a container, running or not; None if it does not exist."""
        try:
            async with self.stream(f"containers/{container}/archive", path=path) as response:
                raw = b""
                while len(raw) < most and (part := await response.content.read(most - len(raw))):
                    raw += part
                return raw
        except Transient as error:
            if isinstance(error.__cause__, aiodocker.DockerError) and error.__cause__.status == 404:
                return None
            raise

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, method: str = "GET", data: object | None = None, /, **params: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with bodies of any length, without a timeout other than the connection's."""
        with translated(f"{method} {path}"):
            async with self._asked(path, method, params, data, "application/x-tar") as response:
                yield response

    @contextlib.asynccontextmanager
    async def _asked(
        self, path: str, method: str, params: Mapping[str, str], data: object | None = None, kind: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"content-type": kind} if data is not None else None
        async with self.docker._query(
            path, method, params=dict(params), data=data, headers=headers, timeout=FOREVER
        ) as response:
            try:
                yield response
            finally:
                # The library leaves this to its caller: an interrupted stream would keep its connection forever.
                response.close()


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except CodeHubError:
        raise
    except aiodocker.DockerError as error:
        text = str(error.message)
        if isinstance(error.__context__, aiohttp.ClientConnectorError):
            # The driver's text names the socket twice.
            raise BackendDown(f"the Docker engine does not answer: {error.__context__.os_error.strerror}") from error
        if error.status >= 900 or error.status in (502, 503):
            raise BackendDown(f"the Docker engine does not answer: {text}") from error
        if "no space left" in text or "disk quota" in text:
            raise OutOfSpace(f"the Docker engine has no space left: {text}") from error
        raise Transient(f"the Docker engine refused to {doing}: {text} ({error.status})") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        # A timeout has no text of its own.
        raise BackendDown(f"the Docker engine does not answer: {str(error) or 'no answer in time'}") from error
