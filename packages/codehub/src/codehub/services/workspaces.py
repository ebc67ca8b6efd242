"""User actions on workspaces. `domain.actions` defines which states allow them.

Every change is one transaction: lock the row, check it again, change it, and add a timeline entry. Nothing here calls a
backend: the controller sees the new desired_state and acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from codehub.adapters.postgres import control_ttl, users, workspaces
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.actions import NEEDS_ADMIN, Action, Viewer, cancel_target, check_allowed, stop_target
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Denied, Invalid, Unauthorized
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Operation, Phase, Workspace, WorkspaceWithOwner
from codehub.domain.parameters import Value
from codehub.domain.profiles import Catalog, Runs
from codehub.domain.repository import RepositorySource
from codehub.domain.setup import may_change_repository
from codehub.domain.ttl import Span
from codehub.domain.wording import OPERATIONS
from codehub.services import templates, workspace_limit, workspace_names
from codehub.services.audit import Visits, note
from codehub.services.principal import Clock, Ids, Principal
from codehub.services.workspace_rows import locked, record, reload, visible

LONGEST_KEEP_AWAKE = timedelta(days=31)
# Texts for the timeline.
_REQUESTED = {
    DesiredState.RUNNING: "start requested",
    DesiredState.STANDBY: "stop requested",
    DesiredState.ARCHIVED: "archiving requested",
    DesiredState.DELETED: "deletion requested",
}


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backends that a new workspace runs on and keeps its home on; fixed at creation."""

    instance: str
    storage: str
    runs: Runs


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    name: str
    description: str = ""
    memo: str = ""
    image_ref: str | None = None
    start: bool = True
    repo: RepositorySource | None = None
    template: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edit:
    """None leaves a field unchanged."""

    name: str | None = None
    description: str | None = None
    memo: str | None = None
    desired_state: DesiredState | None = None


