"""Images of devcontainer.json: what is planned, how features are installed, and what leaves a build's context out."""

from __future__ import annotations

import json

import pytest

from codehub.domain.dev_features import File, in_order, read_feature
from codehub.domain.dev_image import (
    Build,
    DevImage,
    Pull,
    decode_dev_image,
    encode_dev_image,
    forbidden_base,
    places_of,
    plan_image,
)
from codehub.domain.devcontainer import parse_devcontainer
from codehub.domain.errors import Invalid
from codehub.domain.images import parse_image
from codehub.domain.profiles import Catalog, Runs
from codehub.workspaced import dockerignore


def _feature(**metadata: object) -> dict[str, File]:
    text = json.dumps({"id": "tool", **metadata})
    return {"devcontainer-feature.json": File(text.encode()), "install.sh": File(b"true\n", executable=True)}


def _plan(
    document: dict[str, object],
    dockerfile: str = "",
    features: dict[str, dict[str, File]] | None = None,
    lock: bytes = b"",
) -> Pull | Build:
    wanted = parse_devcontainer(json.dumps(document), containers=True, folder="/home/coder/app", home="/home/coder")
    places = places_of(wanted, "app", ".devcontainer/devcontainer.json")
    return plan_image(wanted, places, dockerfile, features or {}, lock)


def test_an_image_alone_is_pulled_and_a_dockerfile_is_built() -> None:
    pulled = _plan({"image": "node:22"})
    assert isinstance(pulled, Pull)
    assert pulled.bases == ("node:22",)
    built = _plan(
        {"build": {"dockerfile": "Dockerfile", "context": "..", "target": "dev"}}, "FROM a AS dev\nFROM b\n"
    )
    assert isinstance(built, Build)
    assert (built.context, built.bases, built.recipe.text) == ("app", ("a",), "FROM a AS dev\n")


def test_features_are_installed_on_top_with_their_options_as_variables() -> None:
    document: dict[str, object] = {"image": "debian:12", "features": {"./tool": {"version": "it's", "useIt": True}}}
    options = {"version": {"default": "1"}, "useIt": {"default": False}, "9-a.b": {"default": "x"}}
    files = {"./tool": _feature(options=options, containerEnv={"PATH": "/opt/x:${PATH}"}, mounts=["x"])}
    built = _plan(document, features=files)
    assert isinstance(built, Build)
    assert built.context is None
    lines = built.feature_lines("debian:12").splitlines()
    assert lines[:3] == ["FROM debian:12", "USER root", "COPY 0 /tmp/codehub-features/0"]
    (script,) = json.loads(lines[3].removeprefix("RUN "))[2:]
    assert """VERSION='it'"'"'s' USEIT=true _A_B=x _REMOTE_USER=coder""" in script
    assert lines[4] == 'ENV PATH="/opt/x:${PATH}"'
    assert set(built.feature_files()) == {"0/devcontainer-feature.json", "0/install.sh"}
    assert built.features[0].ignored == ("mounts",)


def test_the_digest_follows_from_everything_that_the_image_is_made_of() -> None:
    document: dict[str, object] = {"build": {"dockerfile": "Dockerfile"}, "features": {"./tool": {}}}
    files = {"./tool": _feature()}
    plans = [
        _plan(document, "FROM a", files),
        _plan(document, "FROM b", files),
        _plan(document, "FROM a", {"./tool": {**_feature(), "more": File(b"x")}}),
        _plan(document, "FROM a", files, lock=b"{}"),
        _plan({**document, "build": {"dockerfile": "Dockerfile", "args": {"A": "1"}}}, "FROM a", files),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert _plan(document, "# only a comment\nFROM a", files).digest == plans[0].digest


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"image": "a", "features": {"ghcr.example/x:1": {}}}, "registry"),
        ({"image": "a", "features": {"./../../x": {}}}, "leads out"),
        ({"build": {"dockerfile": "../Dockerfile", "context": "../.."}}, "leaves|leads out"),
        ({"features": {"./tool": {}}}, "need an image"),
        ({"image": "a", "features": {"./tool": {"none": 1}}}, "no option"),
    ],
)
def test_what_cannot_be_built_says_why(document: dict[str, object], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        _plan(document, "FROM a", {"./tool": _feature(options={"version": {"default": "1"}})})


def test_features_are_installed_after_those_that_they_name() -> None:
    first, second = _feature(), _feature(installsAfter=["ghcr.example/features/tool:1", "./tool"])
    named = [
        read_feature(
            "./b",
            {},
            {
                **second,
                "devcontainer-feature.json": _feature(id="b", installsAfter=["./tool"])["devcontainer-feature.json"],
            },
        ),
        read_feature("./tool", {}, first),
    ]
    assert [feature.key for feature in in_order(named)] == ["./tool", "./b"]
    circle = [
        read_feature("./x", {}, _feature(id="x", installsAfter=["y"])),
        read_feature("./y", {}, _feature(id="y", installsAfter=["x"])),
    ]
    assert [feature.key for feature in in_order(circle)] == ["./x", "./y"]


def test_every_image_that_a_build_starts_from_is_checked_by_the_catalogs_rule() -> None:
    catalog = Catalog(allowed_images=("node:*",))

    def check(image: str) -> None:
        catalog.resolve(str(parse_image(image)), Runs.IMAGE)

    assert forbidden_base(("node:22", "codehub/code-server:1"), check) == ""
    assert "CODEHUB_ALLOWED_IMAGES" in forbidden_base(("node:22", "evil:1"), check)
    # A profile's name is no image: the engine would pull it from the internet.
    assert forbidden_base(("code-server",), check)


def test_the_image_of_a_row_survives_its_column() -> None:
    image = DevImage("d", "localhost/x:d", ("a", "b"))
    assert decode_dev_image(encode_dev_image(image)) == image
    assert decode_dev_image(None) is None


@pytest.mark.parametrize(
    ("text", "out", "stays"),
    [
        ("node_modules\n*.log", ["node_modules", "node_modules/a/b", "x.log"], ["a/x.log", "node_modules2"]),
        ("**/x\n/top", ["x", "a/b/x", "top", "top/a"], ["a/top", "xx"]),
        ("a/**", ["a/b", "a/b/c"], ["ab"]),
        ("*\n!keep.txt\n!src", ["other", "deep/file"], ["keep.txt", "src", "src/a"]),
        ("# c\n\n.git\n./b/", [".git", ".git/HEAD", "b/c"], [".gitignore", "c"]),
        ("a?c\n\\!x", ["abc", "!x"], ["ac", "a/c"]),
    ],
)
def test_dockerignore_leaves_out_what_docker_leaves_out(text: str, out: list[str], stays: list[str]) -> None:
    left_out = dockerignore.ignores(text)
    assert [path for path in out if not left_out(path, False)] == []
    assert [path for path in stays if left_out(path, False)] == []


def test_a_folder_stays_while_an_exception_could_keep_something_in_it() -> None:
    assert dockerignore.ignores("a")("a", True)
    assert not dockerignore.ignores("a\n!a/b")("a", True)
