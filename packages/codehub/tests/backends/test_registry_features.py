"""Features of devcontainer.json from a registry: a real one on loopback, and hostile answers."""

from __future__ import annotations

import gzip
import io
import ssl
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from codehub.adapters.registry.features import RegistryFeatures
from codehub.adapters.registry.http import RegistryHttp
from codehub.adapters.registry.logins import RegistryLogins
from codehub.domain.errors import CodeHubError
from codehub.domain.feature_refs import FeatureRules, parse_feature_ref
from testing.codehub.feature_registry import (
    MANIFEST,
    FeatureRegistry,
    digest_of,
    feature_registry,
    feature_tar,
    login_file,
    manifest_of,
)

_TOOL = {"id": "tool", "version": "1.2.3"}


@pytest.fixture(scope="module")
def registry() -> Iterator[FeatureRegistry]:
    with feature_registry() as running:
        yield running


def source(
    cache: Path,
    *named: str,
    timeout_s: float = 120.0,
    authority: Path | None = None,
    logins: Path | None = None,
) -> RegistryFeatures:
    rules = FeatureRules(tuple(f"{host}/*" for host in named))
    tls = ssl.create_default_context(cafile=str(authority)) if authority else None
    return RegistryFeatures(RegistryHttp(rules.named_hosts, tls, RegistryLogins(logins)), cache, timeout_s)


@pytest.mark.needs("docker-registry")
async def test_a_feature_is_fetched_by_tag_or_digest_and_then_comes_from_the_cache(
    registry: FeatureRegistry, tmp_path: Path
) -> None:
    digest = registry.push("team/features/tool", _TOOL, "#!/bin/sh\necho one\n")
    name = f"{registry.address}/team/features/tool"
    features = source(tmp_path, registry.address)
    fetched = await features.fetch(parse_feature_ref(f"{name}:1"))
    assert fetched.digest == digest
    assert set(fetched.files) == {"devcontainer-feature.json", "install.sh"}
    assert fetched.files["install.sh"].content == b"#!/bin/sh\necho one\n"
    assert fetched.files["install.sh"].executable
    # Pinned, without the registry: from the cache, and nowhere else.
    pinned = parse_feature_ref(f"{name}@{digest}")
    assert (await source(tmp_path).fetch(pinned)).files == fetched.files
    # A damaged copy is noticed and fetched again.
    for kept in tmp_path.iterdir():
        kept.write_bytes(b"damaged")
    assert (await features.fetch(pinned)).files == fetched.files
    # The tag moves, the digest does not.
    registry.push("team/features/tool", _TOOL, "#!/bin/sh\necho two\n")
    assert (await features.fetch(parse_feature_ref(f"{name}:1"))).digest != digest
    assert (await source(tmp_path / "other", registry.address).fetch(pinned)).files == fetched.files


@pytest.mark.needs("docker-registry")
async def test_a_layer_may_be_compressed_and_what_is_not_there_is_said(
    registry: FeatureRegistry, tmp_path: Path
) -> None:
    registry.push("packed", _TOOL, layer=gzip.compress(feature_tar(_TOOL)))
    features = source(tmp_path, registry.address)
    assert "install.sh" in (await features.fetch(parse_feature_ref(f"{registry.address}/packed:1"))).files
    for missing in ("packed:2", "absent:1", f"packed@{digest_of(b'other')}"):
        with pytest.raises(CodeHubError, match=f"cannot be fetched: {registry.address} has no"):
            await features.fetch(parse_feature_ref(f"{registry.address}/{missing}"))


@pytest.mark.needs("docker-registry")
async def test_a_registry_that_wants_tokens_gives_them_to_anybody_for_what_is_public(tmp_path: Path) -> None:
    with feature_registry(token_auth=True) as registry:
        digest = registry.push("public/tool", _TOOL)
        registry.push("private/tool", _TOOL)
        features = source(tmp_path, registry.address, registry.tokens)
        assert (await features.fetch(parse_feature_ref(f"{registry.address}/public/tool:1"))).digest == digest
        assert registry.asked == ["repository:public/tool:pull"]  # once, for manifest and layer
        with pytest.raises(CodeHubError, match="no anonymous access to private/tool"):
            await features.fetch(parse_feature_ref(f"{registry.address}/private/tool:1"))
        # With a login, which goes to the server of the tokens.
        file = login_file(tmp_path, registry.address)
        known = source(tmp_path / "known", registry.address, registry.tokens, logins=file)
        assert "install.sh" in (await known.fetch(parse_feature_ref(f"{registry.address}/private/tool:1"))).files
        # The registry cannot make CodeHub ask a server of this machine that nobody allowed.
        with pytest.raises(CodeHubError, match="is not reached without TLS"):
            await source(tmp_path / "b", registry.address).fetch(
                parse_feature_ref(f"{registry.address}/public/tool:1")
            )


