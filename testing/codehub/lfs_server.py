"""The Git LFS batch API for tests, behind the git server's nginx: serves objects from a folder.

`git http-backend` has no LFS, and Debian has no LFS server. The client in the tests is the real git-lfs.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

SSH_PATH = "/lfs/ssh/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Path
    base: str

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # Whoever came over SSH is told how to sign in for the objects too, as real servers do.
        header = {"Authorization": self.headers["Authorization"]} if self.path.startswith(SSH_PATH) else {}
        found = [
            {**each, "actions": {"download": {"href": f"{self.base}/lfs/objects/{each['oid']}", "header": header}}}
            for each in request["objects"]
        ]
        body = json.dumps({"transfer": "basic", "objects": found}).encode()
        self._send(200, "application/vnd.git-lfs+json", body)

    def do_GET(self) -> None:
        path = self.objects / Path(self.path).name
        if path.exists():
            self._send(200, "application/octet-stream", path.read_bytes())
        else:
            self._send(404, "text/plain", b"no such object")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "nginx"

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def lfs_server(place: Path, base: str) -> Iterator[Path]:
    """Yield the folder for objects, named by their sha256. `base` is the git server's address."""
    objects = place / "lfs-objects"
    objects.mkdir()
    handler = type("Handler", (_Handler,), {"objects": objects, "base": base})
    server = socketserver.ThreadingUnixStreamServer(str(place / "lfs.sock"), handler)
    server.daemon_threads = True
    (place / "lfs.sock").chmod(0o666)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
