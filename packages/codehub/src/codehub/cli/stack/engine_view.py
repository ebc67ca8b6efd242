"""A read-only view of the Docker engine for API and proxy, which are not root.

Write access to the engine's socket gives root on its machine, so API and proxy do not get it. `up` serves them another
socket that only forwards queries about this installation's containers: no method other than GET, no file of a container, no
container of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import structlog

from codehub.adapters.docker.engine import INSTALLATION
from codehub.adapters.embedded.account import Account, myself
from codehub.adapters.embedded.layout import readable_dir, socket_dir

log = structlog.get_logger()

_VERSION = re.compile(r"/v\d+\.\d+(?=/)")
_PLAIN = re.compile(r"/(_ping|version|info|images/[A-Za-z0-9][A-Za-z0-9._/:@-]*/json)")
_LISTS = re.compile(r"/(containers/json|events)")
_CONTAINER = re.compile(r"/containers/(?P<ref>[A-Za-z0-9][A-Za-z0-9_.-]{0,127})/(json|logs|stats)")
_HEAD_TIMEOUT_S = 10.0
_LONGEST_HEAD = 16 << 10
_LONGEST_INSPECT = 1 << 20
_CHUNK = 64 << 10
_CONNECTIONS = 512


@dataclass(frozen=True, slots=True)
class Question:
    """A request that may be forwarded; `container` must belong to this installation."""

    target: str
    container: str | None = None


def question_of(head: bytes, installation: str) -> Question | None:
    """Parse a request's head. Returns None if the request is not allowed."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[0] != "GET" or words[2] != "HTTP/1.1" or not words[1].isprintable():
        return None
    target = words[1]
    parts = urlsplit(target)
    # The engine might decode an escape in the path differently than we do.
    if parts.scheme or parts.netloc or parts.fragment or "%" in parts.path or ".." in parts.path:
        return None
    path = _VERSION.sub("", parts.path, count=1)
    if _PLAIN.fullmatch(path):
        return Question(target)
    if _LISTS.fullmatch(path):
        return Question(target) if _only_ours(parts.query, installation) else None
    if found := _CONTAINER.fullmatch(path):
        return Question(target, found["ref"])
    return None


def _only_ours(query: str, installation: str) -> bool:
    try:
        # The engine reads the first of several, also if it is empty, which would mean no filter.
        given = parse_qs(query, keep_blank_values=True, strict_parsing=True).get("filters", [])
        labels = json.loads(given[0]).get("label") if len(given) == 1 else None
    except (ValueError, AttributeError):
        return False
    return isinstance(labels, list) and f"{INSTALLATION}={installation}" in labels


class EngineView:
    def __init__(self, engine_socket: str, installation: str) -> None:
        self._engine_socket = engine_socket
        self._installation = installation
        self._slots = asyncio.Semaphore(_CONNECTIONS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection: nothing after its head reaches the engine."""
        try:
            async with self._slots:
                async with asyncio.timeout(_HEAD_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(head, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has disconnected, or is not one of ours
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = question_of(head, self._installation)
        if question is None:
            log.warning("a request to the Docker engine was refused", request=head[:200].decode("latin-1"))
            writer.write(_refusal(403, "this is a read-only view of CodeHub's own containers"))
        elif question.container is not None and (refusal := await self._refused(question.container)):
            writer.write(refusal)
        else:
            try:
                engine_reader, engine_writer = await asyncio.open_unix_connection(self._engine_socket)
            except OSError as error:
                writer.write(_silent(error))
            else:
                with contextlib.closing(engine_writer):
                    engine_writer.write(_request(question.target))
                    await _until_either_ends(engine_reader, reader, writer)
        await writer.drain()

    async def _refused(self, container: str) -> bytes:
        """Return the answer to a request about a container that is not known to be ours, else nothing."""
        try:
            ours = await self._is_ours(container)
        except OSError as error:
            # Not 404, which would mean that the container is gone.
            return _silent(error)
        return b"" if ours else _refusal(404, f"No such container: {container}")

    async def _is_ours(self, container: str) -> bool:
        reader, writer = await asyncio.open_unix_connection(self._engine_socket)
        with contextlib.closing(writer):
            # HTTP/1.0: the answer is not chunked, and ends with the connection.
            writer.write(_request(f"/containers/{container}/json", version="1.0"))
            answer = bytearray()
            while piece := await reader.read(_CHUNK):
                answer += piece
                if len(answer) > _LONGEST_INSPECT:
                    return False
        try:
            labels = json.loads(bytes(answer).partition(b"\r\n\r\n")[2])["Config"]["Labels"] or {}
            return bool(labels.get(INSTALLATION) == self._installation)
        except (ValueError, KeyError, TypeError, AttributeError):
            return False


async def _until_either_ends(
    engine: asyncio.StreamReader, asker: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Forward the answer. A client that disconnects ends a stream that is currently silent."""

    async def pass_on() -> None:
        while piece := await engine.read(_CHUNK):
            writer.write(piece)
            await writer.drain()

    tasks = [asyncio.create_task(pass_on()), asyncio.create_task(asker.read(1))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request(target: str, version: str = "1.1") -> bytes:
    return f"GET {target} HTTP/{version}\r\nHost: docker\r\nConnection: close\r\n\r\n".encode("latin-1")


def _silent(error: OSError) -> bytes:
    return _refusal(502, f"the Docker engine does not answer: {error.strerror}")


def _refusal(status: int, message: str) -> bytes:
    body = json.dumps({"message": message}).encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def engine_view(engine_host: str, installation: str, data_dir: Path, account: Account) -> AsyncIterator[str]:
    """Serve the DOCKER_HOST for API and proxy while this context is open."""
    place = readable_dir(socket_dir(data_dir, "engine", myself()), account) / "engine.sock"
    place.unlink(missing_ok=True)
    view = EngineView(engine_host.removeprefix("unix://"), installation)
    server = await asyncio.start_unix_server(view.serve, path=place, limit=_LONGEST_HEAD)
    try:
        os.chown(place, -1, account.gid, follow_symlinks=False)
        place.chmod(0o660)
        yield f"unix://{place}"
    finally:
        server.close()
        place.unlink(missing_ok=True)