@pytest.mark.needs("docker-registry", "root", "ip", "openssl")
@pytest.mark.xdist_group("docker")
async def test_a_private_registry_is_reached_with_its_authority_and_its_login(tmp_path: Path) -> None:
    with feature_registry(private=True) as registry:
        digest = registry.push("team/tool", _TOOL)
        wanted = parse_feature_ref(f"{registry.address}/team/tool:1")

        async def refused(why: str, authority: Path | None, logins: Path | None = None) -> None:
            with pytest.raises(CodeHubError, match=why):
                await source(tmp_path / "none", registry.address, authority=authority, logins=logins).fetch(wanted)

        await refused("is not trusted: .*CODEHUB_REGISTRY_CA_FILE", None)
        await refused("no anonymous access to team/tool, and CODEHUB_REGISTRY_AUTH_FILE", registry.authority)
        other = login_file(tmp_path, "registry.example.org")
        await refused("no anonymous access to team/tool", registry.authority, other)
        wrong = login_file(tmp_path, registry.address, password="wrong")
        await refused("refuses the login of CODEHUB_REGISTRY_AUTH_FILE", registry.authority, wrong)
        # The file is read each time: the administrator corrects it, and the next attempt works.
        features = source(tmp_path / "cache", registry.address, authority=registry.authority, logins=wrong)
        login_file(tmp_path, f"https://{registry.address}/v1/")
        assert (await features.fetch(wanted)).digest == digest


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a file of `docker login`"),
        ('{"auths": {"ADDRESS": {}}, "credsStore": "desktop"}', "credential helpers are not supported"),
        ('{"auths": {"ADDRESS": {"auth": "no base64"}}}', "no user and password"),
        (None, "cannot be read: No such file"),
    ],
)
async def test_a_file_of_logins_that_cannot_be_used_is_explained(
    content: str | None, why: str, tmp_path: Path
) -> None:
    with hostile(lambda request: send(request, b"", 401, WWW_Authenticate='Basic realm="x"')) as (address, _):
        file = tmp_path / "config.json"
        if content is not None:
            file.write_text(content.replace("ADDRESS", address))
        with pytest.raises(CodeHubError, match=why):
            await source(tmp_path / "cache", address, logins=file).fetch(parse_feature_ref(f"{address}/x:1"))


