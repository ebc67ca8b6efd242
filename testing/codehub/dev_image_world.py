"""An engine, a workspace's files and its row, as far as tests of the images of devcontainer.json use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

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


def check(image: str) -> None:
    _CATALOG.resolve(str(parse_image(image)), Runs.IMAGE)


def a_question(document: dict[str, object]) -> dict[str, object]:
    text = json.dumps(document)
    return {
        "text": text,
        "folder": "/home/coder/app",
        "home": "/home/coder",
        "file": ".devcontainer.json",
        "clone": "app",
    }


def a_status(image: str = "codehub/code-server:1") -> InstanceStatus:
    return InstanceStatus(True, True, "start-1", image=image, workspaced=Upstream("start-1"))


def a_world(**row: Any) -> World:
    made = replace(workspace(), instance_backend="local-docker", dev_image_auto=True, **row)
    return World(made, {"app/Dockerfile": b"FROM node:22\nRUN true\n"})


def run(
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
            some, some, some, check, lambda row: ("x", profile), lambda: next(places), some, _RULES, builds
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


def described(world: World, document: dict[str, object], status: InstanceStatus | None = None, **how: Any) -> Any:
    answer: dict[str, object] = {"ignored": [["mounts", "is not allowed"]]}
    question = how.pop("question", None) or a_question(document)
    return run(world, lambda images: images.describe("w", status or a_status(), question, answer), **how)


def prepared(world: World, document: dict[str, object]) -> Any:
    return run(world, lambda images: images.prepare("w", a_status(), a_question(document), lambda news: None))
