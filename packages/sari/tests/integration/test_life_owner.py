"""Another user of the machine gets nothing from the ports, nor from the files."""

import http.client
import json
import os
import socket
from collections.abc import Callable

import pytest

from testing.sari.processes import wait_until
from testing.sari.world import World

NOBODY = 65534


def _as_nobody(work: Callable[[], object]) -> object:
    """Run something in a child with another uid and return what it found. No new program: that uid may read none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found: object = "failed"
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = work()
        except Exception as error:
            found = repr(error)
        finally:
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return json.loads(content)


def _speak(port: int, *messages: dict[str, object]) -> str:
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.settimeout(60)
        sock.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        said = b""
        while data := sock.recv(65536):
            said += data
        return said.decode()


def _status(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.needs("root")
def test_another_uid_gets_nothing(world: World) -> None:
    # Even if the home is open to all, as homes often are.
    for path in (world.base, world.home):
        path.chmod(0o755)
    root = world.workspace("project", secret__txt="needle\n")
    shim = world.shim(root)
    shim.initialize()
    shim.call("search", {"query": "needle"})
    wait_until(lambda: world.registry()["workspaces"], "the workspace is registered")
    port = next(iter(world.registry()["daemons"].values()))["port"]
    http_port = world.registry()["workspaces"][str(root)]["http_port"]
    registry = str(world.registry_file)

    def work() -> list[object]:
        found: list[object] = []
        try:
            with open(registry) as file:
                found.append(file.read())
        except PermissionError:
            found.append("denied")
        identify = {"jsonrpc": "2.0", "id": 1, "method": "sari/identify", "params": {"token": "guess"}}
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": "needle", "workspace": str(root)}},
        }
        found.append(_speak(port, identify, call))
        found.append(_speak(port, call))
        found += [_status(http_port, path) for path in ("/status", "/search?q=needle", "/mcp")]
        return found

    found = _as_nobody(work)
    assert isinstance(found, list), found
    file, guessed, called, *statuses = found
    assert file == "denied"
    for said in (guessed, called):
        answers = [json.loads(line) for line in said.splitlines()]
        assert len(answers) == 1
        assert answers[0]["error"]["code"] == -32003
        assert str(root) not in said
    assert set(statuses) <= {401, 403}
    shim.call("search", {"query": "needle"})