# --- hostile answers

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def hostile(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Serve every request with this function. Yields the address and what was requested, with the token."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}".strip())
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing to the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="hostile", daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def send(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", MANIFEST)
    request.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def serve(manifest: bytes, layer: bytes, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, manifest if "/manifests/" in request.path else layer, 200, **headers)

    return answer


def packed(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT) as out:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sparse() -> bytes:
    info = tarfile.TarInfo("install.sh")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    return packed((info, b"1\n0\n1\n".ljust(512, b"\0") + b"x"))


_GOOD = feature_tar(_TOOL)
_ZEROS = gzip.compress(bytes(100 << 20))
_HOSTILE: dict[str, tuple[Answer, str]] = {
    "another layer": (serve(manifest_of(_GOOD), _GOOD.replace(b"true", b"evil")), "does not have the digest"),
    "another manifest": (serve(manifest_of(_GOOD), _GOOD, Docker_Content_Digest=digest_of(b"x")), "does not have"),
    "huge layer": (serve(manifest_of(_GOOD, size=1 << 40), _GOOD), "larger than 2 MiB"),
    "longer layer": (serve(manifest_of(_GOOD, size=10), _GOOD), "sends more than 10 bytes"),
    "huge manifest": (serve(b" " * (1 << 20), b""), "sends more than"),
    "bomb": (serve(manifest_of(_ZEROS), _ZEROS), "larger than 2 MiB"),
    "not JSON": (serve(b"<html>", b""), "not JSON"),
    "deep JSON": (serve(b"[" * 200_000, b""), "not JSON"),
    "no feature": (serve(manifest_of(_GOOD, mediaType="application/x"), b""), "not a devcontainer feature"),
    "no digest": (serve(manifest_of(_GOOD, digest="md5:" + "0" * 32), b""), "without a SHA-256"),
    "cut tar": (serve(manifest_of(_GOOD[:700]), _GOOD[:700]), "cannot be read"),
    "no tar": (serve(manifest_of(b"x" * 4096), b"x" * 4096), "cannot be read"),
    "bad gzip": (serve(manifest_of(b"\x1f\x8bxxxx"), b"\x1f\x8bxxxx"), "cannot be read"),
}
_PATHS: dict[str, bytes] = {
    "upwards": packed((tarfile.TarInfo("../../etc/passwd"), b"x")),
    "absolute": packed((tarfile.TarInfo("/etc/passwd"), b"x")),
    "inside upwards": packed((tarfile.TarInfo("a/../../b"), b"x")),
    "symbolic link": packed((link("install.sh", "/etc/passwd"), b"")),
    "hard link": packed((link("install.sh", "/etc/passwd", tarfile.LNKTYPE), b"")),
    "device": packed((link("install.sh", "", tarfile.CHRTYPE), b"")),
    "fifo": packed((link("install.sh", "", tarfile.FIFOTYPE), b"")),
    "sparse": sparse(),
    "many": packed(*((tarfile.TarInfo(f"f{number}"), b"") for number in range(300))),
}
_HOSTILE |= {name: (serve(manifest_of(tar), tar), "no links|cannot be read") for name, tar in _PATHS.items()}


@pytest.mark.parametrize("case", _HOSTILE)
async def test_a_hostile_answer_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    answer, why = _HOSTILE[case]
    with hostile(answer) as (address, _), pytest.raises(CodeHubError, match=why):
        await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))


async def test_a_pinned_digest_is_not_taken_from_the_registrys_word(tmp_path: Path) -> None:
    pinned = digest_of(manifest_of(_GOOD))
    other = feature_tar({"id": "other"})
    with hostile(serve(manifest_of(other), other, Docker_Content_Digest=pinned)) as (address, _):
        with pytest.raises(CodeHubError, match="does not have the digest"):
            await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x@{pinned}"))


def redirect(target: str) -> Answer:
    return lambda request: send(request, b"", 307, Location=target)


async def test_a_redirect_is_followed_without_the_token_and_never_to_a_private_host(tmp_path: Path) -> None:
    layer = feature_tar(_TOOL)
    with hostile(lambda request: send(request, layer)) as (store, asked_store):

        def answer(request: BaseHTTPRequestHandler) -> None:
            if request.path.startswith("/token"):
                send(request, b'{"token": "secret"}')
            elif not request.headers.get("Authorization"):
                realm = f'Bearer realm="http://{request.headers["Host"]}/token",service="x"'
                send(request, b"", 401, WWW_Authenticate=realm)
            elif "/manifests/" in request.path:
                send(request, manifest_of(layer))
            else:
                send(request, b"", 307, Location=f"http://{store}/blob?signature=1")

        with hostile(answer) as (address, asked):
            found = await source(tmp_path / "a", address, store).fetch(parse_feature_ref(f"{address}/x:1"))
            assert "install.sh" in found.files
            assert asked_store == ["/blob?signature=1"]
            assert asked[-1].endswith("Bearer secret")
            # The same host on a port that nobody allowed.
            with pytest.raises(CodeHubError, match="is not reached without TLS"):
                await source(tmp_path / "b", address).fetch(parse_feature_ref(f"{address}/x:1"))
            assert len(asked_store) == 1


