"""One client of the daemon that sends what no client should: the daemon stays bounded, and others are served."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sari.daemon import connection
from sari.daemon.calls import Calls
from sari.daemon.connection import Connection
from sari.daemon.root_access import RootAccess
from sari.daemon.service import Service
from sari.daemon.sessions import Session, Sessions
from sari.daemon.workspaces import Workspaces
from sari.protocol import jsonrpc
from sari.protocol.tooling import ToolResult
from sari.registry.layout import Layout

_DEADLINE_S = 60.0


class Held:
    """A workspace whose calls wait until they are released or cancelled."""

    def __init__(self) -> None:
        self.entered: list[object] = []
        self.release = threading.Event()

    def call(self, _tool: str, arguments: Any, call: Any) -> ToolResult:
        self.entered.append(arguments.get("query"))
        while not self.release.wait(0.01) and not call.cancelled:
            pass
        return ToolResult("cancelled" if call.cancelled else "done", {})

    def close(self) -> None:
        return None


def calls_on(held: Held, folder: Path, threads: ThreadPoolExecutor, most: int = 12) -> Calls:
    workspaces = Workspaces(cast("Any", lambda _root, _data: held), folder, threads)
    return Calls(workspaces, threads, most, RootAccess(Layout(str(folder / "server.json")), "/nonexistent"), 600.0)


def service_of(calls: Calls, sessions: Sessions, touch: Callable[[], None] = lambda: None) -> SimpleNamespace:
    return SimpleNamespace(
        token="t" * 32, connections=set(), strangers={}, sessions=sessions, calls=calls, draining=False,
        touch=touch, someone_left=lambda: None, note_defect=lambda _error: None, identity=dict,
        begin_session=lambda name, *_: sessions.take(name, "", 0.0),
    )  # fmt: skip


def request(number: int, query: str, root: Path) -> jsonrpc.Message:
    params = {"name": "search", "arguments": {"query": query}, "_meta": {"sari/root": str(root)}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


async def until(is_true: Any) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not is_true():
            await asyncio.sleep(0.01)


def test_a_stranger_does_not_keep_the_daemon_from_ending_when_it_is_unused(tmp_path: Path) -> None:
    async def run() -> None:
        touched: list[None] = []
        with ThreadPoolExecutor(12) as threads:
            calls = calls_on(Held(), tmp_path, threads)
            service = cast("Service", service_of(calls, Sessions(600.0), lambda: touched.append(None)))
            server = await asyncio.get_running_loop().create_server(lambda: Connection(service), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            hello = {"jsonrpc": "2.0", "id": 0, "method": "sari/hello", "params": {"nonce": "a" * 32}}
            writer.write(jsonrpc.encode(hello) + b"\n")
            assert b"result" in await reader.readline()
            assert not touched
            identify = {"jsonrpc": "2.0", "id": 0, "method": "sari/identify", "params": {"token": "t" * 32}}
            writer.write(jsonrpc.encode(identify) + b"\n")
            assert b"result" in await reader.readline()
            assert touched
            writer.close()
            server.close()

    asyncio.run(run())


def test_a_client_that_sends_many_calls_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def run() -> None:
        held = Held()
        with ThreadPoolExecutor(12) as threads:
            calls = calls_on(held, tmp_path, threads)
            flood = Session("flood", "", 0.0)
            tasks = [
                asyncio.create_task(calls.answer(request(n, "flood", tmp_path), flood, "", None)) for n in range(200)
            ]
            await until(lambda: held.entered.count("flood") == 4)
            other = asyncio.create_task(
                calls.answer(request(1, "other", tmp_path), Session("other", "", 0.0), "", None)
            )
            await until(lambda: "other" in held.entered)
            assert held.entered.count("flood") == 4
            held.release.set()
            async with asyncio.timeout(_DEADLINE_S):
                answers = await asyncio.gather(other, *tasks)
            assert all("result" in answer for answer in answers)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["shims", "http"])
def test_a_client_with_many_sessions_keeps_no_other_waiting(tmp_path: Path, kind: str) -> None:
    def session(number: int, client: str, process: int) -> Session:
        return Session(str(number), client, 0.0, http=kind == "http", process=process if kind == "shims" else 0)

    async def run() -> None:
        held = Held()
        with ThreadPoolExecutor(32) as threads:
            calls = calls_on(held, tmp_path, threads, 32)
            tasks = []
            # Three clients with many sessions, each of which may run four calls.
            for process in (100, 101, 102):
                for number in range(8):
                    one = session(1_000 * process + number, f"flood {process}", process)
                    tasks += [
                        asyncio.create_task(calls.answer(request(n, f"flood {process}", tmp_path), one, "", None))
                        for n in range(4)
                    ]
            await until(lambda: len(held.entered) == 24)
            quiet = [
                asyncio.create_task(
                    calls.answer(request(1, f"quiet {n}", tmp_path), session(n, f"quiet {n}", 200 + n), "", None)
                )
                for n in range(6)
            ]
            page = asyncio.create_task(calls.call(str(tmp_path), "search", {"query": "page"}))
            stateless = asyncio.create_task(calls.answer(request(1, "stateless", tmp_path), None, "", None))
            await until(lambda: {*(f"quiet {n}" for n in range(6)), "page", "stateless"} <= {*held.entered})
            assert {held.entered.count(f"flood {process}") for process in (100, 101, 102)} == {8}
            # A cancelled call gives its place in the queue back.
            tasks[-1].cancel()
            held.release.set()
            async with asyncio.timeout(_DEADLINE_S):
                await asyncio.gather(page, stateless, *quiet, *tasks[:-1])
            assert len(held.entered) == 3 * 32 - 1 + 8

    asyncio.run(run())


def test_a_workspace_on_a_file_system_that_does_not_answer_stops_no_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    dead.mkdir()
    alive.mkdir()
    held = Held()
    real = os.path.isdir

    def isdir(path: str) -> bool:
        if str(path) == str(dead):
            assert held.release.wait(_DEADLINE_S)
        return real(path)

    monkeypatch.setattr(os.path, "isdir", isdir)

    async def run() -> None:
        with ThreadPoolExecutor(12) as threads:
            calls = calls_on(held, tmp_path, threads)
            stuck = [
                asyncio.create_task(calls.answer(request(n, "dead", dead), Session("dead", "", 0.0), "", None))
                for n in range(4)
            ]
            await asyncio.sleep(0)
            other = asyncio.create_task(calls.answer(request(1, "alive", alive), Session("alive", "", 0.0), "", None))
            await until(lambda: "alive" in held.entered)
            assert not held.release.is_set()
            held.release.set()
            async with asyncio.timeout(_DEADLINE_S):
                await asyncio.gather(other, *stuck)

    asyncio.run(run())


def test_calls_with_the_same_id_end_with_their_client_and_a_thousand_are_enough(tmp_path: Path) -> None:
    async def run() -> None:
        held = Held()
        with ThreadPoolExecutor(12) as threads:
            calls = calls_on(held, tmp_path, threads)
            sessions = Sessions(600.0)
            service = cast("Service", service_of(calls, sessions))
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Connection(service), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1 << 20)

            async def answer_to(message: jsonrpc.Message) -> Any:
                writer.write(jsonrpc.encode(message) + b"\n")
                async with asyncio.timeout(_DEADLINE_S):
                    return jsonrpc.decode(await reader.readline())

            hello = {"jsonrpc": "2.0", "id": 0, "method": "sari/identify", "params": {"token": "t" * 32}}
            assert "result" in await answer_to(hello)
            # More digits than a float holds: an exception here would end the connection.
            session = {"session": "one", "idle_s": 10**400}
            assert "result" in await answer_to(
                {"jsonrpc": "2.0", "id": 0, "method": "sari/session", "params": session}
            )
            for _ in range(1_000):
                writer.write(jsonrpc.encode(request(7, "same", tmp_path)) + b"\n")
            refused = await answer_to(request(7, "same", tmp_path))
            assert refused["error"]["code"] == jsonrpc.UNAVAILABLE
            await until(lambda: held.entered.count("same") == 4)
            writer.close()
            await until(lambda: calls.running == 0)
            assert held.entered.count("same") < 1_000, "those that waited never began"
            server.close()

    asyncio.run(run())


def test_calls_of_a_client_that_reads_no_answers_are_not_begun(tmp_path: Path) -> None:
    class Large:
        begun = 0

        def call(self, _tool: str, arguments: Any, _call: Any) -> ToolResult:
            self.begun += arguments["query"] == "flood"
            return ToolResult("x" * (1 << 20), {})

        def close(self) -> None:
            return None

    async def run() -> None:
        large = Large()
        with ThreadPoolExecutor(12) as threads:
            sessions = Sessions(600.0)
            calls = calls_on(cast("Any", large), tmp_path, threads)
            service = cast("Service", service_of(calls, sessions))
            server = await asyncio.get_running_loop().create_server(lambda: Connection(service), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1 << 22)
            for message in (
                {"jsonrpc": "2.0", "id": 0, "method": "sari/identify", "params": {"token": "t" * 32}},
                {"jsonrpc": "2.0", "id": 0, "method": "sari/session", "params": {"session": "one"}},
            ):
                writer.write(jsonrpc.encode(message) + b"\n")
                assert "result" in cast("Any", jsonrpc.decode(await reader.readline()))
            transport = cast("asyncio.Transport", writer.transport)
            transport.pause_reading()
            writer.writelines(jsonrpc.encode(request(number, "flood", tmp_path)) + b"\n" for number in range(400))
            (connection,) = service.connections
            await until(lambda: connection.waits_for_reader)
            # Meanwhile others are served, one call after the other.
            other = Session("other", "", 0.0)
            async with asyncio.timeout(_DEADLINE_S):
                for number in range(400):
                    assert "result" in await calls.answer(request(number, "other", tmp_path), other, "", None)
            # Buffers of the system hold some.
            assert large.begun < 100
            transport.resume_reading()
            async with asyncio.timeout(_DEADLINE_S):
                for _ in range(400):
                    await reader.readline()
            assert large.begun == 400
            writer.close()
            server.close()

    asyncio.run(run())


def test_the_calls_of_a_client_wait_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MOST_WAITING_BYTES", 150_000)

    async def run() -> None:
        held = Held()
        with ThreadPoolExecutor(12) as threads:
            sessions = Sessions(600.0)
            service = cast("Service", service_of(calls_on(held, tmp_path, threads), sessions))
            server = await asyncio.get_running_loop().create_server(lambda: Connection(service), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1 << 20)

            async def answers(*messages: jsonrpc.Message) -> list[Any]:
                writer.writelines(jsonrpc.encode(message) + b"\n" for message in messages)
                async with asyncio.timeout(_DEADLINE_S):
                    return [jsonrpc.decode(await reader.readline()) for _ in messages]

            await answers(
                {"jsonrpc": "2.0", "id": 0, "method": "sari/identify", "params": {"token": "t" * 32}},
                {"jsonrpc": "2.0", "id": 0, "method": "sari/session", "params": {"session": "one"}},
            )
            large = "q" * 60_000
            writer.writelines(jsonrpc.encode(request(number, large, tmp_path)) + b"\n" for number in (1, 2))
            (refused,) = await answers(request(3, large, tmp_path))
            assert (refused["id"], refused["error"]["code"]) == (3, jsonrpc.UNAVAILABLE)
            held.release.set()
            async with asyncio.timeout(_DEADLINE_S):
                done = {jsonrpc.decode(await reader.readline())["id"] for _ in range(2)}  # type: ignore[index]
            assert done == {1, 2}
            (again,) = await answers(request(4, large, tmp_path))
            assert "result" in again
            writer.close()
            server.close()

    asyncio.run(run())
