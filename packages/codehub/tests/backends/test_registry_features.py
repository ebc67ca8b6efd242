"""Features of devcontainer.json from a real registry on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.domain.errors import CodeHubError
from codehub.domain.feature_refs import parse_feature_ref
from testing.codehub.feature_registry import (
    FeatureRegistry,
    digest_of,
    feature_registry,
    feature_source,
    feature_tar,
    login_file,
)
from testing.codehub.hostile_registry import hostile, send

_TOOL = {"id": "tool", "version": "1.2.3"}


@pytest.fixture(scope="module")
def registry() -> Iterator[FeatureRegistry]:
    with feature_registry() as running:
        yield running


@pytest.mark.needs("docker-registry")
async def test_a_feature_is_fetched_by_tag_or_digest_and_then_comes_from_the_cache(
    registry: FeatureRegistry, tmp_path: Path
) -> None:
    digest = registry.push("team/features/tool", _TOOL, "#!/bin/sh\necho one\n")
    name = f"{registry.address}/team/features/tool"
    features = feature_source(tmp_path, registry.address)
    fetched = await features.fetch(parse_feature_ref(f"{name}:1"))
    assert fetched.digest == digest
    assert set(fetched.files) == {"devcontainer-feature.json", "install.sh"}
    assert fetched.files["install.sh"].content == b"#!/bin/sh\necho one\n"
    assert fetched.files["install.sh"].executable
    # Pinned, without the registry: from the cache, and nowhere else.
    pinned = parse_feature_ref(f"{name}@{digest}")
    assert (await feature_source(tmp_path).fetch(pinned)).files == fetched.files
    # A damaged copy is noticed and fetched again.
    for kept in tmp_path.iterdir():
        kept.write_bytes(b"damaged")
    assert (await features.fetch(pinned)).files == fetched.files
    # The tag moves, the digest does not.
    registry.push("team/features/tool", _TOOL, "#!/bin/sh\necho two\n")
    assert (await features.fetch(parse_feature_ref(f"{name}:1"))).digest != digest
    assert (await feature_source(tmp_path / "other", registry.address).fetch(pinned)).files == fetched.files


@pytest.mark.needs("docker-registry")
async def test_a_layer_may_be_compressed_and_what_is_not_there_is_said(
    registry: FeatureRegistry, tmp_path: Path
) -> None:
    registry.push("packed", _TOOL, layer=gzip.compress(feature_tar(_TOOL)))
    features = feature_source(tmp_path, registry.address)
    assert "install.sh" in (await features.fetch(parse_feature_ref(f"{registry.address}/packed:1"))).files
    for missing in ("packed:2", "absent:1", f"packed@{digest_of(b'other')}"):
        with pytest.raises(CodeHubError, match=f"cannot be fetched: {registry.address} has no"):
            await features.fetch(parse_feature_ref(f"{registry.address}/{missing}"))


@pytest.mark.needs("docker-registry")
async def test_a_registry_that_wants_tokens_gives_them_to_anybody_for_what_is_public(tmp_path: Path) -> None:
    with feature_registry(token_auth=True) as registry:
        digest = registry.push("public/tool", _TOOL)
        registry.push("private/tool", _TOOL)
        features = feature_source(tmp_path, registry.address, registry.tokens)
        assert (await features.fetch(parse_feature_ref(f"{registry.address}/public/tool:1"))).digest == digest
        assert registry.asked == ["repository:public/tool:pull"]  # once, for manifest and layer
        with pytest.raises(CodeHubError, match="no anonymous access to private/tool"):
            await features.fetch(parse_feature_ref(f"{registry.address}/private/tool:1"))
        # With a login, which goes to the server of the tokens.
        file = login_file(tmp_path, registry.address)
        known = feature_source(tmp_path / "known", registry.address, registry.tokens, logins=file)
        assert "install.sh" in (await known.fetch(parse_feature_ref(f"{registry.address}/private/tool:1"))).files
        # The registry cannot make CodeHub ask a server of this machine that nobody allowed.
        with pytest.raises(CodeHubError, match="is not reached without TLS"):
            await feature_source(tmp_path / "b", registry.address).fetch(
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
                await feature_source(tmp_path / "none", registry.address, authority=authority, logins=logins).fetch(
                    wanted
                )

        await refused("is not trusted: .*CODEHUB_REGISTRY_CA_FILE", None)
        await refused("no anonymous access to team/tool, and CODEHUB_REGISTRY_AUTH_FILE", registry.authority)
        other = login_file(tmp_path, "registry.example.org")
        await refused("no anonymous access to team/tool", registry.authority, other)
        wrong = login_file(tmp_path, registry.address, password="wrong")
        await refused("refuses the login of CODEHUB_REGISTRY_AUTH_FILE", registry.authority, wrong)
        # The file is read each time: the administrator corrects it, and the next attempt works.
        features = feature_source(tmp_path / "cache", registry.address, authority=registry.authority, logins=wrong)
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
            await feature_source(tmp_path / "cache", address, logins=file).fetch(parse_feature_ref(f"{address}/x:1"))
