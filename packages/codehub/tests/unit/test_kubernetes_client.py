"""Answers of an API server that ask for another attempt, and those that must not be taken for "the object is gone".

Too many requests (API priority and fairness), a rotated token or certificate; a webhook's refusal, a load balancer's 404.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters import boundary_probe
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.errors import Forbidden
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess, ExecPlugin, Pem
from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.kubernetes.probes import PodProbes
from codehub.domain.errors import BackendDown, Conflict
from testing.codehub.own_network import make_certificates

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

    with serving(Handler) as address:
        yield address, got


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


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the address of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False  # closing waits for them, and with them for their sockets
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    def answer(self, code: int, body: bytes) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Not into the test's output."""


@asynccontextmanager
async def client_of(access: ClusterAccess) -> AsyncIterator[ApiClient]:
    client = ApiClient(access)
    try:
        yield client
    finally:
        await client.close()


async def test_a_delete_that_a_webhook_refuses_does_not_count_as_gone() -> None:
    class Refusing(Quiet):
        def do_DELETE(self) -> None:
            refused = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "the webhook says no"}
            self.answer(409, json.dumps(refused).encode())

        def do_GET(self) -> None:
            self.answer(200, json.dumps({**POD, "metadata": {"name": "p", "uid": "mine"}}).encode())

    with serving(Refusing) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            with pytest.raises(Conflict, match="the webhook says no"):
                await client.delete("/pods/p", "mine")
            assert not await client.delete("/pods/p", "of another pod")


@pytest.mark.parametrize("body", [b"404 page not found", b'{"error": "no backend"}'])
async def test_a_404_of_a_load_balancer_says_nothing_about_objects(body: bytes) -> None:
    class Balancer(Quiet):
        def do_GET(self) -> None:
            self.answer(404, body)

        def do_DELETE(self) -> None:
            self.answer(404, body)

    with serving(Balancer) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            for attempt in (client.get("/nodes/n1"), client.delete("/pods/p", "mine"), client.list_page("/pods", {})):
                with pytest.raises(BackendDown, match="not the Kubernetes API server"):
                    await attempt


async def test_requests_do_not_wait_for_the_logs_that_users_follow() -> None:
    following, over = 100, threading.Event()

    class Following(Quiet):
        def do_GET(self) -> None:
            self.answer(200, json.dumps(POD).encode())
            if self.path == "/log":
                over.wait()  # the body has no length that the client knows

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            if self.path != "/log":
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Following) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client, AsyncExitStack() as followed:
            try:
                logs = []
                for _ in range(following):
                    stream = client.stream("/log", {}, read_timeout_s=None)
                    logs.append(await followed.enter_async_context(stream))
                    await anext(logs[-1])
                assert await client.get("/pods/p") == POD
            finally:
                over.set()


async def test_bursts_of_starts_share_a_few_connections_and_reuse_them() -> None:
    """A TLS handshake costs more than a create, and httpcore looks at every connection for every request."""
    connections: list[object] = []
    arrived, go = threading.Semaphore(0), threading.Event()

    class Keeping(Quiet):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            connections.append(self)
            super().setup()

        def do_POST(self) -> None:
            arrived.release()
            assert go.wait(60)
            self.answer(201, json.dumps(POD).encode())

        def do_GET(self) -> None:
            self.answer(200, json.dumps(POD).encode())

    with serving(Keeping) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client, asyncio.TaskGroup() as tasks:
            try:
                for _ in range(60):
                    tasks.create_task(client.create("/pods", POD))
                for _ in range(16):
                    assert await asyncio.to_thread(arrived.acquire, timeout=60)
                for _ in range(20):  # time enough for the other creates to connect too
                    assert await client.get("/pods/p") == POD
            finally:
                go.set()
            for _ in range(2):
                await asyncio.gather(*(client.create("/pods", POD) for _ in range(60)))
    assert len(connections) <= 16 + 1


async def test_a_delete_that_a_webhook_refuses_as_if_something_was_missing_does_not_count_as_gone() -> None:
    class Refusing(Quiet):
        def do_DELETE(self) -> None:
            message = 'admission webhook "audit.example.org" denied the request: no ticket was found'
            refused = {"kind": "Status", "code": 404, "reason": "NotFound", "message": message}
            self.answer(404, json.dumps(refused).encode())

    with serving(Refusing) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            with pytest.raises(Forbidden, match="no ticket was found"):
                await client.delete("/pods/p", "mine")


async def test_a_page_that_is_not_a_list_is_not_an_empty_list() -> None:
    class Maintenance(Quiet):
        def do_GET(self) -> None:
            self.answer(200, b'{"message": "back in five minutes"}')

    with serving(Maintenance) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            with pytest.raises(BackendDown, match="answered a list with something else"):
                await client.list_all("/pods")


async def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codehub.adapters.kubernetes.client._MOST_PAGES", 3)

    class Endless(Quiet):
        def do_GET(self) -> None:
            self.answer(200, b'{"kind": "PodList", "items": [], "metadata": {"continue": "more"}}')

    with serving(Endless) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            with pytest.raises(BackendDown, match="does not end"):
                await client.list_all("/pods")


