"""Hostile answers to requests for features of devcontainer.json."""

from __future__ import annotations

import gzip
import tarfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from codehub.adapters.registry.features import RegistryFeatures
from codehub.adapters.registry.http import RegistryHttp
from codehub.domain.errors import CodeHubError
from codehub.domain.feature_refs import FeatureRules, parse_feature_ref
from testing.codehub.feature_registry import (
    digest_of,
    feature_source,
    feature_tar,
    login_file,
    manifest_of,
)
from testing.codehub.hostile_registry import Answer, hostile, link, packed, redirect, send, serve, sparse

_TOOL = {"id": "tool", "version": "1.2.3"}
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
        await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))


async def test_a_pinned_digest_is_not_taken_from_the_registrys_word(tmp_path: Path) -> None:
    pinned = digest_of(manifest_of(_GOOD))
    other = feature_tar({"id": "other"})
    with hostile(serve(manifest_of(other), other, Docker_Content_Digest=pinned)) as (address, _):
        with pytest.raises(CodeHubError, match="does not have the digest"):
            await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x@{pinned}"))


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
            found = await feature_source(tmp_path / "a", address, store).fetch(parse_feature_ref(f"{address}/x:1"))
            assert "install.sh" in found.files
            assert asked_store == ["/blob?signature=1"]
            assert asked[-1].endswith("Bearer secret")
            # The same host on a port that nobody allowed.
            with pytest.raises(CodeHubError, match="is not reached without TLS"):
                await feature_source(tmp_path / "b", address).fetch(parse_feature_ref(f"{address}/x:1"))
            assert len(asked_store) == 1


async def test_a_host_to_which_a_registry_redirects_gets_no_login(tmp_path: Path) -> None:
    """Not even if it asks for one, or names a server that makes tokens."""
    for challenge in ('Basic realm="x"', 'Bearer realm="http://HOST/token"'):

        def ask(request: BaseHTTPRequestHandler, challenge: str = challenge) -> None:
            send(request, b"", 401, WWW_Authenticate=challenge.replace("HOST", request.headers["Host"]))

        with hostile(ask) as (collector, asked), hostile(redirect(f"http://{collector}/blob")) as (address, _):
            login = login_file(tmp_path, address)
            features = feature_source(tmp_path / "cache", address, collector, logins=login)
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
        await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
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
            await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
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
            await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
    assert len(asked) == 1, "no token is requested"


async def test_a_redirect_of_many_kilobytes_is_not_followed(tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, b"", 302, Location="http://" + "x" * 60_000)

    with hostile(answer) as (address, _), pytest.raises(CodeHubError) as caught:
        await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
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
        fetched = await feature_source(tmp_path, address).fetch(parse_feature_ref(f"{address}/x:1"))
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
                await feature_source(tmp_path, address, timeout_s=1).fetch(parse_feature_ref(f"{address}/x:1"))
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
