"""Templates: pushing by administrators, choosing by users, and applying to a workspace.

Every profile is also offered as a template of its name; a template of the same name hides it. Nothing here calls a backend.
`domain.templates` parses the text of a version; a workspace stores the result (`AppliedTemplate`).
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from codehub.adapters.postgres import templates, timeline, workspaces
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.applied_template import AppliedTemplate, apply_template, carried_over
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Denied, Invalid, NotFound, WorkspaceNotFound
from codehub.domain.ids import is_id
from codehub.domain.model import DesiredState, Workspace, WorkspaceWithOwner
from codehub.domain.parameters import Value
from codehub.domain.profiles import Catalog, Runs
from codehub.domain.schedule import time_zone
from codehub.domain.table_reader import Mistake, Mistakes
from codehub.domain.template_preview import RUNS, RUNTIMES, applied_changes, notes, values_by_template
from codehub.domain.templates import Access, StoredVersion, Template, check_known, parse_templates
from codehub.domain.toml_places import line_of, parse_toml, split_templates
from codehub.ports.instances import Instances
from codehub.services.audit import note
from codehub.services.patterns import compile_pattern
from codehub.services.principal import Clock, Principal

_MOST_VERSIONS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Offered:
    """A template that users can choose. `version` 0 is a profile; only administrators may read `stored`."""

    template: Template
    version: int = 0
    stored: StoredVersion | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    name: str
    version: int
    is_new: bool  # False: identical to the newest version


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake with its line in the text."""

    line: int | None
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What a workspace would be created from. `applied` is None while there are problems."""

    name: str
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    applied: AppliedTemplate | None = None
    template: Template | None = None


@dataclass(frozen=True, slots=True)
class VersionText:
    stored: StoredVersion
    diff: str  # against the previous version, in `diff -u` format


@dataclass(frozen=True, slots=True)
class Update:
    """A workspace's template, and what its newest version would change.

    `blocked` is the reason why it cannot be applied.
    """

    current: AppliedTemplate
    pending: AppliedTemplate | None
    latest: int | None
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Templates:
    database: Database
    catalog: Catalog
    choose_runtime: Callable[[], Awaitable[tuple[str, Runs]]]  # (instance backend, what it runs) of new workspaces
    clock: Clock
    instances: Mapping[str, Instances]

    async def offered(self, who: Principal, *, archived: bool = False) -> list[Offered]:
        if archived:
            who.must_be_admin()
        async with self.database.transaction() as tx:
            stored = await templates.all_newest(tx, archived=archived)
        found = [one for each in stored if (one := _offered(each)) is not None and _may_use(who, one.template)]
        taken = {each.name for each in stored}
        return found + [Offered(_of_profile(name)) for name in sorted(self.catalog.profiles) if name not in taken]

    async def get(self, who: Principal, name: str) -> Offered:
        async with self.database.transaction() as tx:
            stored = await templates.newest(tx, name)
        if stored is not None:
            offered = _offered(stored)
            if offered is not None and _may_use(who, offered.template):
                return offered
        elif name in self.catalog.profiles:
            return Offered(_of_profile(name))
        raise NotFound(f"there is no template {name!r}")

    async def versions(self, who: Principal, name: str) -> list[StoredVersion]:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            found = await templates.versions(tx, name)
        if not found:
            raise NotFound(f"there is no template {name!r}")
        return found[:_MOST_VERSIONS_SHOWN]

    async def version(self, who: Principal, name: str, number: int) -> VersionText:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            found = await templates.version(tx, name, number)
            before = await templates.version(tx, name, number - 1) if number > 1 else None
        if found is None:
            raise NotFound(f"there is no version {number} of a template {name!r}")
        old = before.source.splitlines(keepends=True) if before is not None else []
        new = found.source.splitlines(keepends=True)
        names = (f"{name} version {number - 1}", f"{name} version {number}")
        return VersionText(found, "".join(difflib.unified_diff(old, new, *names)))

    async def push(
        self, who: Principal, source: str, base: Mapping[str, int] = MappingProxyType({}), *, force: bool = False
    ) -> list[Pushed]:
        """Store all templates of a text, or none. A template that equals its newest version creates no new version.

        Raises Conflict instead of replacing a version that the user does not know, unless `force`. `base` maps a template
        to the version that its text is based on. Without it, the newest version must be the user's own.
        """
        who.must_be_admin()
        self._checked(source)
        parts = split_templates(source)
        pushed = []
        async with self.database.transaction() as tx:
            for name in sorted(parts):
                await templates.claim(tx, name, self.clock())
                newest = await templates.newest(tx, name)
                if newest is not None and newest.source == parts[name] and newest.archived_at is None:
                    pushed.append(Pushed(name, newest.version, is_new=False))
                    continue
                if newest is not None and newest.source != parts[name] and not force:
                    check_known(newest, who.username, base.get(name))
                number = await templates.push(tx, name, parts[name], who.username, self.clock())
                pushed.append(Pushed(name, number, is_new=True))
            for each in pushed:
                if each.is_new:
                    at = self.clock()
                    await note(tx, AuditKind.TEMPLATE_PUSHED, at, who, target=each.name, version=each.version)
        return pushed

    def problems(self, source: str) -> tuple[Problem, ...]:
        """Return all mistakes in a text, each with its line."""
        try:
            self._checked(source)
            split_templates(source)
        except Mistakes as error:
            return tuple(Problem(line_of(source, each), each.where, each.message) for each in error.mistakes)
        except Invalid as error:
            return (Problem(None, "", str(error)),)
        return ()

    async def preview_text(
        self, who: Principal, source: str, given: Mapping[str, Value], runtime: str | None
    ) -> list[Preview]:
        """Preview an unpushed text with these values, for the editor."""
        who.must_be_admin()
        if found := self.problems(source):
            return [Preview("", found)]
        parsed = parse_templates(parse_toml(source), compile_pattern)
        asked = values_by_template(parsed, given)
        return [await self._preview(each, 0, asked[name], runtime) for name, each in parsed.items()]

    async def preview(self, who: Principal, name: str, given: Mapping[str, Value], runtime: str | None) -> Preview:
        offered = await self.get(who, name)
        return await self._preview(offered.template, offered.version, given, runtime)

    async def archive(self, who: Principal, name: str) -> None:
        """Stop offering a template. Rejected while workspaces use it, because they would get no more updates."""
        who.must_be_admin()
        async with self.database.transaction() as tx:
            await templates.lock(tx, name)
            found = await templates.newest(tx, name)
            if found is None:
                raise NotFound(f"there is no template {name!r}")
            if found.workspaces:
                raise Conflict(
                    f"the template {name!r} is in use ({found.workspaces}): delete the workspaces made from it first"
                )
            if found.archived_at is None:
                await templates.set_archived(tx, name, self.clock())
                await note(tx, AuditKind.TEMPLATE_ARCHIVED, self.clock(), who, target=name)

    async def update_of(self, who: Principal, workspace_id: str) -> Update | None:
        """Return the template and what its newest version would change, or None without a template."""
        async with self.database.transaction() as tx:
            owned = await _seen(tx, who, workspace_id)
            return await self._update_of(tx, who, owned.workspace, {})

    async def update(self, who: Principal, workspace_id: str, given: Mapping[str, Value]) -> WorkspaceWithOwner:
        """Apply the newest version at the next start. Values that are not given stay unchanged."""
        async with self.database.transaction() as tx:
            seen = await _seen(tx, who, workspace_id)
            if seen.workspace.template is not None:
                # Before the workspace, in the order of a push, which locks all workspaces of its template.
                await templates.hold(tx, seen.workspace.template.name)
            workspace = await workspaces.lock(tx, workspace_id)
            if workspace is None or workspace.deleted_at is not None:
                raise WorkspaceNotFound("there is no such workspace")
            if workspace.desired_state is DesiredState.DELETED:
                raise Conflict("the workspace is being deleted")
            current = workspace.template
            if current is None:
                raise Conflict("the workspace was not made from a template")
            applied, _ = await resolve(
                tx,
                self.catalog,
                who,
                current.name,
                {**current.parameters, **given},
                await self._runs(workspace),
                carry=given,
            )
            pending = None if applied == current else applied
            await templates.set_next(tx, workspace_id, pending, self.clock())
            message = (
                f"will run by version {pending.version} of the template {pending.name} from its next start on"
                if pending is not None
                else f"stays with version {current.version} of the template {current.name}"
            )
            await timeline.record(
                tx, workspace_id, at=self.clock(), kind="template", message=message, actor=who.username
            )
            found = await workspaces.get(tx, workspace_id)
            assert found is not None
            return found

    async def time_zone(self, who: Principal) -> str:
        async with self.database.transaction() as tx:
            return await templates.time_zone(tx, who.user_id) or "UTC"

    async def set_time_zone(self, who: Principal, name: str) -> str:
        """Set the time zone for the schedules of this user's workspaces."""
        try:
            time_zone(name)
        except Invalid as error:
            raise Invalid(f"time_zone: {error}") from error
        async with self.database.transaction() as tx:
            await templates.set_time_zone(tx, who.user_id, name)
        return name

    def _checked(self, source: str) -> Mapping[str, Template]:
        """Parse and check a text. Also raises Mistakes for profiles that this installation does not have."""
        parsed = parse_templates(parse_toml(source), compile_pattern)
        known = ", ".join(sorted(self.catalog.profiles))
        mistakes = [
            Mistake(f"templates.{name}.profile", f"there is no profile {template.profile!r}; there are {known}")
            for name, template in parsed.items()
            if template.profile and template.profile not in self.catalog.profiles
        ]
        if mistakes:
            raise Mistakes(mistakes)
        return parsed

    async def _preview(
        self, template: Template, version: int, given: Mapping[str, Value], runtime: str | None
    ) -> Preview:
        backend, runs = await self.choose_runtime()
        if runtime is None:
            runtime = RUNTIMES[backend]
        else:
            runs = RUNS[runtime]
        remarks = tuple(notes(template, runtime))
        try:
            applied = apply_template(template, version, given, self.catalog, runs)
        except Mistakes as error:
            found = tuple(Problem(None, each.where, each.message) for each in error.mistakes)
            return Preview(template.name, found, remarks, template=template)
        except Invalid as error:
            return Preview(template.name, (Problem(None, "", str(error)),), remarks, template=template)
        return Preview(template.name, (), remarks, applied, template)

    async def _update_of(
        self, tx: Transaction, who: Principal, workspace: Workspace, given: Mapping[str, Value]
    ) -> Update | None:
        current = workspace.template
        if current is None:
            return None
        known = Update(current, workspace.template_next, workspace.template_latest)
        try:
            applied, latest = await resolve(
                tx,
                self.catalog,
                who,
                current.name,
                {**current.parameters, **given},
                await self._runs(workspace),
                carry=given,
            )
        except Mistakes as error:
            found = tuple(Problem(None, each.where, each.message) for each in error.mistakes)
            return Update(current, workspace.template_next, workspace.template_latest, problems=found)
        except Invalid as error:
            return Update(current, workspace.template_next, workspace.template_latest, blocked=str(error))
        if applied is None:
            return known
        return Update(
            current,
            workspace.template_next,
            latest,
            tuple(applied_changes(workspace.template_next or current, applied)),
        )

    async def _runs(self, workspace: Workspace) -> Runs:
        """Return what the workspace's backend starts. It was fixed at creation."""
        backend = self.instances.get(workspace.instance_backend)
        return backend.runs if backend is not None else (await self.choose_runtime())[1]


