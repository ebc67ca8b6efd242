"""Workspaces and their verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from codehub.api.context import Context, Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import (
    DeleteQuery,
    RepositoryCreate,
    SetupRetry,
    WorkspaceCreate,
    WorkspaceDuplicate,
    WorkspaceKeepAwake,
    WorkspacePageQuery,
    WorkspacePatch,
    WorkspaceRecover,
    WorkspaceTransfer,
)
from codehub.api.verbs import ONE_WORKSPACE
from codehub.api.workspace_views import WorkspacePage, WorkspaceView, workspace_view
from codehub.domain.model import DesiredState, Phase, WorkspaceWithOwner
from codehub.domain.repository import RepositorySource, parse_source
from codehub.services.principal import Principal
from codehub.services.workspace_admin import Recovery
from codehub.services.workspaces import Edit, NewWorkspace, viewer_of

_ONE = ONE_WORKSPACE

router = api_router("workspaces")


@router.get("/workspaces", responses=signed_in())
async def list_workspaces(query: Annotated[WorkspacePageQuery, Query()], ctx: Ctx, who: Who) -> WorkspacePage:
    """List your workspaces, newest first; with `all`, those of all users."""
    found, total = await ctx.workspaces.page(
        who, everybody=query.all, deleted=query.deleted, limit=query.per_page, offset=query.offset
    )
    return WorkspacePage(items=await _views(found, ctx, who), page=query.page, per_page=query.per_page, total=total)


@router.post("/workspaces", status_code=201, responses=signed_in(409, 413, 429))
async def create_workspace(body: WorkspaceCreate, ctx: Ctx, who: Who) -> WorkspaceView:
    """Create a workspace and start it, unless `start` is false. If a limit is exceeded, nothing is created."""
    new = NewWorkspace(
        body.name,
        body.description,
        body.memo,
        body.image_ref,
        body.start,
        _source(body.repo),
        body.template,
        body.parameters,
    )
    return await _view(await ctx.workspaces.create(who, new), ctx, who)


@router.get(_ONE, responses=signed_in(404))
async def get_workspace(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Get a workspace."""
    return await _view(await ctx.workspaces.get(who, workspace_id), ctx, who)


@router.patch(_ONE, responses=signed_in(404, 409, 413, 429))
async def change_workspace(workspace_id: str, body: WorkspacePatch, ctx: Ctx, who: Who) -> WorkspaceView:
    """Change name, description, memo or desired state (in any status but DELETING; limits apply)."""
    desired = None if body.desired_state is None else DesiredState(body.desired_state)
    edit = Edit(body.name, body.description, body.memo, desired)
    return await _view(await ctx.workspaces.edit(who, workspace_id, edit), ctx, who)


@router.delete(_ONE, status_code=204, responses=signed_in(404, 409))
async def delete_workspace(workspace_id: str, query: Annotated[DeleteQuery, Query()], ctx: Ctx, who: Who) -> None:
    """Delete a workspace in CREATED, STOPPED or ERROR; with `force`, in any status."""
    await ctx.workspaces.delete(who, workspace_id, force=query.force)


