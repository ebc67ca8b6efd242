"""What a client may open: its own roots and what the user allowed; and whom it trusts: a daemon that proves itself."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sari.protocol.handshake import client_proof, daemon_proof
from testing.sari.processes import wait_until
from testing.sari.shim import INITIALIZE, Answer, Shim, found_paths, structured
from testing.sari.world import World


def _refusal(shim: Shim, tool: str, **arguments: object) -> str:
    result = shim.answer(shim.ask_tool(tool, arguments))["result"]
    assert isinstance(result, dict)
    assert result["isError"] is True, result
    return str(result["content"][0]["text"])


def test_a_call_opens_nothing_outside_its_clients_root(world: World) -> None:
    root, other = world.workspace("project"), world.workspace("other")
    (root / "sub").mkdir()
    (root / "sub/below.txt").write_text("needle\n")
    (root / "link").symlink_to(other)
    shim = world.shim(root)
    shim.initialize()
    for workspace in ("/etc", str(other), "../other", str(world.data), str(root / "link"), "/", str(world.base)):
        _refusal(shim, "read", path="passwd", workspace=workspace)
    assert "sari allow" in _refusal(shim, "search", query="needle", workspace=str(other))
    assert found_paths(shim.call("search", {"query": "needle", "workspace": "sub"})) == ["below.txt"]
    # A client that sends the shim's own fields gains nothing by it.
    meta = {"sari/root": str(other), "sari/roots": [str(other)]}
    params = {"name": "search", "arguments": {"query": "needle", "workspace": str(other)}, "_meta": meta}
    refused = shim.request("tools/call", params)["result"]
    assert isinstance(refused, dict)
    assert refused["isError"] is True


@pytest.mark.parametrize("system", ["/proc", "/proc/self", "/sys", "/dev"])
def test_the_systems_own_directories_are_never_opened(world: World, system: str) -> None:
    refused = world.sari("allow", system)
    assert refused.returncode == 1
    assert "system" in refused.stderr
    searched = world.sari("search", "x", "--workspace", system)
    assert searched.returncode == 1
    assert "system" in searched.stderr


def test_what_the_user_allowed_can_be_opened_until_it_is_taken_back(world: World) -> None:
    root, allowed = world.workspace("project"), world.workspace("allowed")
    shim = world.shim(root)
    shim.initialize()
    _refusal(shim, "search", query="needle", workspace=str(allowed))
    assert "Nothing" in world.sari("allow").stdout
    assert world.sari("allow", str(world.base / "allowed")).returncode == 0
    assert world.sari("allow").stdout.strip() == str(allowed)
    assert (world.data / "allowed.json").stat().st_mode & 0o077 == 0
    assert found_paths(shim.call("search", {"query": "needle", "workspace": str(allowed)})) == ["hello.txt"]
    assert world.sari("allow", "--remove", str(allowed)).returncode == 0
    _refusal(shim, "search", query="needle", workspace=str(allowed))
    assert world.sari("allow", "--remove", str(allowed)).returncode == 1


def test_every_root_that_a_client_names_is_its_own(world: World) -> None:
    one, two, three = (world.workspace(name) for name in ("one", "two", "three"))
    shim = world.shim(world.home)
    hello = {**INITIALIZE, "capabilities": {"roots": {}}}
    shim.request("initialize", hello)
    shim.notify("notifications/initialized")
    request = shim.wait_for_other("roots/list")
    roots = [{"uri": root.as_uri()} for root in (one, two)]
    shim.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": roots}})
    for root in (one, two):
        assert found_paths(shim.call("search", {"query": "needle", "workspace": str(root)})) == ["hello.txt"]
    _refusal(shim, "search", query="needle", workspace=str(three))


@contextmanager
def _impostor(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Another program that listens; its port, and what it was sent."""
    heard: list[bytes] = []
    # Not on the port that the daemon had: any test may have got that meanwhile.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(5)
                    try:
                        while data := peer.recv(65536):
                            heard.append(data)
                            peer.sendall(answer)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)


