"""A registry of features on 127.0.0.1 that answers as a test says."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from testing.codehub.feature_registry import MANIFEST

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def hostile(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Serve every request with this function. Yields the address and what was requested, with the token."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}".strip())
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing to the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="hostile", daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def send(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", MANIFEST)
    request.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def serve(manifest: bytes, layer: bytes, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, manifest if "/manifests/" in request.path else layer, 200, **headers)

    return answer


def packed(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT) as out:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sparse() -> bytes:
    info = tarfile.TarInfo("install.sh")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    return packed((info, b"1\n0\n1\n".ljust(512, b"\0") + b"x"))


def redirect(target: str) -> Answer:
    return lambda request: send(request, b"", 307, Location=target)
