"""OpenSSH's own client against a workspace, through CodeHub's proxy, with host checking on."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from testing.codehub.doors import Doors, token_of_another_user
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.laptop import Laptop

pytestmark = pytest.mark.needs("sshd", "rsync", "git")


@pytest.fixture(scope="module")
def laptop(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    return Laptop(doors, tmp_path_factory.mktemp("laptop"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def reached(port: int) -> socket.socket:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_command_runs_as_the_workspaces_user_with_its_environment(laptop: Laptop) -> None:
    said = laptop.ssh(laptop.host, "id -un; echo $CODEHUB_WORKSPACE_ID; pwd; exit 0").decode().split()
    assert said[0] == "coder"
    assert said[1] == laptop.doors.workspace_id
    assert laptop.run("ssh", "-F", str(laptop.config), laptop.host, "exit 7").returncode == 7


def test_input_and_output_are_eight_bit_clean(laptop: Laptop) -> None:
    data = os.urandom(3_000_000)
    assert laptop.ssh(laptop.host, "cat", stdin=data) == data


def test_scp_sftp_and_rsync_copy_both_ways(laptop: Laptop) -> None:
    data = os.urandom(2_000_000)
    (laptop.home / "up.bin").write_bytes(data)
    ssh = f"ssh -F {laptop.config}"
    for done in (
        laptop.run("scp", "-F", str(laptop.config), "up.bin", f"{laptop.host}:by-scp.bin"),
        laptop.run("scp", "-F", str(laptop.config), f"{laptop.host}:by-scp.bin", "back-scp.bin"),
        laptop.run(
            "sftp", "-F", str(laptop.config), "-b", "-", laptop.host,
            stdin=b"put up.bin by-sftp.bin\nget by-sftp.bin back-sftp.bin\nls\n",
        ),
        laptop.run("rsync", "-a", "-e", ssh, "up.bin", f"{laptop.host}:by-rsync/"),
        laptop.run("rsync", "-a", "-e", ssh, f"{laptop.host}:by-rsync/up.bin", "back-rsync.bin"),
    ):  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
    for name in ("scp", "sftp", "rsync"):
        assert (laptop.home / f"back-{name}.bin").read_bytes() == data


def test_git_clones_from_a_workspace(laptop: Laptop) -> None:
    laptop.ssh(
        laptop.host,
        "git init -q repo && cd repo && echo hi > file && git add file"
        " && git -c user.name=a -c user.email=a@b commit -qm first",
    )
    laptop.environment["GIT_SSH_COMMAND"] = f"ssh -F {laptop.config}"
    done = laptop.run("git", "clone", "-q", f"{laptop.host}:repo", "cloned")
    assert done.returncode == 0, done.stderr.decode()
    assert (laptop.home / "cloned" / "file").read_text() == "hi\n"


def test_connections_that_ended_leave_no_process_behind(laptop: Laptop) -> None:
    for _ in range(3):
        laptop.ssh(laptop.host, "true")
    deadline = time.monotonic() + TIMEOUT_S
    while ended := laptop.doors.sh("grep -l '^State:[[:space:]]*Z' /proc/[0-9]*/status 2>/dev/null || true"):
        assert time.monotonic() < deadline, ended
        time.sleep(0.1)


def test_a_port_of_the_workspace_is_forwarded_to_the_laptop(laptop: Laptop) -> None:
    inside, local = free_port(), free_port()
    listen = f"s=socket.create_server(('127.0.0.1',{inside}))"
    serve = f"python3 -u -c \"import socket; {listen}; c,_=s.accept(); c.sendall(b'pong')\""
    with laptop.background("-L", f"{local}:127.0.0.1:{inside}", laptop.host, serve):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with reached(local) as connection:
                if connection.recv(4) == b"pong":
                    break
            assert time.monotonic() < deadline


def test_a_port_of_the_laptop_is_forwarded_to_the_workspace(laptop: Laptop) -> None:
    inside = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"from the laptop")

        threading.Thread(target=answer, daemon=True).start()
        said = laptop.ssh(
            "-R", f"{inside}:127.0.0.1:{listener.getsockname()[1]}", laptop.host,
            f"python3 -c \"import socket; print(socket.create_connection(('127.0.0.1',{inside})).recv(99).decode())\"",
        )  # fmt: skip
    assert said == b"from the laptop\n"


def test_a_control_master_carries_further_sessions(laptop: Laptop, tmp_path: Path) -> None:
    control = f"ControlPath={tmp_path}/c"
    with laptop.background("-N", "-M", "-o", control, laptop.host):
        deadline = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "c").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert laptop.ssh("-o", control, laptop.host, "echo shared") == b"shared\n"


def test_the_command_line_runs_a_command_with_and_without_dashes(laptop: Laptop) -> None:
    workspace = laptop.host.removesuffix(".codehub")
    for dashes in (["--"], []):
        done = laptop.run(
            *laptop.codehub("ws", "exec", workspace, *dashes, "sh", "-c", "echo $0-$1; exit 3", "a", "b")
        )
        assert (done.returncode, done.stdout) == (3, b"a-b\n"), done.stderr
    nothing = laptop.run(*laptop.codehub("ws", "exec", workspace, "--"))
    assert (nothing.returncode, b"COMMAND" in nothing.stderr) == (2, True), nothing.stderr


def test_an_agent_is_forwarded(laptop: Laptop, tmp_path: Path) -> None:
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "agent").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        laptop.environment["SSH_AUTH_SOCK"] = str(tmp_path / "agent")
        key = laptop.home / ".config" / "codehub" / "id_ed25519"
        assert laptop.run("ssh-add", "-q", str(key)).returncode == 0
        assert b"ED25519" in laptop.ssh("-A", laptop.host, "ssh-add -l")
    finally:
        agent.kill()
        agent.wait()
        laptop.environment.pop("SSH_AUTH_SOCK", None)


def test_a_unix_socket_is_forwarded_as_desktop_ides_do(laptop: Laptop, tmp_path: Path) -> None:
    serve = (
        "python3 -u -c \"import socket; s=socket.socket(socket.AF_UNIX); s.bind('/tmp/ide-server'); s.listen();"
        " c,_=s.accept(); c.sendall(b'ready')\""
    )
    with laptop.background("-L", f"{tmp_path}/ide:/tmp/ide-server", laptop.host, serve):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with socket.socket(socket.AF_UNIX) as client:
                with contextlib.suppress(OSError):
                    client.connect(str(tmp_path / "ide"))
                    if client.recv(5) == b"ready":
                        break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_backend_is_uploaded_started_and_reached_as_jetbrains_does(laptop: Laptop) -> None:
    """Its client uploads by sftp only: folders, files, modes, renames. It connects through a forwarded port."""
    source, inside, local = laptop.home / "backend", free_port(), free_port()
    (source / "lib").mkdir(parents=True)
    (source / "run.sh").write_text(f"cd ~/.cache && exec python3 -m http.server -b 127.0.0.1 {inside}\n")
    (source / "lib/data").write_bytes(os.urandom(300_000))
    batch = (
        "-mkdir .cache\nmkdir .cache/JetBrains\nput -r backend .cache/JetBrains/backend.part\n"
        "chmod 755 .cache/JetBrains/backend.part/run.sh\n"
        "rename .cache/JetBrains/backend.part .cache/JetBrains/backend\nls -l .cache/JetBrains/backend\n"
    )
    done = laptop.run("sftp", "-F", str(laptop.config), "-b", "-", laptop.host, stdin=batch.encode())
    assert done.returncode == 0, done.stderr.decode()
    start = "nohup ~/.cache/JetBrains/backend/run.sh > /dev/null 2>&1 < /dev/null & echo $!"
    pid = int(laptop.ssh(laptop.host, start))
    for _ in range(2):  # it is still there for the next connection
        with laptop.background("-N", "-L", f"{local}:127.0.0.1:{inside}", laptop.host):
            deadline = time.monotonic() + TIMEOUT_S
            answer = b""
            while b"JetBrains/" not in answer:
                assert time.monotonic() < deadline
                with reached(local) as connection, contextlib.suppress(OSError):
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    answer = connection.makefile("rb").read()
    laptop.ssh(laptop.host, f"kill {pid}")


def test_the_host_key_stays_the_same_after_sleep_and_ssh_wakes(laptop: Laptop) -> None:
    known = laptop.home / ".config" / "codehub" / "known_hosts"
    laptop.ssh(laptop.host, "true")
    before = known.read_text()
    laptop.doors.sleep()
    done = laptop.run("ssh", "-F", str(laptop.config), laptop.host, "echo awake")
    assert done.stdout == b"awake\n", done.stderr
    assert b"waking" in done.stderr
    assert known.read_text() == before


def test_a_workspace_with_another_host_key_is_refused(laptop: Laptop) -> None:
    with laptop.doors.client() as client:
        line = client.get(laptop.doors.api + "/ssh").json()["host_key"]
    forged = line[:-12] + ("AAAAAAAAAAAA" if not line.endswith("AAAAAAAAAAAA") else "BBBBBBBBBBBB")
    other = laptop.home / "forged"
    other.write_text(f"{laptop.host} {forged}\n")
    done = laptop.run("ssh", "-F", str(laptop.config), "-o", f"UserKnownHostsFile={other}", laptop.host, "true")
    assert done.returncode == 255
    assert b"ost key verification failed" in done.stderr


def test_codehub_ssh_runs_commands_without_any_configuration(doors: Doors) -> None:
    done = doors.codehub("ssh", doors.workspace_id, "--", "echo", "direct")
    assert done.stdout == b"direct\n", done.stderr


def test_a_raw_stream_reaches_the_ssh_server_without_being_prepared(doors: Doors) -> None:
    """Other clients than `codehub ssh` need nothing but the address, a token and a key."""
    token = token_of_another_user(doors, "raw-stream")
    with doors.client(token) as client:
        made = client.post("/api/v1/workspaces", json={"name": "raw"})
        other = Doors(doors.stack, made.json()["id"], token)
        other.until("RUNNING")
        without_key = httpx.get(
            other.at_proxy(f"/_codehub/{other.workspace_id}/ssh"), headers=_upgrade(other), timeout=TIMEOUT_S
        )
        assert without_key.status_code == 409
        assert "codehub keys add" in without_key.text
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
        assert client.post("/api/v1/keys", json={"public_key": key}).status_code == 201
        for _ in range(2):
            assert _greeting_of_sshd(other).startswith(b"SSH-2.0-OpenSSH")
        assert client.get(other.api + "/ssh").json()["fingerprint"].startswith("SHA256:")
        assert other.sh('cat "$CODEHUB_SECRETS_DIR-ssh/authorized_keys"').split()[:2] == key.split()
        client.delete(other.api)


def _upgrade(doors: Doors) -> dict[str, str]:
    return {"Authorization": f"Bearer {doors.token}", "Connection": "Upgrade", "Upgrade": "codehub-stream"}


def _greeting_of_sshd(doors: Doors) -> bytes:
    proxy = urlsplit(doors.at_proxy(""))
    with socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout=TIMEOUT_S) as opened:
        lines = "".join(f"{name}: {value}\r\n" for name, value in _upgrade(doors).items())
        opened.sendall(
            f"GET /_codehub/{doors.workspace_id}/ssh HTTP/1.1\r\nHost: {proxy.netloc}\r\n{lines}\r\n".encode()
        )
        with opened.makefile("rb") as stream:
            assert b" 101 " in stream.readline()
            while stream.readline().strip():
                pass
            return stream.readline()


def test_a_key_that_was_removed_no_longer_signs_in(laptop: Laptop) -> None:
    with laptop.doors.client() as client:
        for key in client.get("/api/v1/keys").json()["items"]:
            client.delete(f"/api/v1/keys/{key['id']}")
        refused = client.post(laptop.doors.api + "/ssh")
        assert refused.status_code == 409
        assert "codehub keys add" in refused.json()["error"]["message"]
    assert laptop.run("ssh", "-F", str(laptop.config), laptop.host, "true").returncode == 255
    public = laptop.home / ".config" / "codehub" / "id_ed25519.pub"
    assert laptop.doors.codehub("keys", "add", str(public)).returncode == 0
    laptop.ssh(laptop.host, "true")


def test_config_ssh_is_idempotent_and_undone_exactly(laptop: Laptop, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host other\n  User me\n")
    command = laptop.doors.stack.command("config-ssh", "--yes", "--file", str(config))
    assert laptop.run(*command).returncode == 0
    once = config.read_text()
    assert "Host *.codehub" in once
    assert laptop.run(*command).returncode == 0
    assert config.read_text() == once
    assert laptop.run(*command, "--remove").returncode == 0
    assert config.read_text() == "Host other\n  User me\n"
