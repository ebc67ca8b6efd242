"""Every image that our recipes and deployments start from is ours, or named by its digest: a tag can change its content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
RECIPES = sorted([ROOT / "Dockerfile", *ROOT.glob("images/*/Dockerfile")])
DEPLOYMENTS = sorted((ROOT / "deploy").rglob("*.yaml"))
_PINNED = re.compile(r"[a-z0-9./-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}")
_OURS = re.compile(r"codehub(/[a-z-]+)?(:1)?")


def bases(recipe: str) -> Iterator[str]:
    """Every image that a recipe takes something from, with the defaults of its build arguments put in."""
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)", recipe, re.M))
    stages: set[str] = set()
    for line in recipe.splitlines():
        for found in re.findall(r"^FROM (?:--\S+ )*(\S+)|^COPY .*--from=(\S+)|--mount=\S*from=([^,\s]+)", line):
            name = re.sub(r"\$\{?(\w+)\}?", lambda match: defaults.get(match[1], ""), next(filter(None, found)))
            if name not in stages:
                yield name
        stages |= set(re.findall(r"^FROM .* AS (\S+)", line))


def images(node: object) -> Iterator[str]:
    """Every `image:` of a document."""
    match node:
        case dict():
            for key, value in node.items():
                if key == "image" and isinstance(value, str):
                    yield value
                yield from images(value)
        case list():
            for value in node:
                yield from images(value)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_starts_from_images_named_by_digest(path: Path) -> None:
    found = list(bases(path.read_text(encoding="utf-8")))
    assert found
    assert [name for name in found if not _PINNED.fullmatch(name)] == []


def test_the_images_of_workspaces_share_one_base_which_the_build_reads_from_them() -> None:
    named = {base for path in ROOT.glob("images/*/Dockerfile") for base in bases(path.read_text(encoding="utf-8"))}
    assert len(named) == 1
    assert "@sha256:" not in (ROOT / "images/build.sh").read_text(encoding="utf-8")


def test_a_deployment_runs_our_images_and_others_by_digest() -> None:
    found = {
        name: path.name
        for path in DEPLOYMENTS
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        for name in images(document)
    }
    assert {"codehub", "codehub/code-server:1"} <= found.keys()
    assert {name: found[name] for name in found if not (_PINNED.fullmatch(name) or _OURS.fullmatch(name))} == {}


@pytest.mark.parametrize(
    "recipe",
    [
        "FROM debian:12\n",
        "ARG BASE=debian:12\nFROM ${BASE}\n",
        "ARG BASE\nFROM $BASE AS a\nFROM a\n",
        f"FROM debian:12@sha256:{'0' * 64}\nCOPY --from=node:22 /a /b\n",
        f"FROM debian:12@sha256:{'0' * 64}\nRUN --mount=type=bind,from=node:22,target=/n true\n",
    ],
)
def test_a_recipe_with_an_image_by_tag_is_noticed(recipe: str) -> None:
    assert not all(_PINNED.fullmatch(name) for name in bases(recipe))


def test_what_pip_installs_in_recipes_and_scripts_is_checked_against_hashes() -> None:
    """Or comes from the repository itself, or from wheels that were checked when they were downloaded."""
    checked = re.compile(r"--require-hashes|--no-index|--no-deps[^\n]*(packages/codehub|-e packages/)")
    paths = [*RECIPES, *ROOT.glob("images/*.sh"), *ROOT.glob("scripts/**/*.sh")]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()]
    found = [
        line for line in lines if re.search(r"pip[\"']? (install|download) ", line) and "python3-pip" not in line
    ]
    assert len(found) >= 5
    assert [line for line in found if not checked.search(line)] == []
