"""User actions on workspaces. `domain.actions` defines which states allow them.

Every change is one transaction: lock the row, check it again, change it, and add a timeline entry. Nothing here calls a
backend: the controller sees the new desired_state and acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from codehub.adapters.postgres import control_ttl, timeline, users, workspaces
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.actions import NEEDS_ADMIN, Action, Viewer, cancel_target, check_allowed, stop_target
from codehub.domain.audit import AuditKind
from codehub.domain.continuing import continued
from codehub.domain.duplicate import FromArchive, source_of
from codehub.domain.errors import BackendDown, Conflict, Denied, Invalid, Unauthorized, WorkspaceNotFound
from codehub.domain.history import Generation
from codehub.domain.ids import is_id, time_of
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Operation, Phase, Workspace, WorkspaceWithOwner
from codehub.domain.parameters import Value
from codehub.domain.profiles import Catalog, Runs
from codehub.domain.repository import RepositorySource
from codehub.domain.ttl import Span
from codehub.domain.wording import OPERATIONS
from codehub.ports.archives import ArchiveReceipts
from codehub.services import templates, workspace_names
from codehub.services.audit import Visits, note
from codehub.services.principal import Clock, Ids, Principal

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
class Recovery:
    """`chosen`: an archive was selected. `archive_key`: which one; None is an empty home."""

    chosen: bool = False
    archive_key: str | None = None


@dataclass(frozen=True, slots=True)
class Workspaces:
    database: Database
    limits: RunningLimits
    catalog: Catalog
    choose_backends: Callable[[], Awaitable[BackendChoice]]
    clock: Clock
    ids: Ids
    archives: ArchiveReceipts | None
    visits: Visits

    async def get(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        try:
            async with self.database.transaction() as tx:
                found = await self._seen(tx, who, workspace_id)
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
            await workspace_names.check(tx, who.user_id, new.name, but=workspace_id)
            if new.start:
                await workspaces.take_running_slot(tx, who.user_id, workspace_id, self.limits)
            workspace = await self._from_template(tx, who, workspace, new, backends.runs)
            workspace = replace(workspace, dev_image_auto=workspace.repo is not None)
            await workspaces.insert(tx, workspace)
            asked = "created and started" if new.start else "created"
            await self._record(tx, workspace_id, who, "created", f"{asked} from {_origin(workspace)}")
            return await self._again(tx, workspace_id)

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

    async def duplicate(self, who: Principal, workspace_id: str, name: str, *, start: bool) -> WorkspaceWithOwner:
        """Create a workspace with this one's files, which is only read. See `domain.duplicate`.

        The row is the intent. A copy of an archived workspace starts from that archive, which the GC then keeps. For a copy
        of a home, the controller creates an archive first.
        """
        now, copy_id = self.clock(), self.ids()
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            if not await users.lock(tx, who.user_id):
                raise Unauthorized("the user is gone")
            await workspace_names.check(tx, who.user_id, name, but=copy_id)
            if start:
                await workspaces.take_running_slot(tx, who.user_id, copy_id, self.limits)
            original = await self._locked(tx, workspace_id)
            check_allowed(Action.DUPLICATE, original)
            source = source_of(original)
            key = source.archive_key if isinstance(source, FromArchive) else None
            copy = replace(
                original,
                id=copy_id,
                owner_user_id=who.user_id,
                name=name,
                home_store_key=f"users/{who.user_id}/workspaces/{copy_id}/home",
                desired_state=DesiredState.RUNNING if start else DesiredState.ARCHIVED,
                last_access_at=now if start else None,
                created_at=now,
                updated_at=now,
                phase_changed_at=now,
                copy_of=workspace_id,
                archive_key=key,
                template=original.template_next or original.template,
                dev_image=original.dev_image_next or original.dev_image,
            )
            await workspaces.insert(tx, copy)
            if key is not None:
                await timeline.share_archive(tx, workspace_id, copy_id, key)
            await self._record(tx, copy_id, who, "created", f"duplicated {original.name} ({workspace_id})")
            await self._record(tx, workspace_id, who, "duplicated", f"duplicated it as {name} ({copy_id})")
            return await self._again(tx, copy_id)

    async def edit(self, who: Principal, workspace_id: str, edit: Edit) -> WorkspaceWithOwner:
        if edit.desired_state is DesiredState.DELETED:
            raise Invalid("desired_state: a workspace is deleted with DELETE")
        async with self.database.transaction() as tx:
            seen = await self._seen(tx, who, workspace_id)
            if edit.name is not None and edit.name != seen.workspace.name:
                await users.lock(tx, seen.workspace.owner_user_id)
                await workspace_names.check(tx, seen.workspace.owner_user_id, edit.name, but=workspace_id)
            if edit.desired_state is DesiredState.RUNNING:
                await self._slot(tx, seen.workspace)
            workspace = await self._locked(tx, workspace_id)
            if edit.desired_state is not None:  # a note may still be changed while the workspace is being deleted
                check_allowed(Action.EDIT, workspace)
            await self._write_words(tx, who, workspace, edit)
            if edit.desired_state is not None and edit.desired_state is not workspace.desired_state:
                await workspaces.set_desired_state(tx, workspace_id, edit.desired_state, self.clock())
                await self._record(tx, workspace_id, who, "desired_state", _REQUESTED[edit.desired_state])
            return await self._again(tx, workspace_id)

    async def start(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            seen = await self._seen(tx, who, workspace_id)
            check_allowed(Action.START, seen.workspace)
            await self._slot(tx, seen.workspace)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.START, workspace)
            return await self._request(tx, who, workspace, DesiredState.RUNNING, "start", recover=True)

    async def stop(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.STOP, workspace)
            # Lost data stays an error, but a stopped workspace no longer counts against the limit.
            recover = workspace.error_reason not in NEEDS_ADMIN
            return await self._request(tx, who, workspace, stop_target(workspace), "stop", recover=recover)

    async def cancel(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        """Cancel the current start, restore or archive operation, and return to the previous state."""
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.CANCEL, workspace)
            target = cancel_target(workspace)
            assert target is not None, "checked above"
            await workspaces.cancel(tx, workspace_id, target, self.clock())
            what = OPERATIONS[workspace.operation].label if workspace.operation is not Operation.NONE else "Start"
            await self._record(tx, workspace_id, who, "cancel", f"cancelled: {what}")
            return await self._again(tx, workspace_id)

    async def keep_awake(self, who: Principal, workspace_id: str, until: datetime | None) -> WorkspaceWithOwner:
        """Keep the workspace awake until this time, regardless of activity. None ends that."""
        now = self.clock()
        if until is not None and not now < until <= now + LONGEST_KEEP_AWAKE:
            raise Invalid(f"until: a time within the next {LONGEST_KEEP_AWAKE.days} days")
        async with self.database.transaction() as tx:
            seen = await self._seen(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner keeps a workspace awake")
            await self._locked(tx, workspace_id)
            await workspaces.keep_awake(tx, workspace_id, until, now)
            asked = (
                "no longer keeps it awake" if until is None else f"keeps it awake until {until:%Y-%m-%d %H:%M} UTC"
            )
            await self._record(tx, workspace_id, who, "keep_awake", asked)
            return await self._again(tx, workspace_id)

    async def retry_setup(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        """Retry the setup. Only the owner may, because it uses the owner's credentials."""
        async with self.database.transaction() as tx:
            seen = await self._seen(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner may repeat a workspace's setup")
            workspace = await self._locked(tx, workspace_id)
            if workspace.phase is not Phase.RUNNING:
                raise Conflict("the workspace is not running: start it, and its setup continues")
            await workspaces.retry_setup(tx, workspace_id, self.clock())
            await self._record(tx, workspace_id, who, "setup", "repetition of the failed setup steps requested")
            return await self._again(tx, workspace_id)

    async def archive(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.ARCHIVE, workspace)
            return await self._request(tx, who, workspace, DesiredState.ARCHIVED, "archive", recover=True)

    async def delete(self, who: Principal, workspace_id: str, *, force: bool) -> None:
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.FORCE_DELETE if force else Action.DELETE, workspace)
            if workspace.desired_state is not DesiredState.DELETED:
                await self._request(tx, who, workspace, DesiredState.DELETED, "delete", recover=True)

    async def recover(self, who: Principal, workspace_id: str, recovery: Recovery) -> WorkspaceWithOwner:
        who.must_be_admin()
        # Queried before the transaction, so that no connection is held during a call to the store.
        in_store = await self.archives_in_store(_checked(workspace_id))
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.RECOVER, workspace)
            if workspace.error_reason in NEEDS_ADMIN:
                outcome = await self._recover_data(tx, workspace, recovery, in_store)
            elif recovery.chosen:
                raise Conflict(
                    f"archive_key: only after {' or '.join(sorted(NEEDS_ADMIN))}, not after {workspace.error_reason}"
                )
            else:
                await workspaces.reset_error(tx, workspace_id, self.clock())
                outcome = "recovered"
            reason = workspace.error_reason or "ERROR"
            await self._record(tx, workspace_id, who, "recover", f"{outcome} after {reason}")
            return await self._again(tx, workspace_id)

    async def continue_from_archive(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        """Create a workspace from the last archive of one whose node does not answer.

        The old workspace keeps all its data: it is stopped when its node is back, including what was written there since.
        """
        now, new_id = self.clock(), self.ids()
        async with self.database.transaction() as tx:
            seen = await self._seen(tx, who, workspace_id)
            if seen.workspace.owner_user_id != who.user_id:
                raise Denied("only its owner continues from its archive")
            await users.lock(tx, who.user_id)
            workspace = await self._locked(tx, workspace_id)
            check_allowed(Action.CONTINUE_FROM_ARCHIVE, workspace)
            await workspaces.set_desired_state(tx, workspace_id, DesiredState.STANDBY, now)
            await workspaces.take_running_slot(tx, who.user_id, new_id, self.limits)
            copy = continued(workspace, new_id, now)
            name = await workspace_names.free(tx, who.user_id, copy.name, but=new_id)
            await workspaces.insert(tx, replace(copy, name=name))
            await self._record(tx, workspace_id, who, "continued", f"continued from its last archive as {new_id}")
            await self._record(tx, new_id, who, "created", f"created from the last archive of {workspace.name}")
            return await self._again(tx, new_id)

    async def undelete(self, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            seen = await workspaces.get(tx, _checked(workspace_id))
            if seen is not None:
                await users.lock(tx, seen.workspace.owner_user_id)
            workspace = await workspaces.lock(tx, workspace_id)
            if workspace is None:
                raise WorkspaceNotFound("there is no such workspace")
            check_allowed(Action.UNDELETE, workspace)
            await workspaces.undelete(tx, workspace_id, self.clock())
            await self._give_free_name(tx, who, workspace, workspace.owner_user_id)
            await self._record(tx, workspace_id, who, "undelete", "undeleted")
            return await self._again(tx, workspace_id)

    async def transfer(self, who: Principal, workspace_id: str, username: str) -> WorkspaceWithOwner:
        """Transfer to another owner, as an administrator. A running workspace is stopped first: the new owner starts it."""
        who.must_be_admin()
        async with self.database.transaction() as tx:
            await self._seen(tx, who, workspace_id)
            known = await users.credentials(tx, username)
            if known is None or known.user.disabled_at is not None:
                raise Invalid(f"username: there is no enabled user {username!r}")
            await users.lock(tx, known.user.id)
            workspace = await self._locked(tx, workspace_id)
            if workspace.desired_state is DesiredState.DELETED:
                raise Conflict("the workspace is being deleted")
            if workspace.owner_user_id != known.user.id:
                if workspace.desired_state is DesiredState.RUNNING:
                    await workspaces.set_desired_state(tx, workspace_id, DesiredState.STANDBY, self.clock())
                await workspaces.transfer(tx, workspace_id, known.user.id, self.clock())
                await self._record(tx, workspace_id, who, "transferred", f"transferred to {username}")
                await self._give_free_name(tx, who, workspace, known.user.id)
            return await self._again(tx, workspace_id)

    async def archives_in_store(self, workspace_id: str) -> list[Generation]:
        """Return all complete archives of this workspace in the store, recorded or not.

        Empty if the store does not answer.
        """
        if self.archives is None:
            return []
        try:
            receipts = await self.archives.receipts(workspace_id)
        except BackendDown:
            return []
        return [
            Generation(one.archive_key, one.op_id, time_of(one.op_id) or self.clock(), one.bytes, one.sha256)
            for one in receipts
        ]

    async def _recover_data(
        self, tx: Transaction, workspace: Workspace, recovery: Recovery, in_store: Sequence[Generation]
    ) -> str:
        await timeline.adopt(tx, workspace.id, in_store)
        kept = [generation.archive_key for generation in await timeline.generations(tx, workspace.id)]
        if not recovery.chosen:
            choices = ", ".join(kept) or "none is kept"
            raise Invalid(f"archive_key: name one of the kept archives ({choices}), or null for an empty home")
        if recovery.archive_key is not None and recovery.archive_key not in kept:
            raise Invalid(f"archive_key: not one of the kept archives ({', '.join(kept) or 'none is kept'})")
        await workspaces.recover_from_archive(tx, workspace.id, recovery.archive_key, self.clock())
        return f"recovered from {recovery.archive_key or 'an empty home'}"

    async def _seen(self, tx: Transaction, who: Principal, workspace_id: str) -> WorkspaceWithOwner:
        found = await workspaces.get(tx, _checked(workspace_id))
        if found is None or found.workspace.deleted_at is not None:
            raise WorkspaceNotFound("there is no such workspace")
        if found.workspace.owner_user_id != who.user_id and not who.is_admin:
            raise Denied("this workspace belongs to someone else")
        return found

    async def _locked(self, tx: Transaction, workspace_id: str) -> Workspace:
        workspace = await workspaces.lock(tx, workspace_id)
        if workspace is None or workspace.deleted_at is not None:
            raise WorkspaceNotFound("there is no such workspace")
        if workspace.of_newer_version:
            raise Conflict("a newer CodeHub works on this workspace: finish the upgrade, then try again")
        return workspace

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
            await self._record(tx, workspace.id, who, "edited", f"changed {', '.join(changed)}")

    async def _give_free_name(self, tx: Transaction, who: Principal, workspace: Workspace, owner_id: str) -> None:
        """Rename a workspace that comes to an owner who uses its name already."""
        name = await workspace_names.free(tx, owner_id, workspace.name, but=workspace.id)
        if name != workspace.name:
            await workspaces.rename(tx, workspace.id, name)
            await self._record(tx, workspace.id, who, "edited", f"renamed to {name}: {workspace.name} was in use")

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
        await self._record(tx, workspace.id, who, kind, f"{_REQUESTED[desired]}{after}")
        return await self._again(tx, workspace.id)

    async def _note_visit(
        self, tx: Transaction, kind: AuditKind, who: Principal, workspace_id: str, **detail: object
    ) -> None:
        """Record a visit by another user once an hour, because a page polls every few seconds."""
        if self.visits.is_new(kind, who.user_id, who.address, workspace_id):
            await note(tx, kind, self.clock(), who, workspace_id=workspace_id, detail=detail)

    async def _record(self, tx: Transaction, workspace_id: str, who: Principal, kind: str, message: str) -> None:
        """Add a timeline entry. Also audit what only administrators do, and what they do to other users' workspaces."""
        now = self.clock()
        await timeline.record(tx, workspace_id, at=now, kind=kind, message=message, actor=who.username)
        if not who.is_admin:  # the owner: other users without administrator rights cannot change anything
            return
        event = _AUDITED.get(kind, AuditKind.WORKSPACE_CHANGED)
        found = await workspaces.get(tx, workspace_id)
        if found is None or (event is AuditKind.WORKSPACE_CHANGED and found.workspace.owner_user_id == who.user_id):
            return
        name = found.workspace.name
        detail = {"change": kind, "message": message, "owner": found.owner}
        await note(tx, event, now, who, workspace_id=workspace_id, target=name, detail=detail)

    async def _again(self, tx: Transaction, workspace_id: str) -> WorkspaceWithOwner:
        found = await workspaces.get(tx, workspace_id)
        assert found is not None
        return found


# Timeline entries that only administrators cause.
_AUDITED = {
    "recover": AuditKind.WORKSPACE_RECOVERED,
    "undelete": AuditKind.WORKSPACE_UNDELETED,
    "transferred": AuditKind.WORKSPACE_TRANSFERRED,
}


def viewer_of(who: Principal, owned: WorkspaceWithOwner) -> Viewer:
    return Viewer(is_admin=who.is_admin, is_owner=owned.workspace.owner_user_id == who.user_id)


def _origin(workspace: Workspace) -> str:
    template = workspace.template
    if template is None:
        return workspace.image_ref
    return f"version {template.version} of the template {template.name}"


def _checked(workspace_id: str) -> str:
    """Raise for anything that is not a valid id, so that it never reaches the database."""
    if not is_id(workspace_id):
        raise WorkspaceNotFound("there is no such workspace")
    return workspace_id
