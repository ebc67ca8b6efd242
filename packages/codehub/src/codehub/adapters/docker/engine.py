"""The Docker engine's API: the connection, names and labels of our objects, and the translation of its errors.

The client library is imported only if an engine may be there: every process of an installation knows this module, and
importing the library takes a fifth of a proxy's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from codehub.domain.errors import BackendDown, CodeHubError, Conflict, OutOfSpace, Terminal, Transient

if TYPE_CHECKING:
    import aiodocker
    import aiohttp

INSTALLATION = "codehub.installation"
WORKSPACE = "codehub.workspace"
ROLE = "codehub.role"
DEFAULT_HOST = "unix:///var/run/docker.sock"
_QUICK_S = 30.0
_CONNECT_S = 10.0


class Engine:
    """One engine as seen by one installation. Objects with another installation's label are not ours."""

    def __init__(self, host: str, installation_id: str) -> None:
        self.host = host or DEFAULT_HOST
        self.installation_id = installation_id
        self._docker: aiodocker.Docker | None = None
        if self._may_be_there():
            import aiodocker  # now, because a later import would delay whatever else the event loop does  # noqa: F401

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
            import aiodocker
            import aiohttp

            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
            self._docker = aiodocker.Docker(url=self.host, timeout=timeout)
        return self._docker

    def _may_be_there(self) -> bool:
        return not self.is_local or os.path.exists(self.host.removeprefix("unix://"))

    @contextlib.contextmanager
    def _request(self, doing: str) -> Iterator[None]:
        if not self._may_be_there():
            raise BackendDown(f"the Docker engine does not answer: there is no socket at {self.host}")
        with translated(doing):
            yield

    async def close(self) -> None:
        if self._docker is not None:
            await self._docker.close()
            self._docker = None

    async def ping(self) -> None:
        with self._request("answer"):
            async with asyncio.timeout(5):
                await self.docker.version()

    async def filters_calls(self) -> bool:
        """Return whether the kernel can filter system calls. Without, the engine refuses containers with a filter."""
        options = (await self.get("info") or {}).get("SecurityOptions") or []
        return any(str(option).startswith("name=seccomp") for option in options)

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
        with self._request(f"{method} {path}"):
            from aiodocker import DockerError

            try:
                async with asyncio.timeout(timeout_s):
                    data = json.dumps(body) if body is not None else None
                    async with self._asked(path, method, dict(params or {}), data, "application/json") as response:
                        raw = await response.read()
                        return json.loads(raw) if raw.strip() else None
            except DockerError as error:
                if error.status == 404 and absent_is_none:
                    return None
                raise

    async def remove(self, path: str, /, **params: str) -> None:
        """Remove an object. Succeeds if it is absent or already being removed."""
        with self._request(f"remove {path}"):
            from aiodocker import DockerError

            try:
                async with asyncio.timeout(60):
                    async with self._asked(path, "DELETE", params):
                        pass
            except DockerError as error:
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
            from aiodocker import DockerError

            if isinstance(error.__cause__, DockerError) and error.__cause__.status == 404:
                return None
            raise

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, method: str = "GET", data: object | None = None, /, **params: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with bodies of any length, without a timeout other than the connection's."""
        with self._request(f"{method} {path}"):
            async with self._asked(path, method, params, data, "application/x-tar") as response:
                yield response

    @contextlib.asynccontextmanager
    async def _asked(
        self, path: str, method: str, params: Mapping[str, str], data: object | None = None, kind: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

        headers = {"content-type": kind} if data is not None else None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        async with self.docker._query(
            path, method, params=dict(params), data=data, headers=headers, timeout=timeout
        ) as response:
            try:
                yield response
            finally:
                # The library leaves this to its caller: an interrupted stream would keep its connection forever.
                response.close()


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    from aiodocker import DockerError
    from aiohttp import ClientConnectorError, ClientError

    try:
        yield
    except CodeHubError:
        raise
    except DockerError as error:
        text = str(error.message)
        if isinstance(error.__context__, ClientConnectorError):
            # The driver's text names the socket twice.
            raise BackendDown(f"the Docker engine does not answer: {error.__context__.os_error.strerror}") from error
        if error.status >= 900 or error.status in (502, 503):
            raise BackendDown(f"the Docker engine does not answer: {text}") from error
        if "no space left" in text or "disk quota" in text:
            raise OutOfSpace(f"the Docker engine has no space left: {text}") from error
        raise Transient(f"the Docker engine refused to {doing}: {text} ({error.status})") from error
    except (ClientError, OSError, TimeoutError) as error:
        # A timeout has no text of its own.
        raise BackendDown(f"the Docker engine does not answer: {str(error) or 'no answer in time'}") from error
