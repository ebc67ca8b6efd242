"""VS Code's server, installed into a workspace and reached over SSH as the Remote-SSH extension does."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.laptop import Laptop
from testing.codehub.remote_ssh import (
    EXEC_SERVER,
    SCRIPT,
    Desktop,
    ExecServer,
    get,
    make_archive,
    read_value,
    through_socks,
)
from testing.ports import free_port

pytestmark = pytest.mark.needs("sshd", "npm")

Connect = Callable[[], socket.socket]


@dataclass(frozen=True)
class Ide:
    """The extension on a laptop, and the server that it has downloaded for the workspace."""

    laptop: Laptop
    archive: Path
    commit: str


@dataclass(frozen=True)
class Server:
    """An `ssh`, what the script printed about the server in the workspace, and how to connect to that."""

    ssh: subprocess.Popen[bytes]
    pid: int
    token: str
    connect: Connect


@pytest.fixture(scope="module")
def ide(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Ide:
    home = tmp_path_factory.mktemp("laptop")
    return Ide(Laptop(doors, home), home / "server.tar", make_archive(home / "server.tar"))


@contextlib.contextmanager
def reach(ide: Ide, way: str) -> Iterator[Server]:
    """One `ssh` of the extension: finds the server in the workspace or installs it, starts it, and forwards to it."""
    laptop, local = ide.laptop, free_port()
    near = laptop.home / f"{uuid.uuid4().hex[:8]}.sock"
    far = f"/home/coder/.vscode-server/.{ide.commit}.socket.sock"
    options = {"port": ["-D", str(local)], "socket": ["-L", f"{near}:{far}"], "exec-server": []}[way]
    where = "port" if way == "port" else "socket"
    with laptop.background("-T", *options, laptop.host, "bash") as ssh:
        assert ssh.stdin is not None
        ssh.stdin.write(SCRIPT.format(commit=ide.commit, where=where, token=uuid.uuid4()).encode())
        ssh.stdin.flush()
        values = {}
        for name in ("platform", "upload", "pid", "token", "listening"):
            name, value = read_value(ssh)
            if name == "upload":
                _upload(ide, value)
            values[name] = value
            if name == "listening":
                break
        assert values["platform"].startswith("Linux-")
        connects: dict[str, Connect] = {
            "port": lambda: through_socks(_connected(("127.0.0.1", local)), int(values["listening"])),
            "socket": lambda: _connected(str(near)),
        }
        if way == "exec-server":
            ssh.stdin.write(f"exec python3 -u -c {shlex.quote(EXEC_SERVER)}\n".encode())
            ssh.stdin.flush()
            server = ExecServer(ssh)
            connects[way] = lambda: server.connect(values["listening"])
        yield Server(ssh, int(values["pid"]), values["token"], connects[way])


def _upload(ide: Ide, to: str) -> None:
    done = ide.archive.with_name("done")
    done.touch()
    for source, target in ((ide.archive, to), (done, f"{to}.done")):
        copied = ide.laptop.run("scp", "-q", "-F", str(ide.laptop.config), str(source), f"{ide.laptop.host}:{target}")
        assert copied.returncode == 0, copied.stderr.decode()


def _connected(address: str | tuple[str, int]) -> socket.socket:
    """Connect to a listener of `ssh`."""
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    made.settimeout(TIMEOUT_S)
    made.connect(address)
    return made


def reach_again(ide: Ide, way: str) -> contextlib.AbstractContextManager[Server]:
    """As the extension does after a lost connection: try until `ssh` comes through."""
    deadline = time.monotonic() + TIMEOUT_S
    while ide.laptop.run("ssh", "-F", str(ide.laptop.config), ide.laptop.host, "true").returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return reach(ide, way)


def answer(ide: Ide, server: Server, session: str, *, again: bool) -> str:
    with contextlib.closing(Desktop(server.connect(), ide.commit)) as desktop:
        return desktop.open(server.token, session, again=again)["type"]


@pytest.mark.parametrize("way", ["port", "socket", "exec-server"])
def test_a_session_of_vs_code_outlives_its_ssh_and_a_restart_of_the_proxy(ide: Ide, way: str) -> None:
    stack = ide.laptop.doors.stack
    session = str(uuid.uuid4())
    (proxy,) = stack.processes("proxy")
    with reach(ide, way) as first:
        assert get(first.connect(), "/version") == (200, ide.commit.encode())
        assert get(first.connect(), "/")[0] == 403, "without the token of this server"
        with contextlib.closing(Desktop(first.connect(), ide.commit)) as desktop:
            assert desktop.open(first.token, session, again=False) == {"type": "ok"}
            first.ssh.kill()
            desktop.wait_for_end()
    with reach_again(ide, way) as second:
        assert (second.pid, second.token) == (first.pid, first.token)
        assert answer(ide, second, str(uuid.uuid4()), again=True) == "error", "a session of another server"
        with contextlib.closing(Desktop(second.connect(), ide.commit)) as desktop:
            assert desktop.open(second.token, session, again=True) == {"type": "ok"}
            proxy.kill()
            desktop.wait_for_end()
    with reach_again(ide, way) as third:
        assert (third.pid, third.token) == (first.pid, first.token)
        assert answer(ide, third, session, again=True) == "ok"
    if way != "socket":  # the exec server uses it as well
        ide.laptop.ssh(ide.laptop.host, f"kill {first.pid}")
