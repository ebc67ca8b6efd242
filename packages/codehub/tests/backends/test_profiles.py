"""What a workspace may be made of: references taken apart right, the profiles file, and the rule for `image_ref`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.profiles_file import load_profiles
from codehub.domain.errors import Invalid
from codehub.domain.images import ImageRef, is_allowed, parse_image
from codehub.domain.profiles import Catalog, Runs
from codehub.settings import load_settings
from codehub.wiring import catalog_of

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("debian", ImageRef("", "debian", "latest", "")),
        ("debian:12", ImageRef("", "debian", "12", "")),
        ("team/ide", ImageRef("", "team/ide", "latest", "")),
        ("localhost/ide:1", ImageRef("localhost", "ide", "1", "")),
        ("registry:5000/team/ide", ImageRef("registry:5000", "team/ide", "latest", "")),
        ("registry:5000/team/ide:2", ImageRef("registry:5000", "team/ide", "2", "")),
        ("r.example.org/a/b/c:v1.2", ImageRef("r.example.org", "a/b/c", "v1.2", "")),
        (f"debian@{DIGEST}", ImageRef("", "debian", "", DIGEST)),
        (f"r.example.org:443/ide:3@{DIGEST}", ImageRef("r.example.org:443", "ide", "3", DIGEST)),
    ],
)
def test_references_are_taken_apart_and_put_together(text: str, expected: ImageRef) -> None:
    assert parse_image(text) == expected
    assert parse_image(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Debian",
        "a b",
        "../etc",
        "debian:",
        "debian@sha256:short",
        "/debian",
        "a//b",
        "-x",
        "x" * 600,
        "a:b:c",
        "a\nb",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_image(text)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_that_reads_back_or_is_refused(text: str) -> None:
    try:
        parsed = parse_image(text)
    except Invalid:
        return
    assert parse_image(str(parsed)) == parsed


def test_globs_match_with_or_without_the_tag() -> None:
    image = parse_image("ghcr.example/team/ide:2")
    assert is_allowed(image, ["ghcr.example/team/*"])
    assert is_allowed(image, ["*:2"])
    assert is_allowed(image, ["ghcr.example/team/ide"])
    assert not is_allowed(image, ["ghcr.example/other/*", "*:3", ""])


def test_an_image_ref_is_a_profile_or_an_allowed_image() -> None:
    catalog = Catalog(allowed_images=("ghcr.example/team/*",))
    assert catalog.resolve(None, Runs.COMMAND)[0] == "code-server"
    image, profile = catalog.resolve("jupyterlab", Runs.IMAGE)
    assert (image, profile.name) == ("codehub/jupyterlab:1", "jupyterlab")
    image, profile = catalog.resolve("ghcr.example/team/ide", Runs.IMAGE)
    assert (image, profile.name, profile.image) == ("ghcr.example/team/ide:latest", "code-server", image)
    assert catalog.resolve("codehub/jupyterlab:1", Runs.IMAGE)[0] == "codehub/jupyterlab:1"
    for refused, backend in (
        ("debian:12", Runs.IMAGE),
        ("ghcr.example/team/ide", Runs.COMMAND),
        ("No Image", Runs.COMMAND),
    ):
        with pytest.raises(Invalid):
            catalog.resolve(refused, backend)
    with pytest.raises(Invalid, match="CODEHUB_DEFAULT_PROFILE"):
        Catalog(default="none")


def test_the_profiles_file_adds_to_the_shipped_ones(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(
        """
        [profiles.my-ide]
        command = ["my-ide", "--port", "{port}", "--base", "{base_path}", "{home}"]
        image = "example/my-ide:1"
        port = 8081
        health_path = "/healthz"
        health_timeout = 5.5
        strip_prefix = false
        env = { NAME = "value" }
        background_traffic = ["GET /poll"]
        close_code = 4000
        """
    )
    profiles = load_profiles(file)
    assert set(profiles) == {"code-server", "jupyterlab", "my-ide"}
    mine = profiles["my-ide"]
    assert (mine.port, mine.health_timeout_s, mine.strip_prefix, dict(mine.env), mine.close_code) == (
        8081,
        5.5,
        False,
        {"NAME": "value"},
        4000,
    )
    assert load_profiles(None)["code-server"].health_path == "/healthz"


def test_the_shipped_images_may_be_in_a_registry_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text("[profiles.mine]\nimage = 'example/my-ide:1'\n")
    variables = {"CODEHUB_IMAGE_REGISTRY": "registry.example.org:5000/team/", "CODEHUB_PROFILES_FILE": str(file)}
    catalog = catalog_of(load_settings(variables))
    assert {name: profile.image for name, profile in catalog.profiles.items()} == {
        "code-server": "registry.example.org:5000/team/codehub/code-server:1",
        "jupyterlab": "registry.example.org:5000/team/codehub/jupyterlab:1",
        "mine": "example/my-ide:1",
    }
    assert catalog_of(load_settings({})).profiles["code-server"].image == "codehub/code-server:1"
    for wrong in ("team", "https://registry.example.org", "registry.example.org/Team", "a b.c"):
        with pytest.raises(Invalid, match="CODEHUB_IMAGE_REGISTRY"):
            load_settings({"CODEHUB_IMAGE_REGISTRY": wrong})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profiles.x]\n", "needs a command"),
        ("[profiles.X]\ncommand=['a']", "lower-case"),
        ("[profiles.x]\ncommand=['a']\nports=1", "unknown key 'ports'"),
        ("[profiles.x]\ncommand='a'", "command is of the wrong type"),
        ("[profiles.x]\ncommand=['a', 1]", "list of strings"),
        ("[profiles.x]\ncommand=['{prot}']", "placeholder {prot}"),
        ("[profiles.x]\nimage='No Image'", "not an image reference"),
        ("[profiles.x]\ncommand=['a']\nport=0", "port is"),
        ("[profiles.x]\ncommand=['a']\nhealth_path='x'", "health_path"),
        ("[profiles.x]\ncommand=['a']\nclose_code=1006", "close_code is"),
        ("[other]\n", "only [profiles.NAME]"),
        ("profiles = [", "not TOML"),
    ],
)
def test_a_mistake_in_the_profiles_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(Invalid) as error:
        load_profiles(file)
    assert said in str(error.value)
    with pytest.raises(Invalid, match="cannot be read"):
        load_profiles(tmp_path / "none.toml")