async def test_an_answer_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte arrives in time, and the answer never does: the request would hold its operation for ever."""
    monkeypatch.setattr("codehub.adapters.kubernetes.client._LONGEST_ANSWER_S", 0.5)
    over = threading.Event()

    class Trickling(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b" ")

    with serving(Trickling) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(BackendDown, match="did not finish its answer"):
                        await client.get("/pods/p")
            finally:
                over.set()


async def test_doctors_second_workspace_is_attacked_at_its_address_however_late_that_is_known() -> None:
    """An attack on no address at all cannot succeed, and counted as a boundary that holds."""
    seen = iter([{}, {"phase": "Running"}, {"phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.1"}])

    class Cluster(Quiet):
        def do_POST(self) -> None:
            self.answer(201, json.dumps(POD).encode())

        def do_GET(self) -> None:
            if "/log" in self.path:
                self.answer(200, f'{boundary_probe.MARK}{{"port": 4711}}\n'.encode())
            else:
                self.answer(200, json.dumps({**POD, "status": next(seen)}).encode())

    with serving(Cluster) as address:
        async with client_of(ClusterAccess(server=address, namespace="n")) as client:
            neighbour = await PodProbes(client, "image", PodOptions(), 60).start_neighbour()
    assert (neighbour.address, neighbour.port, neighbour.node_address) == ("10.1.2.3", 4711, "10.0.0.1")


class TestRotatedCertificates:
    """A client certificate that expires while CodeHub runs: the kubelet's kind of file, or an exec plugin's."""

    @pytest.fixture
    def api_server(self, tmp_path: Path) -> Iterator[str]:
        """Yield a server that knows the certificates of `second` only. Both authorities may connect, as in Kubernetes."""
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            make_certificates(tmp_path / name, "127.0.0.1")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "second/cert.pem", tmp_path / "second/key.pem")
        tls.verify_mode = ssl.CERT_OPTIONAL
        for name in ("first", "second"):
            tls.load_verify_locations(tmp_path / name / "ca.pem")
        known = ssl.PEM_cert_to_DER_cert((tmp_path / "second/cert.pem").read_text())

        class Authenticating(Quiet):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                is_known = self.connection.getpeercert(binary_form=True) == known
                code = 200 if is_known else 401
                self.answer(code, json.dumps(POD if is_known else {"kind": "Status", "code": 401}).encode())

        with serving(Authenticating, tls) as address:
            yield address

    async def test_files_are_read_again_after_a_refusal(self, api_server: str, tmp_path: Path) -> None:
        now = tmp_path / "now"
        shutil.copytree(tmp_path / "first", now)
        access = ClusterAccess(
            server=api_server,
            authority=Pem(path=tmp_path / "second/ca.pem"),
            client_certificate=Pem(path=now / "cert.pem"),
            client_key=Pem(path=now / "key.pem"),
        )
        async with client_of(access) as client:
            with pytest.raises(BackendDown, match="refuses CodeHub's credentials"):
                await client.get("/pods/p")
            shutil.copytree(tmp_path / "second", now, dirs_exist_ok=True)
            assert await client.get("/pods/p") == POD

    async def test_a_replaced_authority_is_read_again(self, api_server: str, tmp_path: Path) -> None:
        authority = tmp_path / "authority.pem"
        shutil.copy(tmp_path / "first/ca.pem", authority)
        access = ClusterAccess(
            server=api_server,
            authority=Pem(path=authority),
            client_certificate=Pem(data=(tmp_path / "second/cert.pem").read_bytes()),
            client_key=Pem(data=(tmp_path / "second/key.pem").read_bytes()),
        )
        async with client_of(access) as client:
            with pytest.raises(BackendDown, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get("/pods/p")
            shutil.copy(tmp_path / "second/ca.pem", authority)
            assert await client.get("/pods/p") == POD

    async def test_a_plugin_that_gives_a_new_one_is_used_at_once(self, api_server: str, tmp_path: Path) -> None:
        for name in ("first", "second"):
            status = {
                "clientCertificateData": (tmp_path / name / "cert.pem").read_text(),
                "clientKeyData": (tmp_path / name / "key.pem").read_text(),
            }
            credential = {"apiVersion": "client.authentication.k8s.io/v1", "status": status}
            (tmp_path / name / "credential").write_text(json.dumps(credential))
        shutil.copy(tmp_path / "first/credential", tmp_path / "credential")
        plugin = ExecPlugin("cat", (str(tmp_path / "credential"),), {}, "client.authentication.k8s.io/v1")
        access = ClusterAccess(server=api_server, authority=Pem(path=tmp_path / "second/ca.pem"), exec_plugin=plugin)
        async with client_of(access) as client:
            with pytest.raises(BackendDown, match="refuses CodeHub's credentials"):
                await client.get("/pods/p")
            shutil.copy(tmp_path / "second/credential", tmp_path / "credential")
            assert await client.get("/pods/p") == POD
