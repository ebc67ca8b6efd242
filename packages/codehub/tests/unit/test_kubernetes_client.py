"""Answers of an API server that ask for another attempt: too many requests (API priority and fairness), a rotated token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess
from codehub.domain.errors import BackendDown

POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
Requests = list[tuple[str, Any]]


@contextmanager
def answering(*codes: int) -> Iterator[tuple[str, Requests]]:
    """Yield a server's address and the tokens and bodies it got. It gives these answers, the last one for ever."""
    left, got = list(codes), Requests()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            got.append((self.headers.get("authorization", ""), body))
            code = left.pop(0) if len(left) > 1 else left[0]
            answer = json.dumps(
                POD if code < 400 else {"kind": "Status", "code": code, "message": "slow down"}
            ).encode()
            self.send_response(code)
            if code == 429:
                self.send_header("retry-after", "0")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Not into the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_write_that_the_server_was_too_busy_for_is_sent_again_when_it_says() -> None:
    with answering(429, 429, 201) as (address, got):
        client = ApiClient(ClusterAccess(server=address, namespace="n"))
        try:
            assert await client.create("/pods", POD) == POD
        finally:
            await client.close()
    assert [body for _, body in got] == [POD] * 3


async def test_a_server_that_stays_too_busy_is_a_backend_that_does_not_answer() -> None:
    with answering(429) as (address, got):
        client = ApiClient(ClusterAccess(server=address, namespace="n"))
        try:
            with pytest.raises(BackendDown, match="slow down"):
                await client.create("/pods", POD)
        finally:
            await client.close()
    assert len(got) == 4


async def test_a_refused_token_is_read_again_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with answering(201, 401, 201) as (address, got):
        client = ApiClient(ClusterAccess(server=address, namespace="n", token_file=token))
        try:
            await client.create("/pods", POD)
            token.write_text("new")
            await client.create("/pods", POD)
        finally:
            await client.close()
    assert [sent for sent, _ in got] == ["Bearer old", "Bearer old", "Bearer new"]
