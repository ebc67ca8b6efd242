"""A server that is not CodeHub, or a proxy that answers in its place: one clear error, whatever it sends."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import pytest

from codehub.adapters.postgres.pool import Database
from codehub.api.app import create_app
from codehub.cli.answers import SHAPES
from codehub.cli.credentials import Credentials, Kept
from codehub.cli.main import Exit, main
from codehub.cli.stream import open_stream
from codehub.domain.errors import Unavailable
from testing.codehub.api import api_deps

ID = "7a4c1f0e-0000-4000-8000-000000000001"


def http(body: bytes | str, kind: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    content = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{more}Connection: close\r\n\r\n"
    return head.encode() + content


PAGE = "<!doctype html><title>Welcome to nginx!</title>"
ANSWERS = {
    "a page": http(PAGE, "text/html"),
    "a page that claims to be JSON": http(PAGE),
    "a page for 404": http(PAGE, "text/html", "404 Not Found"),
    "a page for 401": http(PAGE, "text/html", "401 Unauthorized"),
    "a page for 500": http(PAGE, "text/html", "500 Internal Server Error"),
    "a page for 502": http(PAGE, "text/html", "502 Bad Gateway"),
    "another program's error": http('{"message": "Not Found"}', status="404 Not Found"),
    "an error of another type": http('{"error": "invalid_token"}', status="401 Unauthorized"),
    "a list": http("[1, 2]"),
    "a list of lists": http("[" * 100_000),
    "a string": http('"hello"'),
    "null": http("null"),
    "an empty object": http("{}"),
    "another object": http('{"hello": "world"}'),
    "no items": http('{"items": null, "total": 0}'),
    "items that are no list": http('{"items": {"a": 1}, "total": 1}'),
    "items that are no objects": http('{"items": ["api"], "total": 1}'),
    "items with other fields": http('{"items": [{"title": "api"}], "total": 1}'),
    "names that are numbers": http('{"name": 1, "items": [{"id": 1, "name": 1}], "total": 1}'),
    "a user that is a string": http('{"user": "ada"}'),
    "a total that is a string": http('{"items": [], "total": "none"}'),
    "nothing": http(""),
    "204": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "half of an answer": http('{"items": [], "total": 0}')[:-9],
    "bytes that are no text": http(b'{"items": "\xff\xfe"}'),
    "no gzip": http(b"no gzip", more="Content-Encoding: gzip\r\n"),
    "a redirect to itself": http("", status="302 Found", more="Location: /api/v1/workspaces\r\n"),
    "a redirect to nowhere": http("", status="302 Found"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "a closed connection": b"",
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "ls": ("ws", "ls"),
    "ls --json": ("ws", "ls", "--json"),
    "show": ("ws", "show", "api"),
    "show by id": ("ws", "show", ID),
    "create": ("ws", "create", "api"),
    "start": ("ws", "start", ID),
    "exec": ("ws", "exec", "api", "--", "true"),
    "cp": ("ws", "cp", "api:notes", "."),
    "logs": ("ws", "logs", "api"),
    "open": ("ws", "open", "api", "--print"),
    "login": ("login", "-u", "ada", "--password-stdin"),
    "whoami": ("whoami",),
    "templates": ("templates", "ls"),
    "templates show": ("templates", "show", "web"),
    "admin": ("admin", "users", "ls"),
    "keys": ("keys", "ls"),
    "secrets": ("secrets", "ls"),
}


@contextlib.contextmanager
def serving(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """Yield the URL of a server that reads a request's head and sends what `answer` returns for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    head = b""
                    while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                        head += data
                    if head:
                        connection.sendall(answer(head))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):  # a connection with unread data would be reset
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    here = tmp_path / "here"
    here.mkdir()

    def run(server: str, *words: str) -> int:
        Credentials({"HOME": str(tmp_path)}).keep(server, Kept("ada", "cht_x"))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("CODEHUB_SERVER", server)
        monkeypatch.setenv("CODEHUB_TOKEN", "cht_x")
        monkeypatch.setenv("CODEHUB_PASSWORD", "a password")
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.setattr(sys, "argv", ["codehub", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO("a password\n"))
        monkeypatch.chdir(here)
        return main()

    return run


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_command_says_that_the_server_is_not_codehub(
    answer: str, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda _: ANSWERS[answer]) as server:
        for name, words in COMMANDS.items():
            code = run(server, *words)
            shown = capsys.readouterr()
            assert (name, code, shown.out) == (name, Exit.UNREACHABLE, ""), shown
            assert shown.err.startswith(f"codehub: {server} "), (name, shown)
            assert len(shown.err.splitlines()) == 2, (name, shown)


FOUND = {"id": ID, "name": "api", "status": "RUNNING", "allowed_actions": []}


def codehub_at_first(foreign: bytes, head: bytes) -> bytes:
    """The list of workspaces is CodeHub's; everything else is not."""
    listed = head.startswith(b"GET /api/v1/workspaces?")
    return http(json.dumps({"items": [FOUND], "total": 1})) if listed else foreign


@pytest.mark.parametrize(
    "answer", ["a page", "a list", "a string", "half of an answer", "no gzip", "a closed connection"]
)
def test_the_output_of_a_command_in_a_workspace_is_not_codehubs(
    answer: str, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(functools.partial(codehub_at_first, ANSWERS[answer])) as server:
        assert run(server, "ws", "exec", "api", "--", "true") == Exit.UNREACHABLE
    assert capsys.readouterr().err.startswith("codehub: ")


@pytest.mark.parametrize("words", [("ws", "cp", "api:notes", "."), ("ws", "logs", "api")], ids=["cp", "logs"])
@pytest.mark.parametrize(
    "answer", ["half of an answer", "no gzip", "a redirect to itself", "a redirect to nowhere", "a closed connection"]
)
def test_a_download_is_not_codehubs(
    answer: str, words: tuple[str, ...], run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(functools.partial(codehub_at_first, ANSWERS[answer])) as server:
        assert run(server, *words) == Exit.UNREACHABLE
    assert capsys.readouterr().err.startswith("codehub: ")
    assert list((tmp_path / "here").iterdir()) == []


def _same(answer: bytes, _: bytes) -> bytes:
    return answer


@pytest.mark.parametrize("answer", ["a page", "nothing", "no HTTP", "a closed connection"])
def test_a_stream_is_not_the_proxys(answer: str) -> None:
    for foreign in (ANSWERS[answer], ANSWERS[answer] + b"\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 x\r\n\r\n"):
        with serving(functools.partial(_same, foreign)) as server, pytest.raises(Unavailable):
            open_stream({"id": ID, "url": server}, "ssh", "cht_x")


def test_a_length_that_is_no_number_is_not_the_proxys() -> None:
    with serving(lambda _: b"HTTP/1.1 500 x\r\nContent-Length: x\r\n\r\n") as server, pytest.raises(Unavailable):
        open_stream({"id": ID, "url": server}, "ssh", "cht_x")


def test_the_types_that_answers_are_checked_for_are_those_of_the_api() -> None:
    described = create_app(api_deps(Database("postgresql://"))).openapi()
    schemas = described["components"]["schemas"]
    seen = set()
    for operations in described["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                named = response.get("content", {}).get("application/json", {}).get("schema", {})
                for schema in (
                    named,
                    _resolved(schemas, named).get("properties", {}).get("items", {}).get("items", {}),
                ):
                    for name, field in _resolved(schemas, schema).get("properties", {}).items():
                        if name in SHAPES:
                            seen.add(name)
                            assert _types(schemas, field) == _members(SHAPES[name]), (schema, name)
    assert seen == SHAPES.keys()


def _members(shape: type | UnionType) -> set[type]:
    return set(shape.__args__) if isinstance(shape, UnionType) else {shape}


def _resolved(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _types(schemas: dict[str, Any], schema: dict[str, Any]) -> set[type]:
    names = {"array": list, "integer": int, "string": str, "object": dict, "null": NoneType}
    one = _resolved(schemas, schema)
    return {names[_resolved(schemas, each)["type"]] for each in one.get("anyOf", [one])}
