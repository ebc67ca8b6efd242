"""An npm registry with one package, a code-server of a few files, which the real npm installs in a second.

It can hold its tarball back, so that an install stays in progress as long as a test needs.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = "9.9.9"
_FILES = {
    "package.json": json.dumps({"name": "code-server", "version": VERSION}),
    "out/node/entry.js": "console.log('the tiny code-server')\n",
    "lib/vscode/package.json": json.dumps({"name": "editor", "version": "1.0.0"}),
    "lib/vscode/bin/remote-cli/code-linux.sh": "#!/bin/sh\n",
    "lib/vscode/bin/helpers/browser-linux.sh": "#!/bin/sh\n",
    "lib/vscode/extensions/package.json": json.dumps({"name": "extensions", "version": "1.0.0"}),
    "lib/vscode/node_modules/keep/package.json": json.dumps({"name": "keep", "version": "1.0.0"}),
}


def _tarball() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as out:
        for name, text in _FILES.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(text.encode()), 0o644
            out.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


@dataclass
class NpmRegistry:
    url: str = ""
    tarball: bytes = field(default_factory=_tarball)
    requested: threading.Event = field(default_factory=threading.Event)  # a client waits for the tarball
    let: threading.Event = field(default_factory=threading.Event)  # the tarball may be sent

    @property
    def integrity(self) -> str:
        return "sha512-" + base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()

    def packument(self) -> bytes:
        dist = {"tarball": f"{self.url}/code-server/-/code-server-{VERSION}.tgz", "integrity": self.integrity}
        version = {"name": "code-server", "version": VERSION, "dist": dist}
        return json.dumps(
            {"name": "code-server", "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
        ).encode()


@contextmanager
def npm_registry() -> Iterator[NpmRegistry]:
    registry = NpmRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".tgz"):
                registry.requested.set()
                registry.let.wait(120)
                body = registry.tarball
            else:
                body = registry.packument()
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client was killed

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.let.set()
        server.shutdown()
        thread.join()
        server.server_close()
