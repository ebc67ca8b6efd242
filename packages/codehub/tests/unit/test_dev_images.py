"""What becomes of an image that devcontainer.json requests: who may have it, when it is applied, and how many are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import pytest

from codehub.control.dev_images import DevImageDeps, DevImages
from codehub.domain.dev_features import File
from codehub.domain.dev_image import DevImage
from codehub.domain.errors import Invalid, Transient
from codehub.domain.feature_refs import FeatureRules
from codehub.domain.images import ImageRef, parse_image
from codehub.domain.model import Workspace
from codehub.domain.profiles import CODE_SERVER, AppProfile, Catalog, Runs
from codehub.ports.control_store import Versioned
from codehub.ports.feature_source import FetchedFeature
from codehub.ports.image_builds import BuildNews, BuildOrder
from codehub.ports.instances import InstanceStatus, Upstream
from testing.codehub.simulation.loop import VirtualLoop, run_virtual
from testing.codehub.workspaces import workspace

_CATALOG = Catalog(allowed_images=("node:*",))
_RULES = FeatureRules(("registry.example/team/*",))


@dataclass
class World:
    """An engine, a workspace's files and its row, as far as these tests use them."""

    row: Workspace
    files: dict[str, bytes] = field(default_factory=dict)
    backend: str = "local-docker"
    images: set[str] = field(default_factory=set)
    built: list[str] = field(default_factory=list)
    at_once: list[int] = field(default_factory=lambda: [0, 0])  # now, and at most
    takes_s: float = 1.0
    fails: str = ""
    epoch: int = 1
    dropped: list[str] = field(default_factory=list)
    registry: dict[str, dict[str, object]] = field(default_factory=dict)  # a feature's name → its metadata
    fetched: list[str] = field(default_factory=list)
    installed: str = ""  # the Dockerfile of the last build
    owners: dict[str, str] = field(default_factory=dict)  # of workspaces that are not the row's owner's

    def ref(self, digest: str) -> str:
        return f"localhost/dev:{digest}"

    async def exists(self, ref: str) -> bool:
        return ref in self.images

    async def why_not(self, ref: str, profile: AppProfile) -> str:
        return "" if ref in self.images else "the image is not there"

    async def pull(self, image: str, tell: Callable[[BuildNews], None]) -> None:
        self.images.add(image)

    async def build(self, order: BuildOrder, context: object, tell: Callable[[BuildNews], None]) -> None:
        self.at_once[0] += 1
        self.at_once[1] = max(self.at_once)
        try:
            await asyncio.sleep(self.takes_s)
            if self.fails:
                raise Transient(self.fails)
        finally:
            self.at_once[0] -= 1
        self.installed = order.dockerfile
        self.built.append(order.ref)
        self.images.add(order.ref)

    async def remove(self, ref: str) -> None:
        self.images.discard(ref)

    async def collect(self, used: object, fence: object) -> int:
        return 0

    async def read(self, upstream: Upstream, path: str, most: int) -> bytes | None:
        return self.files.get(path)

    async def folder(self, upstream: Upstream, path: str, most: int) -> dict[str, File] | None:
        metadata = self.files.get(path)
        if metadata is None:
            return None
        return {"devcontainer-feature.json": File(metadata), "install.sh": File(b"true")}

    @asynccontextmanager
    async def context(self, upstream: Upstream, path: str, most: int) -> AsyncIterator[None]:
        yield None

    async def put_next(self, epoch: int, workspace_id: str, instance: str, image: DevImage) -> bool:
        self.row = replace(self.row, dev_image_next=image)
        return True

    async def drop(self, epoch: int, workspace_id: str, digest: str) -> None:
        self.dropped.append(digest)

    async def used(self) -> list[str]:
        return []

    async def load(self, ids: Sequence[str]) -> list[Versioned]:
        owner = self.owners.get(ids[0], self.row.owner_user_id)
        return [Versioned(replace(self.row, id=ids[0], owner_user_id=owner), "1")]

    def fence(self) -> None:
        pass

    async def fetch(self, ref: ImageRef) -> FetchedFeature:
        self.fetched.append(str(ref))
        if ref.name not in self.registry:
            raise Invalid(f"the feature {ref} cannot be fetched: there is none")
        text = json.dumps(self.registry[ref.name]).encode()
        return FetchedFeature(
            "sha256:" + "1" * 64, {"devcontainer-feature.json": File(text), "install.sh": File(b"true")}
        )


