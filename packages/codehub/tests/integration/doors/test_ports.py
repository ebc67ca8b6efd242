"""Ports of a workspace through the proxy: both address families, sharing, links, and what nobody listens on."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from testing.codehub.doors import Doors, token_of_another_user
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.rawhttp import Peer

SERVER = """
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = ("%s|%s|%s" % (self.path, self.headers.get("Cookie"), self.headers.get("Authorization"))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "https://app.example")
        self.send_header("Set-Cookie", "codehub_ws=stolen; Path=/")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def serving(doors: Doors, address: str, port: int) -> Iterator[str]:
    """A dev server in the workspace; the address of its port at the proxy, for programs with a token."""
    server = doors.serve(["python3", "-c", SERVER, address, str(port)], port)
    try:
        assert server.name == "python3"
        yield doors.at_proxy(f"/w/{doors.workspace_id}/port/{port}/")
    finally:
        doors.kill(server)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("address", ["127.0.0.1", "::", "::1"])
def test_a_server_on_any_loopback_address_is_reached(doors: Doors, address: str) -> None:
    port = free_port()
    with serving(doors, address, port) as url:
        answer = httpx.get(url + "sub/path?x=1", headers=bearer(doors.token), trust_env=False, timeout=60)
        # Nothing of ours reaches the application, and it cannot set cookies of ours.
        assert answer.text == "/sub/path?x=1|None|None"
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "set-cookie" not in answer.headers


def test_a_port_on_which_nothing_listens_is_said_so_and_tried_again(doors: Doors) -> None:
    url = doors.at_proxy(f"/w/{doors.workspace_id}/port/{free_port()}/")
    page = httpx.get(url, headers={**bearer(doors.token), "Accept": "text/html"}, trust_env=False, timeout=60)
    assert page.status_code == 502
    assert "Nothing listens on this port" in page.text
    assert f"/w/{doors.workspace_id}/port/" in page.text.partition("data-status=")[2][:80], "it follows its own port"
    assert httpx.get(url, headers=bearer(doors.token), trust_env=False, timeout=60).status_code == 502


def test_a_link_lets_anybody_in_until_the_port_is_shared_less(doors: Doors) -> None:
    port = free_port()
    with serving(doors, "127.0.0.1", port), doors.client() as owner:
        shared = f"{doors.api}/ports/{port}"
        assert owner.post(shared + "/links").status_code == 409
        assert owner.patch(shared, json={"share": "link"}).json() == {"port": port, "share": "link"}
        link = owner.post(shared + "/links", json={"expires_in_s": 600}).json()
        address = urlsplit(link["url"])
        public = doors.at_proxy(address.path)
        with httpx.Client(trust_env=False, timeout=60, headers={"Host": address.netloc}) as guest:
            assert guest.get(public).status_code == 401
            redirect = guest.get(f"{public}?{address.query}")
            assert redirect.status_code == 303
            assert "codehub_link" not in redirect.headers["location"]
            cookie = redirect.headers["set-cookie"].split(";")[0]
            inside = {"Cookie": cookie}
            assert guest.get(public + "x", headers=inside).text == "/x|None|None"
            # A page of another workspace may have set a cookie of this name that the browser sends first.
            forged = {"Cookie": f"codehub_link=forged; {cookie}"}
            assert guest.get(public + "x", headers=forged).text == "/x|None|None"
            # Its owner needs no link. The application and the history do not get it, also when the port was open before.
            for _ in range(2):
                own = guest.get(
                    f"{public}x?{address.query}&a=1", headers={**bearer(doors.token), "Accept": "text/html"}
                )
                assert (own.status_code, urlsplit(own.headers["location"]).query) == (303, "a=1")
                assert guest.get(public + "x?a=1", headers=bearer(doors.token)).text == "/x?a=1|None|None"
            # The link opens this port and nothing else.
            ide = urlsplit(owner.get(doors.api).json()["url"])
            beside = ide.netloc.replace(doors.workspace_id, f"1-{doors.workspace_id}")
            for host, path in ((ide.netloc, ide.path), (beside, f"/w/{doors.workspace_id}/port/1/")):
                elsewhere = guest.get(doors.at_proxy(path), headers={**inside, "Host": host})
                assert elsewhere.status_code == 401, host
            assert owner.patch(shared, json={"share": "owner"}).status_code == 200
            assert guest.get(public, headers=inside).status_code == 401


