"""A transfer's pod ends with exit code 0 and its termination message, whatever its callers' connections do meanwhile."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codehub.adapters.objectstore.compression import compressed
from codehub.adapters.objectstore.layout import Meta
from codehub.adapters.tarball.format import END, FILE, Entry, encode
from testing.ports import free_port

_TAR = encode(Entry(b"./file", FILE)) + END
_HOME = b"".join(compressed([_TAR]))
_REQUEST = b"POST /finish HTTP/1.1\r\nhost: pod\r\nauthorization: Bearer secret\r\ncontent-length: 0\r\n\r\n"
# Finalizing the interpreter is fatal here, as it is for a thread that ends during it in an image without libgcc_s.
_PROGRAM = """
import atexit, ctypes, os, sys
from pathlib import Path
from codehub.adapters.kubernetes import transfer_server


class FailingDisk:
    def syncfs(self, fd):
        ctypes.set_errno(int(sys.argv[4]))
        return -1

if len(sys.argv) > 4:
    transfer_server._LIBC = FailingDisk()

atexit.register(os.abort)
transfer_server._TERMINATION_LOG = Path(sys.argv[2])
transfer_server.main("restore", Path(sys.argv[1]), "secret", int(sys.argv[3]))
"""


@dataclass(frozen=True)
class Pod:
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    stderr: Path

    def connect(self) -> socket.socket:
        deadline = time.monotonic() + 120
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=60)
            except ConnectionRefusedError:
                assert self.process.poll() is None, "it ended before it listened"
                assert time.monotonic() < deadline, "it does not listen"
                time.sleep(0.02)

    def exit_code(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def pod(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pod]:
    """A pod that restores. Its parameter, if any, is the error of its disk."""
    (tmp_path / "home").mkdir()
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "home"), str(log), str(port)]
    if hasattr(request, "param"):
        command.append(str(request.param))
    with (tmp_path / "stderr").open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        yield Pod(process, port, log, tmp_path / "stderr")
        process.kill()


def test_a_connection_that_outlives_the_transfer_does_not_change_its_exit_code(pod: Pod) -> None:
    with pod.connect() as caller:
        caller.sendall(_REQUEST)
        assert pod.exit_code() == 0
    assert json.loads(pod.log.read_text()) == {}


def test_a_caller_that_is_gone_before_it_is_answered_still_ends_the_pod(pod: Pod) -> None:
    caller = pod.connect()
    pod.process.send_signal(signal.SIGSTOP)  # so that the answer meets a connection that was reset
    caller.sendall(_REQUEST)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
    pod.process.send_signal(signal.SIGCONT)
    assert pod.exit_code() == 0
    assert pod.log.exists()


def test_a_message_that_cannot_be_written_is_a_failure_with_a_reason(pod: Pod) -> None:
    pod.log.mkdir()
    with pod.connect() as caller:
        caller.sendall(_REQUEST)
        assert pod.exit_code() == 1
    assert "the termination message cannot be written" in pod.stderr.read_text()


@pytest.mark.parametrize(("pod", "error"), [(errno.EIO, "Transient"), (errno.ENOSPC, "OutOfSpace")], indirect=["pod"])
def test_a_home_that_could_not_be_written_to_its_disk_is_not_restored(pod: Pod, error: str) -> None:
    """A failed flush is reported once. Flushing again would succeed, and the archive might be removed later."""
    pod.connect().close()
    assert restored(pod) == (500, error)


def restored(pod: Pod) -> tuple[int, str | None]:
    """Restore a home with one file. Returns the status and the error."""
    caller = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=60)
    with contextlib.closing(caller):
        caller.request("PUT", "/restore", iter([_HOME]), _headers(), encode_chunked=True)
        answer = caller.getresponse()
        return answer.status, json.loads(answer.read()).get("error")


def _headers() -> dict[str, str]:
    meta = Meta(hashlib.sha256(_HOME).hexdigest(), len(_HOME), len(_TAR), 1)
    return {
        "authorization": "Bearer secret",
        "transfer-encoding": "chunked",
        "x-codehub-meta": meta.render().decode().strip().replace("\n", " "),
    }


def test_a_home_that_is_being_restored_again_is_not_complete(pod: Pod, tmp_path: Path) -> None:
    """A second request empties the home that the first one restored, and whose caller is about to mark it."""
    pod.connect().close()
    assert restored(pod) == (200, None)
    file = tmp_path / "home/file"
    assert file.exists()
    with pod.connect() as second:
        head = "".join(f"{name}: {value}\r\n" for name, value in _headers().items())
        second.sendall(f"PUT /restore HTTP/1.1\r\nhost: pod\r\n{head}\r\n".encode())
        deadline = time.monotonic() + 60
        while file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pod.connect() as first:
            first.sendall(_REQUEST)
            assert pod.exit_code() == 0
    assert json.loads(pod.log.read_text()) == {}, "nothing attests that the home is complete"
