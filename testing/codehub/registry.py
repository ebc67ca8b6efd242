"""A small image registry on loopback from which a Docker engine pulls: one image, by tag and by digest.

Our machines cannot pull images from outside, so tests of a pull with progress use this. Names `private/…` are refused, as a
registry does without a login.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
_SMALL = 1 << 20  # everything but the layer
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Registry:
    address: str  # 127.0.0.1:port, the prefix of an image's name
    digest: str  # of the manifest
    layer_bytes: int
    rest: threading.Event  # until it is set, only the first half of the layer is sent


@contextmanager
def registry(payload: bytes) -> Iterator[Registry]:
    """Serve an image whose only layer contains one file with this content."""
    layer = _layer(payload)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(config), "digest": _digest(config)},
            "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)}],
        }
    ).encode()
    blobs = {_digest(layer): layer, _digest(config): config}
    rest = threading.Event()
    rest.set()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(manifest, blobs, rest)) as server:
        thread = threading.Thread(target=server.serve_forever, name="registry", daemon=True)
        thread.start()
        try:
            yield Registry(f"127.0.0.1:{server.server_port}", _digest(manifest), len(layer), rest)
        finally:
            rest.set()
            server.shutdown()
            thread.join()


def _handler(manifest: bytes, blobs: dict[str, bytes], rest: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            name, _, what = self.path.removeprefix("/v2/").partition("/manifests/")
            if self.path == "/v2/":
                self._send(200, "application/json", b"{}", with_body)
            elif name.startswith("private/"):
                self._send(401, "application/json", b'{"errors": [{"code": "UNAUTHORIZED"}]}', with_body)
            elif what in ("1", _digest(manifest)):
                self._send(200, _MANIFEST, manifest, with_body)
            elif (blob := blobs.get(self.path.rpartition("/")[2])) is not None:
                self._send(200, "application/octet-stream", blob, with_body)
            else:
                self._send(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}', with_body)

        def _send(self, status: int, kind: str, body: bytes, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="here"')
            self.end_headers()
            if with_body:
                half = len(body) // 2
                self.wfile.write(body[:half])
                if half > _SMALL:
                    rest.wait(_TIMEOUT_S)
                self.wfile.write(body[half:])

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing to the tests' output."""

    return Answers


def _layer(payload: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        entry = tarfile.TarInfo("payload")
        entry.size = len(payload)
        out.addfile(entry, io.BytesIO(payload))
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
