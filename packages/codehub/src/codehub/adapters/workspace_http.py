"""An httpx transport to a workspace's Unix socket. It connects like `workspace_socket`, so no link is followed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import httpcore
import httpx
from anyio.abc import UNIXSocketStream

from codehub.adapters.workspace_socket import open_workspace_socket


class WorkspaceTransport(httpx.AsyncHTTPTransport):
    """The transport. `uid` is the user who must be listening at `path`; None means CodeHub's own."""

    def __init__(self, path: str, uid: int | None) -> None:
        super().__init__(trust_env=False)
        # httpx cannot pass a network backend to its pool.
        self._pool = httpcore.AsyncConnectionPool(uds=path, network_backend=_Backend(uid))


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, uid: int | None) -> None:
        self._uid = uid

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                connected = await open_workspace_socket(path, self._uid)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(await UNIXSocketStream.from_socket(connected))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return None