def _check(image: str) -> None:
    _CATALOG.resolve(str(parse_image(image)), Runs.IMAGE)


def _question(document: dict[str, object]) -> dict[str, object]:
    text = json.dumps(document)
    return {
        "text": text,
        "folder": "/home/coder/app",
        "home": "/home/coder",
        "file": ".devcontainer.json",
        "clone": "app",
    }


def _status(image: str = "codehub/code-server:1") -> InstanceStatus:
    return InstanceStatus(True, True, "start-1", image=image, workspaced=Upstream("start-1"))


def _world(**row: Any) -> World:
    made = replace(workspace(), instance_backend="local-docker", dev_image_auto=True, **row)
    return World(made, {"app/Dockerfile": b"FROM node:22\nRUN true\n"})


def _run(
    world: World,
    act: Callable[[DevImages], Coroutine[Any, Any, Any]],
    *,
    builds: bool = True,
    profile: AppProfile = CODE_SERVER,
) -> Any:
    loop = VirtualLoop()

    async def main() -> Any:
        some = cast(Any, world)
        places = (f"place-{number}" for number in count())
        deps = DevImageDeps(
            some, some, some, _check, lambda row: ("x", profile), lambda: next(places), some, _RULES, builds
        )
        images = DevImages(deps, some, some)
        running = asyncio.create_task(images.run())
        await asyncio.sleep(0)
        try:
            return await act(images)
        finally:
            running.cancel()
            await asyncio.wait([running])

    return run_virtual(main(), loop)


def _described(world: World, document: dict[str, object], status: InstanceStatus | None = None, **how: Any) -> Any:
    answer: dict[str, object] = {"ignored": [["mounts", "is not allowed"]]}
    question = how.pop("question", None) or _question(document)
    return _run(world, lambda images: images.describe("w", status or _status(), question, answer), **how)


_IMAGE: dict[str, object] = {"image": "node:22"}
_BUILD: dict[str, object] = {"build": {"dockerfile": "Dockerfile"}}


def test_an_allowed_image_is_applied_and_a_build_only_where_an_administrator_switched_it_on() -> None:
    assert _described(_world(), _IMAGE, builds=False)["image"]["state"] == "auto"
    assert _described(_world(), _BUILD)["image"]["state"] == "auto"
    off = _described(_world(), _BUILD, builds=False)
    assert "image" not in off
    assert off["ignored"][1] == [
        "build",
        "is not built here: an administrator can allow it (CODEHUB_DEVCONTAINER_BUILDS)",
    ]
    both = _described(_world(), {"image": "node:22", "features": {"./x": {}}}, builds=False)
    assert [key for key, _ in both["ignored"]] == ["mounts", "image", "features"]


@pytest.mark.parametrize(
    ("world", "document", "why"),
    [
        (_world(), {"image": "evil:1"}, "CODEHUB_ALLOWED_IMAGES"),
        (_world(), {"build": {"dockerfile": "None"}}, "app/None is not in the repository"),
        (replace(_world(), files={"app/Dockerfile": b"FROM evil\n"}), _BUILD, "CODEHUB_ALLOWED_IMAGES"),
        (replace(_world(), files={"app/Dockerfile": b"ADD http://x /\n"}), _BUILD, "line 1"),
        (World(workspace()), _IMAGE, "on Docker only"),
    ],
)
def test_what_is_not_applied_says_why(world: World, document: dict[str, object], why: str) -> None:
    found = _described(world, document)
    assert "image" not in found
    assert why in found["ignored"][-1][1]


def test_where_workspaces_are_processes_nothing_is_said_twice() -> None:
    answer: dict[str, object] = {"ignored": [["image", "needs a container: workspaces run as processes here"]]}
    world = World(workspace())
    found = _run(world, lambda images: images.describe("w", _status(), _question(_IMAGE), answer))
    assert found == answer


