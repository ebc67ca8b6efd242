"""Sends HTTP requests to a sari daemon, as scripts, other origins and pages do."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sari.web.guard import one_time_key
from testing.sari.home import TIMEOUT_S, SariHome


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.body)
        return value


class Web:
    """An HTTP client of the daemon."""

    def __init__(self, home: SariHome) -> None:
        self.home = home
        self.port = home.http_port
        self.token = home.token

    def ask(
        self, path: str, method: str = "GET", body: object = None, *, token: str | None = "right", **headers: str
    ) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {self.token if token == 'right' else token}"
        data = None
        if body is not None:
            data = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def sign_in(self) -> tuple[str, str]:
        """Sign in and return a browser's cookie and page key."""
        answer = self.ask("/signin", "POST", {"key": one_time_key(self.token, time.time())}, token=None)
        assert answer.status == 200, answer.body
        return answer.headers["set-cookie"].partition(";")[0], str(answer.json["page_key"])

    def raw(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as sock:
            sock.sendall(data)
            received = b""
            while chunk := sock.recv(65536):
                received += chunk
            return received