_ANSWERS = [
    b'{"jsonrpc":"2.0","id":-1,"result":{"name":"sari","version":"99","protocols":[1],"boot_id":"x","pid":1}}\n',
    b'{"jsonrpc":"2.0","id":-1,"error":{"code":-32601,"message":"Server not initialized"}}\n',
    b'{"jsonrpc":"2.0","id":-1,"result":{"nonce":"' + b"a" * 32 + b'","proof":"' + b"0" * 64 + b'"}}\n',
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


@pytest.mark.parametrize("answer", _ANSWERS, ids=["claims", "is-old", "forges", "is-http"])
def test_whoever_listens_on_a_daemons_port_learns_no_token(world: World, answer: bytes) -> None:
    root = world.workspace("project")
    shim = world.shim(root)
    shim.initialize()
    shim.call("search", {"query": "needle"})
    (boot_id, entry), *_ = world.registry()["daemons"].items()
    token = (world.data / "token").read_text().strip()
    shim.end()
    assert world.sari("daemon", "stop").returncode == 0
    with _impostor(answer) as (port, heard):
        # The entry of a daemon that seems to live: this process is it, by its pid and start.
        registry = world.registry()
        registry["daemons"] = {boot_id: {**entry, "port": port, "pid": os.getpid(), "process_mark": ""}}
        world.registry_file.write_text(json.dumps(registry))
        fresh = world.shim(root)
        fresh.initialize()
        assert found_paths(fresh.call("search", {"query": "needle"})) == ["hello.txt"]
        assert world.sari("status").returncode == 0
        fresh.end()
    said = b"".join(heard)
    assert b"sari/hello" in said, "it was asked"
    assert token.encode() not in said
    assert b"needle" not in said


def _exchange(port: int, *messages: dict[str, object]) -> list[Answer]:
    with socket.create_connection(("127.0.0.1", port), 30) as sock, sock.makefile("rb") as lines:
        answers = []
        for message in messages:
            sock.sendall(json.dumps(message).encode() + b"\n")
            line = lines.readline()
            if not line:
                break
            answers.append(json.loads(line))
        return answers


def test_the_daemon_serves_nobody_who_cannot_prove_the_token(world: World) -> None:
    assert world.sari("daemon", "start").returncode == 0
    port = next(iter(world.registry()["daemons"].values()))["port"]
    token = (world.data / "token").read_text().strip()
    hello: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "sari/hello", "params": {"nonce": "a" * 32}}

    def identify(proof: str) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": 2, "method": "sari/identify", "params": {"proof": proof}}

    (first,) = _exchange(port, hello)
    nonce = first["result"]["nonce"]  # type: ignore[index]
    assert first["result"]["proof"] == daemon_proof(token, "a" * 32, nonce, port)  # type: ignore[index]
    # A proof for another connection, the daemon's own proof sent back, a second hello, and none at all.
    for proof in (client_proof(token, "a" * 32, nonce, port), first["result"]["proof"], "", "ü"):  # type: ignore[index]
        answers = _exchange(port, hello, identify(str(proof)))
        assert answers[-1]["error"]["code"] == -32003  # type: ignore[index]
    assert _exchange(port, hello, hello)[-1]["error"]["code"] == -32003  # type: ignore[index]
    assert _exchange(port, identify(""))[-1]["error"]["code"] == -32003  # type: ignore[index]
    short: dict[str, object] = {**hello, "params": {"nonce": "a"}}
    assert "error" in _exchange(port, short)[-1]


def test_indexes_of_deleted_workspaces_are_removed(world: World) -> None:
    kept, gone = world.workspace("kept"), world.workspace("gone")
    for root in (kept, gone):
        world.open_workspace(root)
    assert world.sari("daemon", "stop").returncode == 0
    folders = {(folder / "root").read_text(): folder for folder in (world.data / "index").iterdir()}
    assert set(folders) == {str(kept), str(gone)}
    _remove(gone)
    assert world.sari("daemon", "start").returncode == 0
    wait_until(lambda: not folders[str(gone)].exists(), "the index of the deleted workspace is gone")
    assert folders[str(kept)].exists()


def _remove(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    root.rmdir()


def test_edits_are_made_in_the_clients_own_workspace_only(world: World) -> None:
    root, allowed = world.workspace("project"), world.workspace("allowed")
    dependency = root / "lib/site-packages/thing"
    dependency.mkdir(parents=True)
    for folder in (root, allowed, dependency):
        (folder / "shop.py").write_text("def total():\n    return 1\n")
    assert world.sari("allow", str(allowed)).returncode == 0
    shim = world.shim(root)
    shim.initialize()
    arguments = {"path": "shop.py", "symbol": "total", "text": "def total():\n    return 2\n"}
    for workspace in (allowed, dependency):
        assert found_paths(shim.call("search", {"query": "total", "workspace": str(workspace)})) == ["shop.py"]
        assert "not changed" in _refusal(shim, "replace_symbol", **arguments, workspace=str(workspace))
    preview = structured(shim.call("replace_symbol", arguments))["preview"]
    assert structured(shim.call("replace_symbol", {**arguments, "apply": preview}))["applied"]
    assert (root / "shop.py").read_text().endswith("return 2\n")
    assert (allowed / "shop.py").read_text() == (dependency / "shop.py").read_text()


def test_strangers_who_only_connect_lock_nobody_out(world: World) -> None:
    root = world.workspace("project")
    shim = world.shim(root)
    shim.initialize()
    shim.call("search", {"query": "needle"})
    ((_, daemon),) = world.registry()["daemons"].items()
    port = daemon["port"]
    with ExitStack() as closing:
        crowd = [closing.enter_context(socket.create_connection(("127.0.0.1", port), 15)) for _ in range(300)]
        # Long before the time in which a client must prove itself.
        assert crowd[0].recv(1) == b""
        assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
        other = world.shim(root)
        other.initialize()
        assert found_paths(other.call("search", {"query": "needle"})) == ["hello.txt"]