def test_what_a_feature_requests_of_the_container_is_said_to_have_no_effect() -> None:
    world = _world()
    world.files["app/tool"] = b'{"id": "tool", "mounts": ["source=/,target=/host"], "privileged": true}'
    found = _described(world, {"image": "node:22", "features": {"./tool": {}}})
    assert found["image"]["state"] == "auto"
    assert [key for key, _ in found["ignored"]] == ["mounts", "./tool mounts", "./tool privileged"]


def test_a_helper_of_an_older_version_gets_its_image_at_the_next_start() -> None:
    found = _described(_world(), _IMAGE, question={"text": json.dumps(_IMAGE), "folder": "/x", "home": "/"})
    assert "stopped and started" in found["ignored"][-1][1]


def test_only_the_first_image_is_applied_without_asking() -> None:
    world = _world()
    digest = _run(world, lambda images: images.prepare("w", _status(), _question(_IMAGE), lambda news: None)) and (
        world.row.dev_image_next
    )
    assert digest is not None
    assert digest.bases == ("node:22",)
    applied = replace(_world(dev_image=digest), images={"node:22"})
    assert _described(applied, _IMAGE, _status("node:22"))["image"]["state"] == "applied"
    assert _described(applied, {"image": "node:23"}, _status("node:22"))["image"]["state"] == "offered"
    # Made by an older version of CodeHub: its owner decides.
    old = World(replace(workspace(), instance_backend="local-docker"))
    assert _described(old, _IMAGE)["image"]["state"] == "offered"
    # Removed from the engine meanwhile: prepared again.
    assert _described(replace(applied, images=set()), _IMAGE)["image"]["state"] == "auto"
    # It is there, but the workspace runs with another one: it did not start with it.
    failed = _described(applied, _IMAGE)
    assert failed["image"]["state"] == "failed"
    assert applied.dropped == [digest.digest]


def test_an_image_is_built_once_for_all_that_wait_for_it_and_two_at_once() -> None:
    world = _world()

    async def same(images: DevImages) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(images.prepare("w", _status(), _question(_BUILD), lambda news: None))

    _run(world, same)
    assert len(world.built) == 1

    async def several(images: DevImages) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(images.prepare(f"w{number}", _status(), _question(_BUILD), lambda news: None))

    crowd = _world()
    _run(crowd, several)
    assert crowd.at_once[1] == 2


def test_a_workspace_that_never_sends_its_files_keeps_no_slot_for_ever() -> None:
    class Silent(World):
        @asynccontextmanager
        async def context(self, upstream: Upstream, path: str, most: int) -> AsyncIterator[None]:
            await asyncio.Event().wait()
            yield None

    world = Silent(_world().row, _world().files)

    async def several(images: DevImages) -> list[Any]:
        return await asyncio.gather(
            *(images.prepare(f"w{number}", _status(), _question(_BUILD), lambda news: None) for number in range(4)),
            return_exceptions=True,
        )

    assert [str(error) for error in _run(world, several)] == ["it took too long"] * 4


def test_large_files_of_a_build_are_checked_at_the_pace_of_their_owner() -> None:
    """A Dockerfile of 256 KiB takes a tenth of a second, in which the coordinator does nothing else."""
    world = _world()
    world.files["app/Dockerfile"] = b"FROM node:22\n" + b"RUN true\n" * 28_000
    world.owners["w-other"] = "another"
    loop_times: dict[str, float] = {}

    async def flood(images: DevImages) -> None:
        async def describe(workspace_id: str) -> None:
            answer: dict[str, object] = {"ignored": []}
            await images.describe(workspace_id, _status(), _question(_BUILD), answer)
            loop_times[workspace_id] = asyncio.get_running_loop().time()

        begun = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(describe(f"w{number}"))
            group.create_task(describe("w-other"))
        assert loop_times["w-other"] == begun
        assert max(loop_times.values()) - begun > 20

    _run(world, flood)