@router.post(_ONE + ":start", status_code=202, responses=signed_in(404, 409, 429))
async def start_workspace(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Start a workspace in CREATED, STOPPED or ERROR."""
    return await _view(await ctx.workspaces.start(who, workspace_id), ctx, who)


@router.post(_ONE + ":stop", status_code=202, responses=signed_in(404, 409))
async def stop_workspace(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Stop a workspace in RUNNING or ERROR."""
    return await _view(await ctx.workspaces.stop(who, workspace_id), ctx, who)


@router.post(_ONE + ":cancel", status_code=202, responses=signed_in(404, 409))
async def cancel_operation(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Cancel the current start, restore or archive. The workspace returns to its previous state; no file is lost."""
    return await _view(await ctx.workspaces.cancel(who, workspace_id), ctx, who)


@router.post(_ONE + ":keep-awake", status_code=202, responses=signed_in(404, 409, 413, 429))
async def keep_workspace_awake(
    workspace_id: str,
    body: WorkspaceKeepAwake,
    ctx: Ctx,
    who: Who,
    wake: Annotated[bool, Query(description="Wake the workspace when it sleeps.")] = True,
) -> WorkspaceView:
    """Keep the workspace awake until a time, regardless of activity; `null` ends that. Wakes a sleeping workspace."""
    return await _view(await ctx.workspaces.keep_awake(who, workspace_id, body.until, wake=wake), ctx, who)


@router.post(_ONE + ":retry-setup", status_code=202, responses=signed_in(404, 409, 413))
async def retry_setup(workspace_id: str, ctx: Ctx, who: Who, body: SetupRetry | None = None) -> WorkspaceView:
    """Retry the failed steps of the setup: the clone, dotfiles, commands. The workspace must be running.

    If the clone has failed, `repo` may name another repository or branch.
    """
    repo = None if body is None else _source(body.repo)
    return await _view(await ctx.workspaces.retry_setup(who, workspace_id, repo), ctx, who)


@router.post(_ONE + ":archive", status_code=202, responses=signed_in(404, 409))
async def archive_workspace(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Archive a workspace in RUNNING, STOPPED or ERROR, unless it is archived already."""
    return await _view(await ctx.workspaces.archive(who, workspace_id), ctx, who)


@router.post(_ONE + ":recover", status_code=202, responses=signed_in(404, 409, 413))
async def recover_workspace(
    workspace_id: str, ctx: Ctx, who: Who, body: WorkspaceRecover | None = None
) -> WorkspaceView:
    """Recover a workspace from ERROR (administrators).

    After DataLost or ArchiveCorrupted, `archive_key` selects what to restore.
    """
    given = body is not None and "archive_key" in body.model_fields_set
    recovery = Recovery(chosen=given, archive_key=body.archive_key if body is not None else None)
    return await _view(await ctx.workspace_admin.recover(who, workspace_id, recovery), ctx, who)


@router.post(_ONE + ":duplicate", status_code=201, responses=signed_in(404, 409, 413, 429))
async def duplicate_workspace(workspace_id: str, body: WorkspaceDuplicate, ctx: Ctx, who: Who) -> WorkspaceView:
    """Create a workspace of yours with the files of this one, which stays unchanged.

    A running one must be stopped first.
    """
    made = await ctx.workspace_copies.duplicate(who, workspace_id, body.name, start=body.start)
    return await _view(made, ctx, who)


@router.post(_ONE + ":continue-from-archive", status_code=201, responses=signed_in(404, 409, 429))
async def continue_from_archive(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Create a workspace from the last archive of one whose node does not answer. The old one stays unchanged."""
    return await _view(await ctx.workspace_copies.continue_from_archive(who, workspace_id), ctx, who)


@router.post(_ONE + ":undelete", status_code=202, responses=signed_in(404, 409))
async def undelete_workspace(workspace_id: str, ctx: Ctx, who: Who) -> WorkspaceView:
    """Undelete a workspace (administrators), within CODEHUB_DELETED_RETENTION of its deletion."""
    return await _view(await ctx.workspace_admin.undelete(who, workspace_id), ctx, who)


@router.post(_ONE + ":transfer", status_code=202, responses=signed_in(404, 409, 413))
async def transfer_workspace(workspace_id: str, body: WorkspaceTransfer, ctx: Ctx, who: Who) -> WorkspaceView:
    """Transfer a workspace to another user (administrators). A running one is only stopped (409): repeat it then."""
    return await _view(await ctx.workspace_admin.transfer(who, workspace_id, body.username), ctx, who)


def _source(repo: RepositoryCreate | None) -> RepositorySource | None:
    return None if repo is None else parse_source(repo.url, repo.ref, repo.path)


async def _view(owned: WorkspaceWithOwner, ctx: Context, who: Principal) -> WorkspaceView:
    return (await _views([owned], ctx, who))[0]


async def _views(found: Sequence[WorkspaceWithOwner], ctx: Context, who: Principal) -> list[WorkspaceView]:
    running = any(owned.workspace.phase is Phase.RUNNING for owned in found)
    gaps = await ctx.workspaces.activity_gaps() if running else ()
    now = ctx.deps.clock()
    return [workspace_view(owned, ctx.config, viewer_of(who, owned), gaps, now) for owned in found]
