"""Debian's docker-registry, filled with hand-written features of devcontainer.json.

With `token_auth`, the registry wants a token. A second server gives it to everybody for reading what is public, as public
registries do, and for everything to those with the login. With `private`, the registry has an address of its own, a
certificate of its own authority, and wants the login (needs root).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import json
import secrets
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from codehub.adapters.registry.features import RegistryFeatures
from codehub.adapters.registry.http import RegistryHttp
from codehub.adapters.registry.logins import RegistryLogins
from codehub.domain.feature_refs import FeatureRules
from testing.codehub.own_network import make_certificates, namespace_with_address
from testing.ports import free_port

USER, PASSWORD = "robot", "hush-hush"
_HTPASSWD = f"{USER}:$2b$04$yLjxpcHoo/4w4Zg2qwwVTexJKNEaRc/VjEbjnwY2G/ampv5eFV.VG\n"  # bcrypt; it takes nothing else

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.devcontainers.layer.v1+tar"
_TIMEOUT_S = 120
_CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {place}/data}}}}
http: {{addr: "{address}", secret: test{tls}}}
"""
_TLS = ", tls: {{certificate: {place}/cert.pem, key: {place}/key.pem}}"
_LOGIN = """
auth:
  htpasswd: {{realm: features, path: {place}/htpasswd}}
"""
_TOKENS = """
auth:
  token: {{realm: "http://{tokens}/token", service: features, issuer: test, rootcertbundle: {place}/cert.pem}}
"""


@dataclass
class FeatureRegistry:
    """`address` is the prefix of a feature's name, `asked` what the token server was asked for.

    `authority` is the file of a private registry's certificate authority.
    """

    address: str
    authority: Path | None = None
    tokens: str = ""
    asked: list[str] = field(default_factory=list)
    _bearer: str = ""

    def client(self) -> httpx.Client:
        if self.authority is None:
            headers = {"Authorization": f"Bearer {self._bearer}"} if self._bearer else {}
            return httpx.Client(
                base_url=f"http://{self.address}", headers=headers, trust_env=False, timeout=_TIMEOUT_S
            )
        trusted = ssl.create_default_context(cafile=str(self.authority))
        return httpx.Client(
            base_url=f"https://{self.address}",
            auth=(USER, PASSWORD),
            verify=trusted,
            trust_env=False,
            timeout=_TIMEOUT_S,
        )

    def push(
        self,
        name: str,
        metadata: Mapping[str, object],
        install: str = "#!/bin/sh\ntrue\n",
        *,
        tags: tuple[str, ...] = ("1",),
        layer: bytes | None = None,
    ) -> str:
        """Push a feature as `@devcontainers/cli` does. Returns its digest."""
        tar = layer if layer is not None else feature_tar(metadata, install)
        with self.client() as client:
            for blob in (tar, b"{}"):
                begun = client.post(f"/v2/{name}/blobs/uploads/")
                assert begun.status_code == 202, begun.text
                where = httpx.URL(begun.headers["location"]).copy_merge_params({"digest": digest_of(blob)})
                assert client.put(where, content=blob).status_code == 201
            manifest = manifest_of(tar)
            for tag in tags:
                answer = client.put(
                    f"/v2/{name}/manifests/{tag}", content=manifest, headers={"Content-Type": MANIFEST}
                )
                assert answer.status_code == 201, answer.text
        return digest_of(manifest)


def feature_tar(metadata: Mapping[str, object], install: str = "#!/bin/sh\ntrue\n") -> bytes:
    files = {"./devcontainer-feature.json": json.dumps(metadata).encode(), "./install.sh": install.encode()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o755
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def manifest_of(layer: bytes, **changes: object) -> bytes:
    described = {"mediaType": LAYER, "digest": digest_of(layer), "size": len(layer), **changes}
    config = {"mediaType": "application/vnd.devcontainers", "digest": digest_of(b"{}"), "size": 2}
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [described]}).encode()


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def login_file(place: Path, registry: str, user: str = USER, password: str = PASSWORD) -> Path:
    """Write what `docker login` writes."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    file = place / "config.json"
    file.write_text(json.dumps({"auths": {registry: {"auth": login}}}))
    return file


@contextmanager
def feature_registry(*, token_auth: bool = False, private: bool = False) -> Iterator[FeatureRegistry]:
    place = Path(tempfile.mkdtemp(prefix="registry-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        inside: list[str] = []
        if private:
            namespace, host = stack.enter_context(namespace_with_address())
            inside = ["ip", "netns", "exec", namespace]
            make_certificates(place, host)
            (place / "htpasswd").write_text(_HTPASSWD)
            made = FeatureRegistry(f"{host}:5000", place / "ca.pem")
        else:
            made = FeatureRegistry(f"127.0.0.1:{free_port()}")
        tls = _TLS.format(place=place) if private else ""
        config = _CONFIG.format(place=place, address=made.address, tls=tls)
        if token_auth:
            stack.enter_context(_token_server(place, made))
            config += _TOKENS.format(place=place, tokens=made.tokens)
        elif private:
            config += _LOGIN.format(place=place)
        (place / "config.yml").write_text(config)
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [*inside, "docker-registry", "serve", str(place / "config.yml")], stdout=log, stderr=log
            )
        stack.callback(process.wait)
        stack.callback(process.kill)
        deadline = time.monotonic() + _TIMEOUT_S
        with made.client() as client:
            while True:
                assert process.poll() is None, (place / "log").read_text()
                with suppress(httpx.TransportError):
                    client.get("/v2/")
                    break
                assert time.monotonic() < deadline, (place / "log").read_text()
                time.sleep(0.05)
        yield made


@contextmanager
def _token_server(place: Path, made: FeatureRegistry) -> Iterator[None]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (place / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    chain = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()

    def token(access: list[dict[str, object]]) -> str:
        head = {"alg": "RS256", "typ": "JWT", "x5c": [chain]}
        body = {
            "iss": "test",
            "sub": "",
            "aud": "features",
            "jti": secrets.token_hex(8),
            "nbf": int(now.timestamp()) - 60,
            "exp": int(now.timestamp()) + 3600,
            "access": access,
        }
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (head, body))
        return signed + "." + _base64url(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            made.asked.append(query["scope"][0])
            _, repository, _ = query["scope"][0].split(":")
            known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            is_known = self.headers.get("Authorization") == f"Basic {known}"
            readable = [] if repository.startswith("private/") and not is_known else ["pull"]
            answer = token([{"type": "repository", "name": repository, "actions": readable}])
            body = json.dumps({"token": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing to the tests' output."""

    names = ("public/tool", "private/tool")
    made._bearer = token([{"type": "repository", "name": each, "actions": ["pull", "push"]} for each in names])
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        made.tokens = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, name="tokens", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def feature_source(
    cache: Path,
    *named: str,
    timeout_s: float = 120.0,
    authority: Path | None = None,
    logins: Path | None = None,
) -> RegistryFeatures:
    rules = FeatureRules(tuple(f"{host}/*" for host in named))
    tls = ssl.create_default_context(cafile=str(authority)) if authority else None
    return RegistryFeatures(RegistryHttp(rules.named_hosts, tls, RegistryLogins(logins)), cache, timeout_s)