async def resolve(
    tx: Transaction,
    catalog: Catalog,
    who: Principal,
    name: str,
    given: Mapping[str, Value],
    runs: Runs,
    *,
    carry: Mapping[str, Value] | None = None,
) -> tuple[AppliedTemplate | None, int]:
    """Return what a workspace is created from, and the newest version; (None, 0) for a profile of that name.

    The template is locked until the transaction ends, so that it is neither archived nor given a new version meanwhile.
    With `carry`, the other values come from an older version: those that the newest version does not have are dropped.
    """
    await templates.hold(tx, name)
    stored = await templates.newest(tx, name)
    if stored is None and name in catalog.profiles:
        if given:
            raise Invalid(f"parameters.{next(iter(given))}: the template has no such parameter")
        return None, 0
    offered = _offered(stored) if stored is not None and stored.archived_at is None else None
    if offered is None or not _may_use(who, offered.template):
        raise Invalid(f"template: there is no template {name!r} that you may use")
    values = dict(given) if carry is None else {**carried_over(offered.template, given), **carry}
    return apply_template(offered.template, offered.version, values, catalog, runs), offered.version


def _offered(stored: StoredVersion) -> Offered | None:
    """Return None for a text that only an older CodeHub accepted: it is not offered until it is pushed again."""
    try:
        return Offered(_parsed(stored.name, stored.source), stored.version, stored)
    except Invalid:
        return None


@lru_cache(maxsize=512)
def _parsed(name: str, source: str) -> Template:
    return parse_templates(parse_toml(source), compile_pattern)[name]


def _of_profile(name: str) -> Template:
    return Template(name, profile=name)


def _may_use(who: Principal, template: Template) -> bool:
    return who.is_admin or template.access is Access.USERS


async def _seen(tx: Transaction, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
    found = await workspaces.get(tx, workspace_id) if is_id(workspace_id) else None
    if found is None or found.workspace.deleted_at is not None:
        raise WorkspaceNotFound("there is no such workspace")
    if found.workspace.owner_user_id != who.user_id and not who.is_admin:
        raise Denied("this workspace belongs to someone else")
    return found
