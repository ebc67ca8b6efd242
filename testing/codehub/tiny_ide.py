"""A stand-in for an IDE that starts at once: one Python file with a small HTTP API for tests.

Its endpoints: `GET /healthz` → 200, `GET /env` → its environment, `POST /run` with a shell command → its output, `POST
/say` → writes the text to the instance's output.
"""

from __future__ import annotations

from types import MappingProxyType

import httpx

from codehub.domain.profiles import AppProfile

SOURCE = """
import http.server, json, os, socketserver, subprocess, sys
where, name = sys.argv[1], sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body, status=200):
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(json.dumps(dict(os.environ)).encode() if self.path == "/env" else name.encode())
    def do_POST(self):
        command = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/say":
            print(command.decode(), flush=True)
            return self.answer(b"")
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True)
        self.answer(done.stdout + done.stderr)
    def log_message(self, *a): pass
    def address_string(self): return "test"
class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
if where.isdigit():
    server = http.server.ThreadingHTTPServer((sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1", int(where)), Handler)
else:
    server = Unix(where, Handler)
print("hello from " + name, flush=True)
if os.environ.get("QUIT"):
    sys.exit(int(os.environ["QUIT"]))
if os.environ.get("FILL"):
    with open(os.environ["FILL"], "wb") as file:
        file.write(os.urandom(32 << 20))
if os.environ.get("EAT"):
    hoard = [bytearray(os.urandom(1 << 20)) for _ in range(100_000)]
server.serve_forever()
"""


def by_socket(variant: str = "a") -> AppProfile:
    return AppProfile(
        name="tiny",
        command=("python3", "-u", "-c", SOURCE, "{socket}", "{id}"),
        health_path="/healthz",
        env=MappingProxyType({"VARIANT": variant}),
    )


def by_port(variant: str = "a") -> AppProfile:
    return AppProfile(
        name="tiny",
        command=("python3", "-u", "-c", SOURCE, "{port}", "{id}"),
        health_path="/healthz",
        env=MappingProxyType({"VARIANT": variant, "TOKEN": "{secret}"}),
        secret_header="X-Secret: {secret}",
    )


def run_through_proxy(port: int | str, workspace_id: str, token: str, command: str) -> httpx.Response:
    """Send `POST /run` to a workspace as a program with a token does: with the proxy's host name, on its port."""
    return httpx.post(
        f"http://127.0.0.1:{port}/w/{workspace_id}/run",
        content=command,
        headers={"Authorization": f"Bearer {token}", "Host": f"localhost:{port}"},
        timeout=90,
        trust_env=False,
    )
