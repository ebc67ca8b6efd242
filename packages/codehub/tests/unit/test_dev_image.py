"""Images of devcontainer.json: what is planned, how features are installed, and what leaves a build's context out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from codehub.domain.dev_features import Feature, File, in_order, read_feature
from codehub.domain.dev_image import (
    Build,
    DevImage,
    Pull,
    decode_dev_image,
    encode_dev_image,
    feature_files,
    feature_lines,
    forbidden_base,
    places_of,
    plan_image,
)
from codehub.domain.devcontainer import parse_devcontainer
from codehub.domain.errors import Invalid
from codehub.domain.feature_refs import FeatureRules, parse_feature_ref
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
    wanted = parse_devcontainer(
        json.dumps(document), containers=True, folder="/home/coder/app", home="/home/coder", workspace_id="ws1"
    )
    places = places_of(wanted, "app", ".devcontainer/devcontainer.json")
    return plan_image(wanted, places, dockerfile, features or {}, lock, FeatureRules(("registry.example/*",)))


def test_an_image_alone_is_pulled_and_a_dockerfile_is_built() -> None:
    pulled = _plan({"image": "node:22"})
    assert isinstance(pulled, Pull)
    assert pulled.bases == ("node:22",)
    built = _plan(
        {"build": {"dockerfile": "Dockerfile", "context": "..", "target": "dev"}}, "FROM a AS dev\nFROM b\n"
    )
    assert isinstance(built, Build)
    assert (built.context, built.bases, built.recipe.text) == ("app", ("a:latest",), "FROM a:latest AS dev\n")


def test_a_lone_surrogate_is_the_name_of_nothing_and_no_error_of_ours() -> None:
    with pytest.raises(Invalid, match="is not an image reference"):
        _plan({"image": "\ud800"})
    first = ["\ud800", "\udc80"]
    assert _plan(
        {"image": "a", "features": {"registry.example/x:1": {}}, "overrideFeatureInstallOrder": first}
    ).digest


def test_features_are_installed_on_top_with_their_options_as_variables() -> None:
    given = {"version": "it's", "useIt": True}
    document: dict[str, object] = {"image": "debian:12", "features": {"./tool": given}}
    options = {"version": {"default": "1"}, "useIt": {"default": False}, "9-a.b": {"default": "x"}}
    files = {"./tool": _feature(options=options, containerEnv={"PATH": "/opt/x:${PATH}"}, mounts=["x"])}
    built = _plan(document, features=files)
    assert isinstance(built, Build)
    assert built.context is None
    features = [read_feature("./tool", given, files["./tool"])]
    lines = feature_lines("debian:12", features).splitlines()
    assert lines[:3] == ["FROM debian:12", "USER root", "COPY 0 /tmp/codehub-features/0"]
    (script,) = json.loads(lines[3].removeprefix("RUN "))[2:]
    assert """VERSION='it'"'"'s' USEIT=true _A_B=x _REMOTE_USER=coder""" in script
    assert lines[4] == 'ENV PATH="/opt/x:${PATH}"'
    assert set(feature_files(features)) == {"0/devcontainer-feature.json", "0/install.sh"}
    assert built.ignored == [("./tool", "mounts")]


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
        ({"image": "a", "features": {"ghcr.example/x:1": {}}}, "CODEHUB_ALLOWED_FEATURES"),
        ({"image": "a", "features": {"devcontainers/features/x:1": {}}}, "is not a feature"),
        ({"image": "a", "features": {"https://example.org/x.tgz": {}}}, "is not a feature"),
        ({"image": "a", "features": {"registry.example/x@md5:" + "0" * 32: {}}}, "is not a feature"),
        ({"image": "a", "features": {f"./{n}": {} for n in range(21)}}, "more than 20"),
        ({"image": "a", "features": {"./tool": {"version": "3"}}}, "is one of 1, 2"),
        ({"image": "a", "features": {"./../../x": {}}}, "leads out"),
        ({"build": {"dockerfile": "../Dockerfile", "context": "../.."}}, "leaves|leads out"),
        ({"features": {"./tool": {}}}, "need an image"),
        ({"image": "a", "features": {"./tool": {"none": 1}}}, "no option"),
        ({"image": "a", "features": {"./tool": 1}}, "an object or a version"),
    ],
)
def test_what_cannot_be_built_says_why(document: dict[str, object], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        _plan(document, "FROM a", {"./tool": _feature(options={"version": {"default": "1", "enum": ["1", "2"]}})})


_DIGEST = "sha256:" + "0" * 64


def _lock(**entry: str) -> bytes:
    return json.dumps({"features": {"registry.example/x:1": entry}}).encode()


@pytest.mark.parametrize(
    "lock",
    [
        b"{",
        b"[]",
        b'{"features": []}',
        b'{"features": {"registry.example/x:1": {}}}',
        _lock(resolved=f"registry.example/other@{_DIGEST}"),
        _lock(resolved=f"registry.example/x@{_DIGEST}", integrity="sha256:1"),
    ],
)
def test_a_lock_file_that_pins_nothing_is_refused(lock: bytes) -> None:
    with pytest.raises(Invalid, match=r"devcontainer-lock\.json"):
        _plan({"image": "a", "features": {"registry.example/x:1": {}}}, lock=lock)


def test_the_administrator_names_the_registries_and_a_pattern_names_no_host() -> None:
    rules = FeatureRules(("Registry.example:5000/team/*", "*.example/*", "10.0.0.?/x", "node:*"))
    assert rules.named_hosts == {"registry.example:5000"}
    rules.check(parse_feature_ref("a.example/x:1"))
    with pytest.raises(Invalid, match="not allowed"):
        rules.check(parse_feature_ref("registry.example:5000/other/x:1"))


def test_features_are_ordered_by_what_they_need_then_by_what_they_prefer() -> None:
    def feature(key: str, **metadata: object) -> Feature:
        return read_feature(key, {}, _feature(id=key.rsplit("/", 1)[-1].partition(":")[0], **metadata))

    common = feature("r.example/f/common:2", installsAfter=["r.example/f/late"])
    python = feature("r.example/f/python:1", installsAfter=["r.example/f/common"])
    late = replace(feature("r.example/f/late:1"), needs=frozenset({common.identity}))
    # `common` would like to come after `late`, but `late` needs it.
    assert [f.id for f in in_order([python, late, common])] == ["common", "python", "late"]
    free = [feature("./a"), feature("./b"), feature("r.example/f/c:1")]
    assert [f.id for f in in_order(free, ("r.example/f/c", "./b"))] == ["c", "b", "a"]


def test_features_that_need_each_other_are_refused() -> None:
    one, other = (read_feature(key, {}, _feature(id=key)) for key in ("r.example/f/one:1", "r.example/f/other:1"))
    circle = [replace(one, needs=frozenset({other.identity})), replace(other, needs=frozenset({one.identity}))]
    with pytest.raises(Invalid, match="depends on itself"):
        in_order(circle)


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


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"options": []}, "options is an object"),
        ({"options": {f"o{n}": {} for n in range(101)}}, "options is an object"),
        ({"containerEnv": []}, "containerEnv holds texts"),
        ({"containerEnv": {"A": 1}}, "containerEnv holds texts"),
        ({"containerEnv": {"A B": "1"}}, "containerEnv holds texts"),
        ({"installsAfter": ["x"] * 101}, "at most 100 features"),
        ({"dependsOn": []}, "at most 20 features"),
        ({"dependsOn": {f"./{n}": {} for n in range(21)}}, "at most 20 features"),
    ],
)
def test_a_feature_that_describes_itself_wrongly_is_refused(metadata: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_feature("./tool", {}, _feature(**metadata))


def test_a_feature_may_hold_as_much_as_is_allowed() -> None:
    found = read_feature(
        "./tool",
        {},
        _feature(
            options={f"o{n}": {} for n in range(100)},
            containerEnv={"A": "1"},
            installsAfter=["x"] * 100,
            dependsOn={f"./{n}": {} for n in range(20)},
        ),
    )
    assert (len(found.options), found.env, len(found.installs_after), len(found.depends_on)) == (
        100,
        {"A": "1"},
        100,
        20,
    )
    assert read_feature("./tool", {}, _feature(installsAfter="x")).installs_after == ()


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
    reported = replace(image, ignored=(("./tool", "mounts"),))
    assert decode_dev_image(encode_dev_image(reported)) == reported
    assert decode_dev_image({"digest": "d", "ref": "localhost/x:d", "bases": ["a", "b"]}) == image  # an older row
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


def test_a_feature_names_at_most_100_others_that_it_is_installed_after() -> None:
    """Ordering twenty features with 40,000 names each took seconds, in which the coordinator did nothing else."""
    assert len(read_feature("./a", {}, _feature(installsAfter=["x"] * 100)).installs_after) == 100
    with pytest.raises(Invalid, match="at most 100"):
        read_feature("./a", {}, _feature(installsAfter=["x"] * 101))
    assert read_feature("./a", {}, _feature(installsAfter=["x", [], 1])).installs_after == ("x",)


def test_metadata_of_a_feature_is_small() -> None:
    """Parsing twenty files of 128 KiB took more than a second, in which the coordinator did nothing else."""
    with pytest.raises(Invalid, match="32 KiB"):
        read_feature("./a", {}, _feature(description="x" * (32 << 10)))
