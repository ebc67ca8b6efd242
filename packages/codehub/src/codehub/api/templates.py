"""Templates: list, push, preview, archive; and a workspace's template."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import TemplatePreview, TemplatePush, TemplatesQuery, TimeZonePut, WorkspaceTemplateUpdate
from codehub.api.template_views import (
    PreviewList,
    PushedList,
    TemplateList,
    TemplateView,
    TimeZoneView,
    UpdateView,
    VersionList,
    VersionView,
    preview_view,
    pushed_view,
    template_view,
    update_view,
    version_brief,
    version_view,
)
from codehub.api.verbs import ONE_TEMPLATE, ONE_WORKSPACE
from codehub.api.workspace_views import WorkspaceView, workspace_view
from codehub.domain.errors import Conflict, Invalid
from codehub.domain.model import Phase
from codehub.services.workspaces import viewer_of

router = api_router("templates")
_ONE = ONE_TEMPLATE
VersionNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/templates", responses=signed_in())
async def list_templates(query: Annotated[TemplatesQuery, Query()], ctx: Ctx, who: Who) -> TemplateList:
    """List the templates that you may use, and the profiles that no template hides."""
    found = await ctx.templates.offered(who, archived=query.archived)
    return TemplateList(items=[template_view(each, is_admin=who.is_admin) for each in found])


@router.post("/templates", status_code=201, responses=signed_in(409, 413))
async def push_templates(body: TemplatePush, ctx: Ctx, who: Who) -> PushedList:
    """Push the templates of a TOML text (administrators): a new version of each that changed. All, or none of them.

    Refused if somebody pushed a newer version than the one that your text is based on.
    """
    who.must_be_admin()
    if problems := ctx.templates.problems(body.source):
        raise Invalid("\n".join(_line(each.line, each.where, each.message) for each in problems))
    pushed = await ctx.templates.push(who, body.source, body.base, force=body.force)
    return PushedList(items=[pushed_view(each) for each in pushed])


@router.post("/templates:preview", responses=signed_in(404, 413))
async def preview_templates(body: TemplatePreview, ctx: Ctx, who: Who) -> PreviewList:
    """Preview a template, or a text that is not pushed yet (administrators), with these values, and list its mistakes."""
    if (body.source is None) == (body.name is None):
        raise Invalid("name: give a template's name or a source, one of the two")
    if body.source is not None:
        found = await ctx.templates.preview_text(who, body.source, body.parameters, body.runtime)
    else:
        assert body.name is not None
        found = [await ctx.templates.preview(who, body.name, body.parameters, body.runtime)]
    return PreviewList(items=[preview_view(each) for each in found])


@router.get(_ONE, responses=signed_in(404))
async def get_template(name: str, ctx: Ctx, who: Who) -> TemplateView:
    """Get a template in its newest version."""
    return template_view(await ctx.templates.get(who, name), is_admin=who.is_admin)


@router.get(_ONE + "/versions", responses=signed_in(404))
async def list_template_versions(name: str, ctx: Ctx, who: Who) -> VersionList:
    """List a template's versions, newest first (administrators)."""
    return VersionList(items=[version_brief(each) for each in await ctx.templates.versions(who, name)])


@router.get(_ONE + "/versions/{version}", responses=signed_in(404))
async def get_template_version(name: str, version: VersionNumber, ctx: Ctx, who: Who) -> VersionView:
    """Get a version's text, and its difference from the previous version (administrators)."""
    return version_view(await ctx.templates.version(who, name, version))


@router.post(_ONE + ":archive", status_code=204, responses=signed_in(404, 409))
async def archive_template(name: str, ctx: Ctx, who: Who) -> None:
    """Stop offering a template (administrators). Rejected while workspaces use it; pushing it again restores it."""
    await ctx.templates.archive(who, name)


@router.get(ONE_WORKSPACE + "/template", responses=signed_in(404, 409))
async def get_workspace_template(workspace_id: str, ctx: Ctx, who: Who) -> UpdateView:
    """Get the template of a workspace, and what an update to the newest version changes."""
    found = await ctx.templates.update_of(who, workspace_id)
    if found is None:
        raise Conflict("the workspace was not made from a template")
    return update_view(found)


@router.post(ONE_WORKSPACE + ":update-template", status_code=202, responses=signed_in(404, 409, 413))
async def update_workspace_template(
    workspace_id: str, ctx: Ctx, who: Who, body: WorkspaceTemplateUpdate | None = None
) -> WorkspaceView:
    """Apply the newest version of the template at the next start. Values that are not given stay unchanged."""
    owned = await ctx.templates.update(who, workspace_id, body.parameters if body is not None else {})
    gaps = await ctx.workspaces.activity_gaps() if owned.workspace.phase is Phase.RUNNING else ()
    return workspace_view(owned, ctx.config, viewer_of(who, owned), gaps, ctx.deps.clock())


@router.get("/time-zone", responses=signed_in())
async def get_time_zone(ctx: Ctx, who: Who) -> TimeZoneView:
    """Get your time zone, which applies to the schedules of your workspaces."""
    return TimeZoneView(time_zone=await ctx.templates.time_zone(who))


@router.put("/time-zone", responses=signed_in(413))
async def set_time_zone(body: TimeZonePut, ctx: Ctx, who: Who) -> TimeZoneView:
    """Set your time zone."""
    return TimeZoneView(time_zone=await ctx.templates.set_time_zone(who, body.time_zone))


def _line(line: int | None, where: str, message: str) -> str:
    place = f"line {line}: " if line is not None else ""
    return f"{place}{where}: {message}" if where else f"{place}{message}"
