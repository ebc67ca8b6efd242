"""What runs in a Pod answers at its address, of whichever family the cluster's network is."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import httpx
import pytest

from codehub.adapters.kubernetes import transfer_server
from codehub.adapters.kubernetes.helper import Helper, hook
from codehub.workspaced.listening import listen
from testing.ports import free_port


def connects(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=10):
        return True


def test_the_helper_listens_on_both_families() -> None:
    (*_, configuration) = hook(Helper("codehub:1", "secret", port=7071), "/home/coder", 8080)["postStart"]["exec"][
        "command"
    ]
    assert '"*:7071"' in configuration
    with listen("*:0") as listener:
        port = listener.getsockname()[1]
        assert connects("127.0.0.1", port)
        assert connects("::1", port)


def test_a_kernel_without_ipv6_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("*:0") as listener:
        assert listener.family == socket.AF_INET
        assert connects("127.0.0.1", listener.getsockname()[1])


def test_a_transfer_answers_on_both_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_server, "_TERMINATION_LOG", tmp_path / "log")
    port, ended = free_port(), []
    serving = threading.Thread(
        target=lambda: ended.append(transfer_server.serve("archive", tmp_path, "secret", port)), daemon=True
    )
    serving.start()
    transport = httpx.HTTPTransport(retries=10)  # it listens soon
    with httpx.Client(transport=transport, trust_env=False) as client:
        for host in ("127.0.0.1", "[::1]"):
            assert client.get(f"http://{host}:{port}/").status_code == 401
        client.post(f"http://[::1]:{port}/finish", headers={"authorization": "Bearer secret"})
    serving.join(60)
    assert ended == [0]