@dataclass(frozen=True, slots=True)
class Workspaces:
    database: Database
    limits: RunningLimits
    catalog: Catalog
    choose_backends: Callable[[], Awaitable[BackendChoice]]
    clock: Clock
    ids: Ids
    visits: Visits
    max_workspaces: int = 0  # of one user; 0: no limit

    async def get(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        try:
            async with self.database.transaction() as tx:
                found = await visible(tx, who, workspace_id)
                if found.workspace.owner_user_id != who.user_id:
                    await self._note_visit(tx, AuditKind.WORKSPACE_READ, who, workspace_id, owner=found.owner)
                return found
        except Denied:
            await self.refused(who, workspace_id)
            raise

    async def refused(self, who: Principal, workspace_id: str) -> None:
        """Record in the audit trail that a user was denied access to another user's workspace."""
        async with self.database.transaction() as tx:
            await self._note_visit(tx, AuditKind.WORKSPACE_REFUSED, who, workspace_id)

    async def page(
        self, who: Principal, *, everybody: bool, deleted: bool, limit: int, offset: int
    ) -> tuple[list[WorkspaceWithOwner], int]:
        if everybody or deleted:
            who.must_be_admin()
        owner = None if everybody else who.user_id
        async with self.database.transaction() as tx:
            return await workspaces.page(tx, owner, limit, offset, deleted=deleted)

    async def activity_gaps(self) -> tuple[Span, ...]:
        """Return the gaps in which activity could not be observed, which `sleeps_at` excludes."""
        async with self.database.transaction() as tx:
            return (await control_ttl.read_coverage(tx)).gaps

    async def create(self, who: Principal, new: NewWorkspace) -> WorkspaceWithOwner:
        backends = await self.choose_backends()
        if new.template is not None and new.image_ref is not None:
            raise Invalid("image_ref: give a template or an image_ref, not both")
        if new.template is None and new.parameters:
            raise Invalid("parameters: belong to a template; name one")
        image_ref = new.template or new.image_ref or self.catalog.default
        if new.template is None:
            self._resolve(image_ref, backends.runs)
        now = self.clock()
        workspace_id = self.ids()
        workspace = Workspace(
            id=workspace_id,
            owner_user_id=who.user_id,
            name=new.name,
            description=new.description,
            memo=new.memo,
            image_ref=image_ref,
            instance_backend=backends.instance,
            storage_backend=backends.storage,
            home_store_key=f"users/{who.user_id}/workspaces/{workspace_id}/home",
            desired_state=DesiredState.RUNNING if new.start else DesiredState.ARCHIVED,
            last_access_at=now if new.start else None,
            created_at=now,
            updated_at=now,
            phase_changed_at=now,
            repo=new.repo,
        )
        async with self.database.transaction() as tx:
            if not await users.lock(tx, who.user_id):
                raise Unauthorized("the user is gone")
            await workspace_limit.check(tx, who, who.user_id, who.username, self.max_workspaces)
            await workspace_names.check(tx, who.user_id, new.name, but=workspace_id)
            if new.start:
                await workspaces.take_running_slot(tx, who.user_id, workspace_id, self.limits)
            workspace = await self._from_template(tx, who, workspace, new, backends.runs)
            workspace = replace(workspace, dev_image_auto=workspace.repo is not None)
            await workspaces.insert(tx, workspace)
            message = "created and started" if new.start else "created"
            await record(tx, self.clock, workspace_id, who, "created", f"{message} from {_origin(workspace)}")
            return await reload(tx, workspace_id)

    def _resolve(self, image_ref: str, runs: Runs) -> None:
        try:
            self.catalog.resolve(image_ref, runs)
        except Invalid as error:
            raise Invalid(f"image_ref: {error}") from error

    async def _from_template(
        self, tx: Transaction, who: Principal, workspace: Workspace, new: NewWorkspace, runs: Runs
    ) -> Workspace:
        if new.template is None:
            return workspace
        applied, latest = await templates.resolve(tx, self.catalog, who, new.template, new.parameters, runs)
        if applied is None:  # a profile of that name
            self._resolve(new.template, runs)
            return workspace
        return replace(
            workspace,
            image_ref=applied.image_ref,
            template=applied,
            template_latest=latest,
            repo=workspace.repo or applied.repo,
        )

    async def edit(self, who: Principal, workspace_id: str, edit: Edit) -> WorkspaceWithOwner:
        if edit.desired_state is DesiredState.DELETED:
            raise Invalid("desired_state: a workspace is deleted with DELETE")
        async with self.database.transaction() as tx:
            seen = await visible(tx, who, workspace_id)
            if edit.name is not None and edit.name != seen.workspace.name:
                await users.lock(tx, seen.workspace.owner_user_id)
                await workspace_names.check(tx, seen.workspace.owner_user_id, edit.name, but=workspace_id)
            if edit.desired_state is DesiredState.RUNNING:
                await self._slot(tx, seen.workspace)
            workspace = await locked(tx, workspace_id)
            if edit.desired_state is not None:  # a note may still be changed while the workspace is being deleted
                check_allowed(Action.EDIT, workspace)
            await self._write_words(tx, who, workspace, edit)
            if edit.desired_state is not None and edit.desired_state is not workspace.desired_state:
                await workspaces.set_desired_state(tx, workspace_id, edit.desired_state, self.clock())
                await record(tx, self.clock, workspace_id, who, "desired_state", _REQUESTED[edit.desired_state])
            return await reload(tx, workspace_id)

    async def start(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            seen = await visible(tx, who, workspace_id)
            check_allowed(Action.START, seen.workspace)
            await self._slot(tx, seen.workspace)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.START, workspace)
            return await self._request(tx, who, workspace, DesiredState.RUNNING, "start", recover=True)

    async def stop(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.STOP, workspace)
            # Lost data stays an error, but a stopped workspace no longer counts against the limit.
            recover = workspace.error_reason not in NEEDS_ADMIN
            return await self._request(tx, who, workspace, stop_target(workspace), "stop", recover=recover)

    async def cancel(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        """Cancel the current start, restore or archive operation, and return to the previous state."""
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.CANCEL, workspace)
            target = cancel_target(workspace)
            assert target is not None, "checked above"
            await workspaces.cancel(tx, workspace_id, target, self.clock())
            what = OPERATIONS[workspace.operation].label if workspace.operation is not Operation.NONE else "Start"
            await record(tx, self.clock, workspace_id, who, "cancel", f"cancelled: {what}")
            return await reload(tx, workspace_id)

    async def keep_awake(
        self, who: Principal, workspace_id: str, until: datetime | None, *, wake: bool
    ) -> WorkspaceWithOwner:
        """Keep the workspace awake until this time, regardless of activity. None ends that. `wake` starts it."""
        now = self.clock()
        if until is not None and not now < until <= now + LONGEST_KEEP_AWAKE:
            raise Invalid(f"until: a time within the next {LONGEST_KEEP_AWAKE.days} days")
        async with self.database.transaction() as tx:
            seen = await visible(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner keeps a workspace awake")
            wakes = wake and until is not None and seen.workspace.desired_state is not DesiredState.RUNNING
            if wakes:
                await self._slot(tx, seen.workspace)
            workspace = await locked(tx, workspace_id)
            if wakes:
                check_allowed(Action.EDIT, workspace)
                await workspaces.set_desired_state(tx, workspace_id, DesiredState.RUNNING, now)
                await record(tx, self.clock, workspace_id, who, "desired_state", _REQUESTED[DesiredState.RUNNING])
            await workspaces.keep_awake(tx, workspace_id, until, now)
            message = (
                "no longer keeps it awake" if until is None else f"keeps it awake until {until:%Y-%m-%d %H:%M} UTC"
            )
            await record(tx, self.clock, workspace_id, who, "keep_awake", message)
            return await reload(tx, workspace_id)

    async def retry_setup(
        self, who: Principal, workspace_id: str, repo: RepositorySource | None = None
    ) -> WorkspaceWithOwner:
        """Retry the setup. Only the owner may, because it uses the owner's credentials.

        `repo` replaces a repository that could not be cloned.
        """
        async with self.database.transaction() as tx:
            seen = await visible(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner may repeat a workspace's setup")
            workspace = await locked(tx, workspace_id)
            if workspace.phase is not Phase.RUNNING:
                raise Conflict("the workspace is not running: start it, and its setup continues")
            if repo is not None:
                if not may_change_repository(workspace.setup):
                    raise Conflict("only a repository that could not be cloned is replaced: use git in the workspace")
                await workspaces.set_repo(tx, workspace_id, repo)
                await record(
                    tx, self.clock, workspace_id, who, "setup", f"repository changed to {repo.repository.url}"
                )
            await workspaces.retry_setup(tx, workspace_id, self.clock())
            await record(tx, self.clock, workspace_id, who, "setup", "repetition of the failed setup steps requested")
            return await reload(tx, workspace_id)

    async def archive(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.ARCHIVE, workspace)
            return await self._request(tx, who, workspace, DesiredState.ARCHIVED, "archive", recover=True)

    async def delete(self, who: Principal, workspace_id: str, *, force: bool) -> None:
        async with self.database.transaction() as tx:
            await visible(tx, who, workspace_id)
            workspace = await locked(tx, workspace_id)
            check_allowed(Action.FORCE_DELETE if force else Action.DELETE, workspace)
            if workspace.desired_state is not DesiredState.DELETED:
                await self._request(tx, who, workspace, DesiredState.DELETED, "delete", recover=True)

    async def _slot(self, tx: Transaction, workspace: Workspace) -> None:
        # A workspace in ERROR does not count against the limit, regardless of its desired state.
        if workspace.desired_state is not DesiredState.RUNNING or workspace.phase is Phase.ERROR:
            await workspaces.take_running_slot(tx, workspace.owner_user_id, workspace.id, self.limits)

    async def _write_words(self, tx: Transaction, who: Principal, workspace: Workspace, edit: Edit) -> None:
        name = workspace.name if edit.name is None else edit.name
        description = workspace.description if edit.description is None else edit.description
        memo = workspace.memo if edit.memo is None else edit.memo
        changed = [
            field
            for field, old, new in (
                ("name", workspace.name, name),
                ("description", workspace.description, description),
                ("memo", workspace.memo, memo),
            )
            if old != new
        ]
        if changed:
            await workspaces.edit(tx, workspace.id, name=name, description=description, memo=memo, now=self.clock())
            await record(tx, self.clock, workspace.id, who, "edited", f"changed {', '.join(changed)}")

    async def _request(
        self,
        tx: Transaction,
        who: Principal,
        workspace: Workspace,
        desired: DesiredState,
        kind: str,
        *,
        recover: bool,
    ) -> WorkspaceWithOwner:
        await workspaces.set_desired_state(tx, workspace.id, desired, self.clock(), recover=recover)
        after = f" after {workspace.error_reason}" if workspace.error_reason is not None else ""
        await record(tx, self.clock, workspace.id, who, kind, f"{_REQUESTED[desired]}{after}")
        return await reload(tx, workspace.id)

    async def _note_visit(
        self, tx: Transaction, kind: AuditKind, who: Principal, workspace_id: str, **detail: object
    ) -> None:
        """Record a visit by another user once an hour, because a page polls every few seconds."""
        if self.visits.is_new(kind, who.user_id, who.address, workspace_id):
            await note(tx, kind, self.clock(), who, workspace_id=workspace_id, detail=detail)


def viewer_of(who: Principal, owned: WorkspaceWithOwner) -> Viewer:
    return Viewer(is_admin=who.is_admin, is_owner=owned.workspace.owner_user_id == who.user_id)


def _origin(workspace: Workspace) -> str:
    template = workspace.template
    if template is None:
        return workspace.image_ref
    return f"version {template.version} of the template {template.name}"
