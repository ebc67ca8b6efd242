"""The listener: accepts connections, checks the secret of this start, answers. A failing connection affects no other."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import signal
import socket
import sys
import traceback

from .app import App, Options
from .errors import RequestError
from .http1 import Connection, Request, as_error, parse_head, send

_MOST_CONNECTIONS = 4096


class Server:
    def __init__(self, app: App, secret: str) -> None:
        self._app = app
        self._secret = f"Bearer {secret}".encode()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.05)  # no descriptors left; open connections continue
                continue
            if len(self._tasks) >= _MOST_CONNECTIONS:
                sock.close()
                continue
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(Connection(sock)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while await self._one(connection):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        except RequestError as error:
            with contextlib.suppress(OSError):
                await send(connection, as_error(error), keep_alive=False, head_only=False)
        except Exception:  # noqa: BLE001 - a bug in one request is logged and ends only that connection
            traceback.print_exc()
        finally:
            connection.sock.close()

    async def _one(self, connection: Connection) -> bool:
        """Handle one request, and return whether another may follow."""
        head = await connection.read_head()
        if head is None:
            return False
        request = parse_head(head, connection)
        given = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, self._secret):
            raise RequestError(401, "UNAUTHORIZED", "this needs the secret of this start")
        try:
            response = await self._app.handle(request)
        except RequestError as error:
            return await self._refuse(request, error)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            text = f"{error.filename or 'workspaced'}: {error.strerror or error}"
            return await self._refuse(request, RequestError(500, "INTERNAL_ERROR", text))
        if response is None:
            return False
        return await send(connection, response, request.keep_alive, request.method == "HEAD")

    async def _refuse(self, request: Request, error: RequestError) -> bool:
        # Unread bytes of a body would be parsed as the next request.
        keep = request.keep_alive and not request.has_body
        await send(request.connection, as_error(error), keep, request.method == "HEAD")
        if request.has_body:
            await request.connection.linger()
        return keep


async def serve(options: Options, secret: str, listener: socket.socket, ready: int | None = None) -> None:
    app = App(options)
    app.terminals.take_over()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGCHLD, app.reap)
    tasks = [
        loop.create_task(Server(app, secret).run(listener)),
        loop.create_task(app.sample()),
        loop.create_task(app.git.run()),
    ]
    if ready is not None:
        os.write(ready, b"1")
        os.close(ready)
    waiting = [*tasks, loop.create_task(stopped.wait())]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if stopped.is_set():
        app.secrets.remove()
    for task in done:
        if task in tasks and not task.cancelled():
            error = task.exception()
            if error is not None:
                traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
                raise SystemExit(1)
