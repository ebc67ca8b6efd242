"""A real Docker engine for tests. Its data, sockets and networks are separate from any other on the machine.

All tests that use it are in the xdist group "docker", so one engine per worker process is one engine per run.
It starts on first use and always stops at the end of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.packet_filter import find_iptables, remove_stale
from testing.codehub.tiny_ide import SOURCE

TINY_IMAGE = "codehub-test/tiny:1"
DOORS_IMAGE = "codehub-test/doors:1"
GIT_IMAGE = "codehub-test/git:1"
# What git starts to fetch over HTTPS.
_GIT_CORE = tuple(Path("/usr/lib/git-core") / name for name in ("git-remote-http", "git-remote-https"))
# Programs that users have in a workspace and that tests of its endpoints call.
_USUAL = (
    "bash", "pgrep", "ps", "rsync", "git", "git-upload-pack", "git-receive-pack", "tar", "sed", "find", "head", "tail",
    "tr", "stat", "truncate", "seq", "wc", "touch", "rm", "cp", "mv", "ln", "chmod", "mktemp", "yes", "tee", "date", "sort",
    "dd", "stty", "true", "sha256sum", "md5sum", "printf", "echo", "test", "whoami", "kill", "timeout", "od", "cut",
    "nohup", "ssh-add",
)  # fmt: skip
# Libraries that programs which a desktop IDE brings along expect of any machine.
_NODE_NEEDS = ("libstdc++.so.6", "libdl.so.2", "libpthread.so.0")
_TIMEOUT_S = 120


@dataclass
class DockerEngine:
    base: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.base / "docker.sock"

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def addresses(self) -> str:
        """Networks for this engine alone: killed runs leave bridges, and Docker has only 31 networks by default."""
        return f"base=10.{64 + zlib.crc32(os.fsencode(self.base)) % 64}.0.0/16,size=24"

    def start(self) -> None:
        environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        log = open(self.base / "dockerd.log", "ab")  # noqa: SIM115 - handed to the engine
        command: list[str | Path] = [
            "dockerd", "--data-root", self.base / "data", "--exec-root", self.base / "exec", "-H", self.host,
            "-p", self.base / "pid", "--bridge", "none", "--live-restore", "--shutdown-timeout", "5",
            "--default-address-pool", self.addresses,
        ]  # fmt: skip
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.wait_ready()

    def wait_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"dockerd ended: {self.log()[-2000:]}")
            with contextlib.suppress(httpx.TransportError):
                if self._listens():
                    with self.client() as client:
                        if client.get("http://docker/_ping").status_code == 200:
                            return
            time.sleep(0.1)
        raise RuntimeError(f"dockerd did not come up: {self.log()[-2000:]}")

    def _listens(self) -> bool:
        """Return whether the engine listens.

        Uses a plain socket: a refused connection of the HTTP client leaves its socket open.
        """
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=120)

    def log(self) -> str:
        return (self.base / "dockerd.log").read_text(errors="replace")

    def kill(self) -> None:
        """Kill the engine as in a crash: containers continue under their shims."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)
        (self.base / "pid").unlink(missing_ok=True)
        # Its containerd dies shortly after it. A new dockerd that still sees it would wait for it in vain.
        pid_file = self.base / "exec/containerd/containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + _TIMEOUT_S
            while time.monotonic() < deadline and _runs(pid):
                time.sleep(0.05)
        pid_file.unlink(missing_ok=True)
        for left in (self.base / "exec/containerd").glob("*.sock*"):
            left.unlink(missing_ok=True)

    def run_in(self, container: str, command: str) -> str:
        """Run a shell command in a container and return its output."""
        with self.client() as client:
            body = {"Cmd": ["/bin/sh", "-c", command], "AttachStdout": True, "AttachStderr": True}
            made = client.post(f"http://docker/containers/{container}/exec", json=body)
            assert made.status_code == 201, made.text
            said = client.post(f"http://docker/exec/{made.json()['Id']}/start", json={"Detach": False}).content
        pieces = []
        while said:  # an 8-byte header before each chunk: the stream, three zeros, the length
            end = 8 + int.from_bytes(said[4:8], "big")
            pieces.append(said[8:end])
            said = said[end:]
        return b"".join(pieces).decode(errors="replace")

    def remove_everything(self) -> None:
        if not self._listens():
            return
        with contextlib.suppress(httpx.TransportError), self.client() as client:
            for item in client.get("http://docker/containers/json", params={"all": "true"}).json():
                client.delete(f"http://docker/containers/{item['Id']}", params={"force": "true", "v": "true"})
            for item in client.get("http://docker/volumes").json().get("Volumes") or []:
                client.delete(f"http://docker/volumes/{item['Name']}", params={"force": "true"})
            for item in client.get("http://docker/networks").json():
                if item["Name"] not in ("bridge", "host", "none"):
                    client.delete(f"http://docker/networks/{item['Id']}")

    def stop(self) -> None:
        self.remove_everything()
        if os.geteuid() == 0 and find_iptables() is not None:
            # Rules of this engine's networks, and of runs that were killed. In a thread: a browser may have the event loop.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: asyncio.run(remove_stale())).result()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._end_containerd()
        for mount in sorted(_mounts_below(self.base), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def _end_containerd(self) -> None:
        """End dockerd's containerd, which outlives a killed dockerd."""
        mark = os.fsencode(self.base)
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{entry}/cmdline").read_bytes() and int(entry) != os.getpid():
                        os.kill(int(entry), signal.SIGKILL)

    def load_tiny_image(self) -> None:
        """Load this machine's Python as an image: nothing to pull, and a container starts in half a second."""
        self._load(TINY_IMAGE)

    def load_doors_image(self) -> None:
        """Load the same image with the usual tools."""
        found = [next(Path("/usr/lib").glob(f"*-linux-gnu/{name}"), None) for name in _NODE_NEEDS]
        self._load(DOORS_IMAGE, _USUAL, tuple(path for path in found if path is not None))

    def load_git_image(self) -> None:
        """Load the same image with a git that clones over HTTPS."""
        self._load(GIT_IMAGE, _USUAL, _GIT_CORE)

    def _load(self, image: str, programs: tuple[str, ...] = (), libraries_of: tuple[Path, ...] = ()) -> None:
        if self._has(image):
            return
        changes = [
            "CMD " + str(["/usr/bin/python3", "-u", "/tiny.py", "8080", "ID", "0.0.0.0"]).replace("'", '"'),
            "ENV PATH=/usr/bin:/bin",
            "LABEL codehub.ide=port",
        ]
        self.load_image(image, tiny_root(libraries_of, programs), changes)

    def _has(self, image: str) -> bool:
        with self.client() as client:
            return client.get(f"http://docker/images/{image}/json").status_code == 200

    def load_image(self, image: str, root: bytes, changes: list[str]) -> None:
        """Make an image of a file system (a tar) and instructions of a Dockerfile."""
        repository, _, tag = image.partition(":")
        params = {"fromSrc": "-", "repo": repository, "tag": tag, "changes": changes}
        with self.client() as client:
            answer = client.post("http://docker/images/create", params=params, content=root)
        assert answer.status_code == 200, answer.text
        assert "error" not in answer.text, answer.text


def usual_programs() -> tuple[str, ...]:
    return _USUAL


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def _mounts_below(base: Path) -> list[str]:
    with open("/proc/self/mounts") as mounts:
        return [line.split()[1] for line in mounts if line.split()[1].startswith(str(base))]


_SYSTEM = ("/lib/", "/lib64/", "/usr/")  # other libraries must come with their package


def tiny_root(libraries_of: tuple[Path, ...] = (), programs: tuple[str, ...] = ()) -> bytes:
    """Return a root with /usr/bin/python3, its libraries and standard library, a shell and a few tools.

    Also contains the libraries of `libraries_of`, and those of them that belong to git or are libraries themselves.
    """
    programs = (
        *(found for name in programs if (found := shutil.which(name, path="/usr/bin:/bin"))),
        "/usr/bin/python3",
        "/bin/sh",
        "/bin/cat",
        "/bin/ls",
        "/usr/bin/id",
        "/bin/sleep",
        "/usr/bin/env",
        "/bin/grep",
        "/bin/mkdir",
        "/bin/readlink",
        "/bin/uname",
        "/usr/bin/dirname",
    )
    wanted = {path for program in programs for path in (Path(program), Path(program).resolve())}
    wanted |= {path for path in libraries_of if path in _GIT_CORE or path.name in _NODE_NEEDS}
    for real in (*(Path(program).resolve() for program in programs), *libraries_of):
        said = subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout
        wanted |= {Path(word) for line in said.splitlines() for word in line.split() if word.startswith(_SYSTEM)}
    library = (
        Path("/usr/lib/python3.11")
        if Path("/usr/lib/python3.11").is_dir()
        else sorted(Path("/usr/lib").glob("python3.*"))[-1]
    )
    skip = (
        "/test/",
        "/idlelib/",
        "/lib2to3/",
        ".opt-",
        "/dist-packages/",
        "/config-",
        "/ensurepip/",
        "/pydoc_data/",
    )
    wanted |= {p for p in library.rglob("*") if p.is_file() and not any(part in f"{p}/" for part in skip)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            out.addfile(link)
        for name in (
            "usr",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "usr/sbin",
            "etc",
            "tmp",
            "home",
            "proc",
            "dev",
            "sys",
        ):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            out.addfile(directory)
        added: set[str] = set()
        for path in sorted(wanted):
            inside = str(path).lstrip("/")
            if inside.startswith(("bin/", "lib/", "lib64/", "sbin/")):
                inside = "usr/" + inside
            if inside not in added:
                added.add(inside)
                out.add(path, inside, recursive=False) if not path.is_symlink() else _add_file(out, path, inside)
        for name, content in (
            (
                "tiny.py",
                SOURCE.replace(
                    "where, name = sys.argv[1], sys.argv[2]",
                    'where, name = sys.argv[1], os.environ["CODEHUB_WORKSPACE_ID"]',
                ),
            ),
            ("etc/passwd", "coder:x:1000:1000::/home/coder:/bin/sh\nroot:x:0:0::/:/bin/sh\n"),
            ("etc/group", "coder:x:1000:\nroot:x:0:\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            out.addfile(info, io.BytesIO(content.encode()))
    return buffer.getvalue()


def _add_file(out: tarfile.TarFile, path: Path, inside: str) -> None:
    """Add a file. A symbolic link is added as its target."""
    with open(path.resolve(), "rb") as file:
        info = out.gettarinfo(arcname=inside, fileobj=file)
        info.type, info.linkname = tarfile.REGTYPE, ""
        info.size = os.fstat(file.fileno()).st_size
        out.addfile(info, file)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="chdocker-", dir="/var/tmp")))
    try:
        engine.start()
        engine.load_tiny_image()
        yield engine
    finally:
        engine.stop()


@pytest.fixture
async def engine(docker_engine: DockerEngine) -> AsyncIterator[Engine]:
    """Yield the adapter's client of the engine, as an installation that no other test uses."""
    client = Engine(docker_engine.host, f"test-{uuid.uuid4()}")
    try:
        yield client
    finally:
        await client.close()
