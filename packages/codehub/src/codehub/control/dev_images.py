"""Images of devcontainer.json: prepared outside the workspace while it runs with its template's image, then applied.

```
 workspaced: what does devcontainer.json mean? ──► describe: applied, to prepare, offered, failed, or refused
             prepare it                        ──► pull or build (bounded) ► dev_image_next in the row
 controller: RUNNING with dev_image_next       ──► stop, start with it; if that fails, start with the template's image
```

The row is the only state. Whatever is interrupted is requested again by the workspace, and the engine has cached its steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from codehub.control.dev_features import collect_features
from codehub.control.owner_pace import OwnerPace, build_units
from codehub.domain.dev_features import Feature
from codehub.domain.dev_image import (
    Build,
    DevImage,
    Plan,
    Pull,
    feature_files,
    feature_lines,
    forbidden_base,
    places_of,
    plan_image,
)
from codehub.domain.devcontainer import DevContainer, parse_devcontainer
from codehub.domain.errors import CodeHubError, Conflict, FenceLost, Invalid
from codehub.domain.feature_refs import LOCK_FILE, FeatureRules
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from codehub.fair_slots import FairSlots
from codehub.ports.control_store import ControlStore
from codehub.ports.feature_source import FeatureSource
from codehub.ports.image_builds import BuildFiles, BuildNews, BuildOrder, DevImageStore, ImageBuilder, Tell
from codehub.ports.instances import InstanceStatus
from codehub.ports.leadership import Lease
from codehub.ports.setup import Message

_log = structlog.get_logger()

T = TypeVar("T")

_AT_ONCE: Final = 2
_LONGEST_FILE: Final = 256 << 10
_LONGEST_FEATURE: Final = 2 << 20
_LARGEST_CONTEXT: Final = 1 << 30
_COLLECT_AFTER_S: Final = 60.0
_COLLECT_EVERY_S: Final = 600.0

_OFF = "is not built here: an administrator can allow it (CODEHUB_DEVCONTAINER_BUILDS)"
_ELSEWHERE = "is applied on Docker only: choose the image when you create the workspace"
_OF_FEATURE = "is not applied: a feature is only installed in the image"
_NEXT_START = "is applied after the workspace was stopped and started"


@dataclass(frozen=True, slots=True)
class DevImageDeps:
    """`check` is the catalog's rule for images: it raises Invalid. `builds` is the administrator's switch.

    `features` fetches those from a registry, as far as `feature_rules` allow. `timeout_s` limits how long one image, with
    everything that it is made from, keeps a slot.
    """

    builder: ImageBuilder
    files: BuildFiles
    store: DevImageStore
    check: Callable[[str], object]
    profile_of: Callable[[Workspace], tuple[str, AppProfile]]
    new_place: Callable[[], str]
    features: FeatureSource
    feature_rules: FeatureRules
    builds: bool = False
    timeout_s: float = 3600.0


@dataclass(slots=True)
class _Job:
    """`ref` is new for each build: what another workspace builds of the same Dockerfile can hold other files."""

    digest: str
    ref: str
    task: asyncio.Task[str]
    tell: Tell
    ignored: tuple[tuple[str, str], ...] = ()


class DevImages:
    def __init__(self, deps: DevImageDeps, rows: ControlStore, lease: Lease) -> None:
        self._deps = deps
        self._rows = rows
        self._lease = lease
        self._jobs: dict[str, _Job] = {}
        self._slots = FairSlots(_AT_ONCE)
        self._pace = OwnerPace()
        self._group: asyncio.TaskGroup | None = None

    # --- for the start of a workspace

    async def usable(self, image: DevImage) -> bool:
        """Return whether a workspace may and can start with this image now."""
        return not forbidden_base(image.bases, self._deps.check) and await self._deps.builder.exists(image.ref)

    # --- for the link

    async def describe(
        self, workspace_id: str, status: InstanceStatus, question: Message, answer: Message
    ) -> Message:
        """Add to what devcontainer.json means: what becomes of its image, its Dockerfile and its features."""
        wanted = _parse(workspace_id, question)
        before = answer.get("ignored")
        ignored = list(before) if isinstance(before, list) else []
        # Where workspaces are processes, the answer says already that these need a container.
        keys = [] if wanted is None else [key for key in _keys(wanted) if key not in {each[0] for each in ignored}]
        if wanted is None or not keys:
            return answer
        row = await self._row(workspace_id)
        try:
            plan = await self._plan(row, wanted, status, question)
        except Invalid as error:
            return {**answer, "ignored": [*ignored, *([key, str(error)] for key in keys)]}
        state, message = await self._state(row, plan, status)
        image = {"id": plan.digest[:12], "title": plan.title, "state": state, "message": message}
        if isinstance(plan, Build):
            made = row.dev_image if row.dev_image is not None and row.dev_image.digest == plan.digest else None
            unused = dict.fromkeys([*plan.ignored, *(made.ignored if made else ())])
            ignored += [[f"{feature} {key}", _OF_FEATURE] for feature, key in unused]
        return {**answer, "image": image, "ignored": ignored}

    async def _state(self, row: Workspace, plan: Plan, status: InstanceStatus) -> tuple[str, str]:
        before = row.dev_image
        if row.dev_image_next is not None and row.dev_image_next.digest == plan.digest:
            return "auto", ""
        if before is None:
            return ("auto", "") if row.dev_image_auto else ("offered", "It is applied when you ask for it.")
        if before.digest != plan.digest:
            return "offered", "devcontainer.json has changed since the image was made."
        if status.image == before.ref:
            return "applied", ""
        if not await self.usable(before):
            return "auto", ""  # it was removed from the engine
        await self._deps.store.drop(self._lease.epoch, row.id, before.digest)
        return "failed", "The workspace did not start with this image, so it runs with the one of its template."

    async def prepare(self, workspace_id: str, status: InstanceStatus, question: Message, tell: Tell) -> Message:
        """Pull or build the image, and have the workspace restarted with it."""
        wanted, row = _parse(workspace_id, question), await self._row(workspace_id)
        if wanted is None or not _keys(wanted):
            raise Invalid("devcontainer.json no longer requests an image")
        plan = await self._plan(row, wanted, status, question)
        job = self._job(row, plan, status, tell)
        error = await asyncio.shield(job.task)
        if error:
            raise Invalid(error)
        if status.image == job.ref and row.dev_image is not None and row.dev_image.digest == plan.digest:
            return {"restart": False}
        image = DevImage(plan.digest, job.ref, plan.bases, job.ignored)
        if not await self._deps.store.put_next(self._lease.epoch, workspace_id, status.identity, image):
            raise Conflict("the workspace was stopped meanwhile")
        return {"restart": True}

    def _job(self, row: Workspace, plan: Plan, status: InstanceStatus, tell: Tell) -> _Job:
        """One job per workspace: the same one is joined, another one is replaced."""
        known = self._jobs.get(row.id)
        if known is not None and known.digest == plan.digest and not known.task.done():
            known.tell = tell
            return known
        self.abandon(row.id)

        def pass_on(news: BuildNews) -> None:
            self._jobs[row.id].tell(news)

        if self._group is None:
            raise Conflict("images are not prepared yet: try again in a moment")
        place = self._deps.new_place()
        ref = self._deps.builder.ref(f"{plan.digest}-{place}") if isinstance(plan, Build) else plan.image
        task = self._group.create_task(self._work(row, plan, ref, status, pass_on), name=f"image {row.id}")
        self._jobs[row.id] = _Job(plan.digest, ref, task, tell)
        return self._jobs[row.id]

    def abandon(self, workspace_id: str) -> None:
        """Nobody waits for the image any more: the workspace stops or is deleted."""
        job = self._jobs.pop(workspace_id, None)
        if job is not None:
            job.task.cancel()

    async def _work(self, row: Workspace, plan: Plan, ref: str, status: InstanceStatus, tell: Tell) -> str:
        """Return why the image could not be prepared; empty if it is there."""
        if self._slots.is_full():
            tell(BuildNews("Waiting for other builds.\n", "Waiting for other builds"))
        try:
            # The workspace sends the files, and its repository names the images: neither may keep the slot for ever.
            async with self._slots.turn(row.owner_user_id), asyncio.timeout(self._deps.timeout_s):
                features = await self._make(plan, ref, status, tell)
            self._jobs[row.id].ignored = tuple((each.key, name) for each in features for name in each.ignored)
            return await self._deps.builder.why_not(ref, self._deps.profile_of(row)[1])
        except TimeoutError:
            return "it took too long"
        except CodeHubError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - one workspace must not take the coordinator's term with it
            _log.error("an image could not be prepared", workspace_id=row.id, exc_info=error)
            return f"{type(error).__name__}: {error}"

    async def _make(self, plan: Plan, ref: str, status: InstanceStatus, tell: Tell) -> Sequence[Feature]:
        """Returns the features that were installed."""
        builder = self._deps.builder
        if isinstance(plan, Pull):
            await builder.pull(plan.image, tell)
            return ()

        def fetching(line: str) -> None:
            tell(BuildNews(f"{line}\n", line))

        # Before anything is built: a feature that cannot be had is the quickest to fail.
        features = await collect_features(plan.features, self._deps.feature_rules, self._deps.features, fetching)
        base = f"{ref}-base" if features else ref
        if plan.context is not None:
            assert status.workspaced is not None
            name = f".codehub-{self._deps.new_place()}"
            order = BuildOrder(base, plan.recipe.text, name, plan.bases, plan.args)
            async with self._deps.files.context(status.workspaced, plan.context, _LARGEST_CONTEXT) as context:
                await builder.build(order, context, tell)
        if features:
            below = base if plan.context is not None else plan.bases[0]
            order = BuildOrder(ref, feature_lines(below, features), bases=(below,), files=feature_files(features))
            await builder.build(order, None, tell)
            if plan.context is not None:
                await builder.remove(base)
        return features

    async def _plan(self, row: Workspace, wanted: DevContainer, status: InstanceStatus, question: Message) -> Plan:
        """Raises Invalid with the reason why nothing is done for the image."""
        if row.instance_backend != self._deps.builder.backend:
            raise Invalid(_ELSEWHERE)
        clone, file = question.get("clone"), question.get("file")
        if not isinstance(clone, str) or not isinstance(file, str) or status.workspaced is None:
            raise Invalid(_NEXT_START)  # a helper of an older version
        if wanted.needs_build and not self._deps.builds:
            raise Invalid(_OFF)
        places = places_of(wanted, clone, file)
        files, there = self._deps.files, status.workspaced
        dockerfile = b""
        if places.dockerfile:
            dockerfile = await _found(files.read(there, places.dockerfile, _LONGEST_FILE), places.dockerfile)
        features = {
            key: await _found(files.folder(there, path, _LONGEST_FEATURE), path)
            for key, path in places.features.items()
        }
        lock = await files.read(there, f"{clone}/{file.removesuffix('devcontainer.json')}{LOCK_FILE}", _LONGEST_FILE)
        read = sum(len(each.content) for folder in features.values() for each in folder.values())
        await self._pace.charge(row.owner_user_id, build_units(len(dockerfile) + len(lock or b""), read))
        text, rules = dockerfile.decode("utf-8", "replace"), self._deps.feature_rules
        plan = plan_image(wanted, places, text, features, lock or b"", rules)
        if refused := forbidden_base(plan.bases, self._deps.check):
            raise Invalid(refused)
        return plan

    async def _row(self, workspace_id: str) -> Workspace:
        found = await self._rows.load([workspace_id])
        if not found:
            raise Invalid("the workspace no longer exists")
        return found[0].workspace

    async def run(self) -> None:
        """Hold the jobs, and remove images that nobody uses now and then, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await self._collect()

    async def _used(self) -> set[str]:
        # A build that ended just now is recorded a moment later, and its image may be an old one from the cache.
        jobs = {name for job in self._jobs.values() for name in (job.ref, f"{job.ref}-base")}
        return {*await self._deps.store.used(), *jobs}

    async def _collect(self) -> None:
        pause_s = _COLLECT_AFTER_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _COLLECT_EVERY_S
            try:
                await self._deps.builder.collect(self._used, self._lease.fence)
            except FenceLost:
                raise
            except CodeHubError as error:
                _log.info("images are not collected", error=str(error))


def _parse(workspace_id: str, question: Message) -> DevContainer | None:
    try:
        folder, home = str(question.get("folder", "")), str(question.get("home", ""))
        text = str(question.get("text", ""))
        return parse_devcontainer(text, containers=True, folder=folder, home=home, workspace_id=workspace_id)
    except Invalid:
        return None  # the answer says so


def _keys(wanted: DevContainer) -> list[str]:
    """Return the keys of devcontainer.json that need an image."""
    named: Mapping[str, object] = {"image": wanted.image, "build": wanted.dockerfile, "features": wanted.features}
    return [key for key, value in named.items() if value]


async def _found(reading: Awaitable[T | None], path: str) -> T:
    found = await reading
    if found is None:
        raise Invalid(f"{path} is not in the repository")
    return found