async def test_a_host_to_which_a_registry_redirects_gets_no_login(tmp_path: Path) -> None:
    """Not even if it asks for one, or names a server that makes tokens."""
    for challenge in ('Basic realm="x"', 'Bearer realm="http://HOST/token"'):

        def ask(request: BaseHTTPRequestHandler, challenge: str = challenge) -> None:
            send(request, b"", 401, WWW_Authenticate=challenge.replace("HOST", request.headers["Host"]))

        with hostile(ask) as (collector, asked), hostile(redirect(f"http://{collector}/blob")) as (address, _):
            login = login_file(tmp_path, address)
            features = source(tmp_path / "cache", address, collector, logins=login)
            with pytest.raises(CodeHubError, match=f"{collector}, to which {address} redirects, wants a login"):
                await features.fetch(parse_feature_ref(f"{address}/x:1"))
            assert asked == ["/blob"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("https://127.0.0.1:1/", "has a private address"),
        ("https://localhost:1/", "has a private address"),
        ("https://[::1]:1/", "has a private address"),
        ("https://[::ffff:127.0.0.1]:1/", "has a private address"),
        ("https://[64:ff9b::7f00:1]:1/", "has a private address"),
        ("https://0.0.0.0:1/", "has a private address"),
        ("https://2130706433:1/", "has a private address"),
        ("http://127.0.0.1:1/", "without TLS"),
        ("file:///etc/passwd", "without TLS"),
        ("https://user:word@127.0.0.1:1/", "contains a password"),
        ("https://[bad/", "is not a valid address"),
        ("https://a:b:c/", "is not a valid address|cannot be reached"),
        ("", "redirects too often"),
    ],
)
async def test_a_redirect_never_leads_to_this_machine(target: str, why: str, tmp_path: Path) -> None:
    with hostile(redirect(target)) as (address, asked), pytest.raises(CodeHubError, match=why):
        await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert len(asked) <= 4


@pytest.mark.parametrize(
    ("realm", "why"),
    [
        ("https://127.0.0.1:1/token", "has a private address"),
        ("https://localhost:1/token", "has a private address"),
        ("http://127.0.0.1:1/token", "without TLS"),
        ("file:///etc/passwd", "without TLS"),
    ],
)
async def test_a_token_is_never_fetched_from_this_machine(realm: str, why: str, tmp_path: Path) -> None:
    challenge = f'Bearer realm="{realm}",service="x"'
    with hostile(lambda request: send(request, b"", 401, WWW_Authenticate=challenge)) as (address, asked):
        with pytest.raises(CodeHubError, match=why):
            await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert len(asked) == 1


@pytest.mark.parametrize(
    "challenge",
    ["Bearer " + "a" * 90_000 + ',realm="REALM"', 'Bearer service="' + "x" * 5_000 + '",realm="REALM"'],
    ids=["letters", "long"],
)
async def test_a_challenge_of_many_kilobytes_is_not_read(challenge: str, tmp_path: Path) -> None:
    """Each of its letters was searched to the end of it: 40 seconds of the coordinator's event loop for one answer."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        realm = f"http://{request.headers['Host']}/token"
        send(request, b"", 401, WWW_Authenticate=challenge.replace("REALM", realm))

    with hostile(answer) as (address, asked):
        with pytest.raises(CodeHubError, match="no anonymous access"):
            await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert len(asked) == 1, "no token is requested"


async def test_a_redirect_of_many_kilobytes_is_not_followed(tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, b"", 302, Location="http://" + "x" * 60_000)

    with hostile(answer) as (address, _), pytest.raises(CodeHubError) as caught:
        await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert len(str(caught.value)) < 300


async def test_an_answer_in_chunks_of_one_byte_is_read_as_any_other(tmp_path: Path) -> None:
    manifest = manifest_of(_GOOD)

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = manifest if "/manifests/" in request.path else _GOOD
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")

    with hostile(answer) as (address, _):
        fetched = await source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert fetched.digest == digest_of(manifest)


async def test_a_registry_that_never_ends_its_answer_is_given_up(tmp_path: Path) -> None:
    ended = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"{")
        request.wfile.flush()
        ended.wait(120)

    with hostile(answer) as (address, _):
        try:
            with pytest.raises(CodeHubError, match="took longer than"):
                await source(tmp_path, address, timeout_s=1).fetch(parse_feature_ref(f"{address}/x:1"))
        finally:
            ended.set()


async def test_a_host_that_only_a_pattern_allows_must_be_public(tmp_path: Path) -> None:
    with hostile(serve(manifest_of(_GOOD), _GOOD)) as (address, asked):
        http = RegistryHttp(FeatureRules(("*", "127.*/x", "localhost*/x")).named_hosts)
        port = address.rpartition(":")[2]
        for host in (address, f"localhost:{port}"):
            with pytest.raises(CodeHubError, match=r"without TLS|private address"):
                await RegistryFeatures(http, tmp_path).fetch(parse_feature_ref(f"{host}/x:1"))
    assert asked == []
