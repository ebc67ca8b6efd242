"""Features of devcontainer.json that come from a registry: when they are fetched, pinned, and why not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from codehub.domain.errors import Invalid
from testing.codehub.dev_image_world import a_status, a_world, described, prepared

_HOST = "registry.example/team"


def test_features_of_a_registry_are_fetched_when_the_image_is_made_and_never_at_wake() -> None:
    world = a_world()
    world.registry = {
        f"{_HOST}/tool": {
            "id": "tool",
            "options": {"version": {"default": "1"}},
            "dependsOn": {f"{_HOST}/base:2": {}},
            "entrypoint": "/x",
        },
        f"{_HOST}/base": {"id": "base", "privileged": True},
    }
    document: dict[str, object] = {"image": "node:22", "features": {f"{_HOST}/tool:1": "3"}}
    assert described(world, document)["image"]["state"] == "auto"
    assert world.fetched == []
    assert prepared(world, document) == {"restart": True}
    assert world.fetched == [f"{_HOST}/tool:1", f"{_HOST}/base:2"]
    base, tool = [line for line in world.installed.splitlines() if line.startswith("RUN ")]
    assert "VERSION=3" in tool
    assert "VERSION" not in base
    # At the next start the row says which image it is and what of its features has no effect.
    made = world.row.dev_image_next
    assert made is not None
    applied = replace(a_world(dev_image=made), images={made.ref})
    again = described(applied, document, a_status(made.ref))
    assert again["image"]["state"] == "applied"
    assert [key for key, _ in again["ignored"]][1:] == [f"{_HOST}/base:2 privileged", f"{_HOST}/tool:1 entrypoint"]
    assert applied.fetched == []


def test_a_lock_file_pins_the_features_it_names() -> None:
    digest = "sha256:" + "a" * 64
    entry = {"version": "1.0.0", "resolved": f"{_HOST}/tool@{digest}", "integrity": digest}
    world = a_world()
    world.registry = {f"{_HOST}/tool": {"id": "tool"}}
    world.files["app/.devcontainer-lock.json"] = json.dumps({"features": {f"{_HOST}/tool:1": entry}}).encode()
    document: dict[str, object] = {"image": "node:22", "features": {f"{_HOST}/tool:1": {}}}
    prepared(world, document)
    assert world.fetched == [f"{_HOST}/tool:1@{digest}"]


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ({"evil.example/tool:1": {}}, "CODEHUB_ALLOWED_FEATURES"),
        ({f"{_HOST}/needs-evil:1": {}}, "evil.example/x:latest is not allowed"),
        ({f"{_HOST}/circle:1": {}}, "depends on itself"),
        ({f"{_HOST}/needs-local:1": {}}, "add it to the features"),
        ({f"{_HOST}/absent:1": {}}, "there is none"),
        ({f"{_HOST}/long-0:1": {}}, "more than 20 features"),
        ({f"{_HOST}/tool:1": {"none": "x"}}, "has no option"),
    ],
)
def test_features_that_cannot_be_installed_say_why(features: dict[str, object], why: str) -> None:
    world = a_world()
    needs = {
        "needs-evil": "evil.example/x",
        "circle": f"{_HOST}/round:1",
        "round": f"{_HOST}/circle:1",
        "needs-local": "./here",
        **{f"long-{number}": f"{_HOST}/long-{number + 1}:1" for number in range(30)},
    }
    world.registry = {
        f"{_HOST}/{name}": {"id": name, "dependsOn": {other: {}} if other else {}}
        for name, other in {**needs, "tool": ""}.items()
    }
    with pytest.raises(Invalid, match=why):
        prepared(world, {"image": "node:22", "features": features})
    assert world.built == []
    assert not [ref for ref in world.fetched if ref.startswith("evil")]
