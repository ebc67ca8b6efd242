"""A real S3 server for tests: SeaweedFS, one per test worker, on separate ports; and a faulty one with chosen failures.

Started on first use, stopped at the end of the session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codehub.adapters.objectstore.store import Store, StoreOptions
from testing.ports import free_ports

_TIMEOUT_S = 120


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str

    def options(self, endpoint: str = "", timeout_s: float = 60, retries: int = 2) -> StoreOptions:
        return StoreOptions(
            endpoint or self.endpoint, "us-east-1", self.access_key, self.secret_key, timeout_s, retries
        )

    def options_json(self) -> str:
        """Return the options for another process."""
        return json.dumps(dataclasses.asdict(self.options()))

    def environment(self, store: Store) -> dict[str, str]:
        """Return the environment of a CodeHub that archives to this store."""
        return {
            "CODEHUB_ARCHIVE_URL": store.url,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def fresh(self, prefix: str = "archives") -> Store:
        """Return a store in a bucket that no other test uses."""
        return Store(f"s3://b-{secrets.token_hex(6)}/{prefix}", self.options())


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else "weed"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    base = Path(tempfile.mkdtemp(prefix="chs3-"))
    with running_s3_server(base) as server:
        yield server


@contextlib.contextmanager
def running_s3_server(base: Path) -> Iterator[S3Server]:
    """Yield a running server. `base` belongs to it and is removed with it."""
    server = S3Server("", "tester", secrets.token_hex(16))
    identity = {
        "name": "tester",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (base / "s3.json").write_text(json.dumps({"identities": [identity]}))
    process: subprocess.Popen[bytes] | None = None
    try:
        for attempt in range(3):
            process, endpoint = _start(base)
            ready = S3Server(endpoint, server.access_key, server.secret_key)
            try:
                _wait(ready, process, base / "weed.log")
            except RuntimeError:  # another process took one of the ports
                process.kill()
                process.wait()
                if attempt == 2:
                    raise
            else:
                break
        yield ready
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(base, ignore_errors=True)


def _start(base: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server.

    Every port is set: the defaults, including those of gRPC and the catalogs, would clash with others.
    """
    s3, s3g, master, masterg, volume, volumeg, filer, filerg = free_ports(8)
    command = [
        _weed(), "-logtostderr", "server", f"-dir={base}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        f"-s3.port={s3}", f"-s3.port.grpc={s3g}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-s3.config={base / 's3.json'}", f"-master.port={master}", f"-master.port.grpc={masterg}",
        f"-volume.port={volume}", f"-volume.port.grpc={volumeg}", f"-filer.port={filer}", f"-filer.port.grpc={filerg}",
        "-volume.max=5000", "-master.volumeSizeLimitMB=64",  # each bucket takes seven volumes
    ]  # fmt: skip
    with open(base / "weed.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=base, start_new_session=True)
    return process, f"http://127.0.0.1:{s3}"


def _wait(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    store = Store("s3://ready-to-write", server.options(timeout_s=10, retries=0))
    problem: Exception | None = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            store.put("probe", b"x")
            store.close()
            return
        except Exception as error:
            problem = error
            time.sleep(0.2)
    raise RuntimeError(f"SeaweedFS did not come up: {problem}\n{log.read_text(errors='replace')[-2000:]}")