def test_an_expired_link_is_refused_with_its_reason_and_forgotten(doors: Doors) -> None:
    port = free_port()
    with serving(doors, "127.0.0.1", port), doors.client() as owner:
        shared = f"{doors.api}/ports/{port}"
        owner.patch(shared, json={"share": "link"})
        address = urlsplit(owner.post(shared + "/links", json={"expires_in_s": 0.5}).json()["url"])
        deadline = time.monotonic() + TIMEOUT_S
        while owner.get(shared + "/links").json()["items"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        public = doors.at_proxy(address.path)
        secret = address.query.partition("=")[2]
        with httpx.Client(trust_env=False, timeout=60, headers={"Host": address.netloc}) as guest:
            for path, headers in ((f"?{address.query}", {}), ("", {"Cookie": f"codehub_link={secret}"})):
                refused = guest.get(public + path, headers=headers)
                assert refused.status_code == 401
                assert "expired or was revoked" in refused.json()["error"]["message"]
                assert refused.headers["set-cookie"].startswith("codehub_link=;")
                guest.cookies.clear()
                shown = guest.get(public + path, headers={**headers, "Accept": "text/html"})
                assert (shown.status_code, "This link no longer works" in shown.text) == (401, True)
                assert secret not in shown.text
                guest.cookies.clear()
        owner.patch(shared, json={"share": "owner"})


def test_a_port_shared_with_users_is_open_to_them_and_the_ide_is_not(doors: Doors) -> None:
    port = free_port()
    token = token_of_another_user(doors, f"guest{port}")
    with serving(doors, "127.0.0.1", port) as url, doors.client() as owner:
        assert httpx.get(url, headers=bearer(token), trust_env=False, timeout=60).status_code == 403
        owner.patch(f"{doors.api}/ports/{port}", json={"share": "users"})
        assert httpx.get(url, headers=bearer(token), trust_env=False, timeout=60).status_code == 200
        ide = url.replace(f"/port/{port}/", "/")
        assert httpx.get(ide, headers=bearer(token), trust_env=False, timeout=60).status_code == 403
    with doors.client(token) as stranger:
        assert stranger.post(doors.api + "/exec", json={"command": "true"}).status_code == 403
        assert stranger.get(doors.api + "/files/x").status_code == 403
        assert stranger.post(doors.api + "/ssh").status_code == 403


@pytest.mark.parametrize("share", ["users", "link"])
def test_what_a_guest_sends_never_becomes_a_part_of_somebody_elses_request(doors: Doors, share: str) -> None:
    """The server answers without reading the body, and takes it for the beginning of the next request."""
    port = free_port()
    path = f"/w/{doors.workspace_id}/port/{port}/"
    hidden = "GET /smuggled HTTP/1.1\r\nX-Swallowed: "
    with serving(doors, "127.0.0.1", port) as url, doors.client() as owner:
        shared = f"{doors.api}/ports/{port}"
        owner.patch(shared, json={"share": share})
        if share == "users":
            guest = f"Host: localhost\r\nAuthorization: Bearer {token_of_another_user(doors, f'smuggler{port}')}\r\n"
            victim = f"Host: localhost\r\nAuthorization: Bearer {doors.token}\r\n"
        else:
            address = urlsplit(owner.post(shared + "/links", json={}).json()["url"])
            path = address.path
            guest = victim = f"Host: {address.netloc}\r\nCookie: {address.query}\r\n"
        attack = f"GET {path}attack HTTP/1.1\r\n{guest}Content-Length: {len(hidden)}\r\n\r\n{hidden}"
        proxy = urlsplit(url).port or 80
        with (
            Peer(socket.create_connection(("127.0.0.1", proxy), timeout=TIMEOUT_S)) as attacker,
            Peer(socket.create_connection(("127.0.0.1", proxy), timeout=TIMEOUT_S)) as other,
        ):
            attacker.send(attack)
            assert attacker.read_message().body == b"/attack|None|None"
            other.send(f"GET {path}mine HTTP/1.1\r\n{victim}\r\n")
            assert other.read_message().body == b"/mine|None|None"
        owner.patch(shared, json={"share": "owner"})


UPGRADER = """
import socket, sys, threading
def serve(connection):
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += connection.recv(1)
    connection.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
    while data := connection.recv(4096):
        connection.sendall(data)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


def upgraded(doors: Doors, port: int, token: str) -> socket.socket:
    proxy = urlsplit(doors.at_proxy("/"))
    opened = socket.create_connection(("127.0.0.1", proxy.port or 80), timeout=TIMEOUT_S)
    opened.sendall(
        f"GET /w/{doors.workspace_id}/port/{port}/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode()
    )
    assert opened.recv(4096).startswith(b"HTTP/1.1 101")
    return opened


def test_a_guests_open_socket_ends_when_the_port_is_shared_less(doors: Doors) -> None:
    port = free_port()
    token = token_of_another_user(doors, f"watcher{port}")
    with doors.client() as owner:
        server = doors.serve(["python3", "-c", UPGRADER, str(port)], port)
        owner.patch(f"{doors.api}/ports/{port}", json={"share": "users"})
        # Another port that stays shared must not keep this one open.
        owner.patch(f"{doors.api}/ports/1", json={"share": "users"})
        with upgraded(doors, port, doors.token) as mine, upgraded(doors, port, token) as guests:
            guests.sendall(b"hello")
            assert guests.recv(5) == b"hello"
            owner.patch(f"{doors.api}/ports/{port}", json={"share": "owner"})
            with contextlib.suppress(ConnectionResetError):
                assert guests.recv(5) == b""
            mine.sendall(b"still")
            assert mine.recv(5) == b"still"
        owner.patch(f"{doors.api}/ports/1", json={"share": "owner"})
        doors.kill(server)


def test_port_forward_reaches_a_server_without_any_name(doors: Doors) -> None:
    port = free_port()
    with serving(doors, "127.0.0.1", port):
        process = subprocess.Popen(
            doors.stack.command("port-forward", doors.workspace_id, f"{port}:0"),
            env={
                **doors.stack.environment,
                "CODEHUB_SERVER": doors.stack.url,
                "CODEHUB_TOKEN": doors.token,
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            local = int(process.stdout.readline().split(b" ")[0].rpartition(b":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", local, timeout=60)
            connection.request("GET", "/by-forward")
            assert connection.getresponse().read() == b"/by-forward|None|None"
            connection.close()
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_a_port_out_of_range_is_refused(doors: Doors, port: str) -> None:
    with doors.client() as client:
        answer = client.patch(f"{doors.api}/ports/{port}", json={"share": "users"})
    assert answer.status_code == 400, json.dumps(answer.json())