def test_a_user_with_many_builds_does_not_make_another_wait_for_all_of_them() -> None:
    world = _world()
    world.owners["w-other"] = "another"

    async def other_last(images: DevImages) -> int:
        async def build(workspace_id: str) -> None:
            await images.prepare(workspace_id, _status(), _question(_BUILD), lambda news: None)

        crowd = [asyncio.create_task(build(f"w{number}")) for number in range(20)]
        while world.at_once[0] < 2:
            await asyncio.sleep(0)
        await build("w-other")
        before = len(world.built)
        await asyncio.gather(*crowd)
        return before

    assert _run(world, other_last) <= 4
    assert len(world.built) == 21


_HOST = "registry.example/team"


def _prepared(world: World, document: dict[str, object]) -> Any:
    return _run(world, lambda images: images.prepare("w", _status(), _question(document), lambda news: None))


def test_features_of_a_registry_are_fetched_when_the_image_is_made_and_never_at_wake() -> None:
    world = _world()
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
    assert _described(world, document)["image"]["state"] == "auto"
    assert world.fetched == []
    assert _prepared(world, document) == {"restart": True}
    assert world.fetched == [f"{_HOST}/tool:1", f"{_HOST}/base:2"]
    base, tool = [line for line in world.installed.splitlines() if line.startswith("RUN ")]
    assert "VERSION=3" in tool
    assert "VERSION" not in base
    # At the next start the row says which image it is and what of its features has no effect.
    made = world.row.dev_image_next
    assert made is not None
    applied = replace(_world(dev_image=made), images={made.ref})
    again = _described(applied, document, _status(made.ref))
    assert again["image"]["state"] == "applied"
    assert [key for key, _ in again["ignored"]][1:] == [f"{_HOST}/base:2 privileged", f"{_HOST}/tool:1 entrypoint"]
    assert applied.fetched == []


def test_a_lock_file_pins_the_features_it_names() -> None:
    digest = "sha256:" + "a" * 64
    entry = {"version": "1.0.0", "resolved": f"{_HOST}/tool@{digest}", "integrity": digest}
    world = _world()
    world.registry = {f"{_HOST}/tool": {"id": "tool"}}
    world.files["app/.devcontainer-lock.json"] = json.dumps({"features": {f"{_HOST}/tool:1": entry}}).encode()
    document: dict[str, object] = {"image": "node:22", "features": {f"{_HOST}/tool:1": {}}}
    _prepared(world, document)
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
    world = _world()
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
        _prepared(world, {"image": "node:22", "features": features})
    assert world.built == []
    assert not [ref for ref in world.fetched if ref.startswith("evil")]


def test_no_build_replaces_the_image_of_another_workspace() -> None:
    # The same Dockerfile can copy other files: each build has a name of its own.
    world = _world()

    async def both(images: DevImages) -> None:
        for each in ("a", "b"):
            await images.prepare(each, _status(), _question(_BUILD), lambda news: None)

    _run(world, both)
    assert len(world.built) == len(set(world.built)) == 2


def test_a_build_that_fails_leaves_the_row_alone_and_one_that_nobody_waits_for_ends() -> None:
    world = replace(_world(), fails="exit 5")
    with pytest.raises(Invalid, match="exit 5"):
        _run(world, lambda images: images.prepare("w", _status(), _question(_BUILD), lambda news: None))
    assert world.row.dev_image_next is None
    endless = replace(_world(), takes_s=1e6)

    async def abandoned(images: DevImages) -> None:
        waiting = asyncio.create_task(images.prepare("w", _status(), _question(_BUILD), lambda news: None))
        await asyncio.sleep(5)
        assert endless.at_once[0] == 1
        images.abandon("w")
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    _run(endless, abandoned)
    assert endless.at_once[0] == 0


def test_an_image_that_is_no_longer_allowed_or_there_is_not_started() -> None:
    world = replace(_world(), images={"a", "b"})

    async def usable(images: DevImages) -> list[bool]:
        found = [DevImage("d", "a", ("node:1",)), DevImage("d", "b", ("evil",)), DevImage("d", "c", ("node:1",))]
        return [await images.usable(image) for image in found]

    assert _run(world, usable) == [True, False, False]
