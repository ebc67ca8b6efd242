"""Ports of a workspace: listening ports, sharing, and links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path
from pydantic import Field

from codehub.api.context import Ctx, Who
from codehub.api.forwarding import Wake
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Wire
from codehub.api.views import View

router = api_router("ports")
PortNumber = Annotated[int, Path(ge=1, le=65535)]
Share = Literal["owner", "users", "link"]


class PortView(View):
    port: int
    process: str | None = Field(description="The name of what listens, where it is known.")
    share: Share
    url: str


class PortList(View):
    items: list[PortView]


class PortPatch(Wire):
    share: Share


class SharedPortView(View):
    port: int
    share: Share


class LinkCreate(Wire):
    expires_in_s: Annotated[float, Field(gt=0, le=2_592_000)] = 86_400


class LinkView(View):
    id: str
    port: int
    created_at: datetime
    expires_at: datetime


class MintedLinkView(LinkView):
    url: str = Field(description="Anyone with this URL can open the port. It is shown only once.")


class LinkList(View):
    items: list[LinkView]


@router.get("/workspaces/{workspace_id}/ports", responses=signed_in(404, 409, 429, 502))
async def list_ports(workspace_id: str, ctx: Ctx, who: Who, wake: Wake = True) -> PortList:
    """List the listening ports of the workspace, on any of its addresses."""
    found = await ctx.ports.listed(who, workspace_id, wake=wake)
    return PortList(items=[PortView(port=p.port, process=p.process, share=_share(p.share), url=p.url) for p in found])


@router.patch("/workspaces/{workspace_id}/ports/{port}", responses=signed_in(404, 409, 413))
async def share_port(workspace_id: str, port: PortNumber, body: PortPatch, ctx: Ctx, who: Who) -> SharedPortView:
    """Set who may open the port: only its owner, any signed-in user, or anyone with a link."""
    share = await ctx.ports.share(who, workspace_id, port, body.share)
    return SharedPortView(port=port, share=_share(share))


@router.get("/workspaces/{workspace_id}/ports/{port}/links", responses=signed_in(404))
async def list_port_links(workspace_id: str, port: PortNumber, ctx: Ctx, who: Who) -> LinkList:
    """List the valid links."""
    found = await ctx.ports.links(who, workspace_id, port)
    return LinkList(
        items=[LinkView(id=k.id, port=k.port, created_at=k.created_at, expires_at=k.expires_at) for k in found]
    )


@router.post("/workspaces/{workspace_id}/ports/{port}/links", status_code=201, responses=signed_in(404, 409, 413))
async def create_port_link(
    workspace_id: str, port: PortNumber, ctx: Ctx, who: Who, body: LinkCreate | None = None
) -> MintedLinkView:
    """Create a URL that opens the port for anyone who has it, until it expires or is revoked."""
    minted = await ctx.ports.link(who, workspace_id, port, (body or LinkCreate()).expires_in_s)
    link = minted.link
    return MintedLinkView(
        id=link.id, port=link.port, created_at=link.created_at, expires_at=link.expires_at, url=minted.url
    )


@router.delete("/workspaces/{workspace_id}/ports/{port}/links/{link_id}", status_code=204, responses=signed_in(404))
async def revoke_port_link(workspace_id: str, port: PortNumber, link_id: str, ctx: Ctx, who: Who) -> None:
    """Revoke a link."""
    await ctx.ports.revoke(who, workspace_id, link_id)


def _share(text: str) -> Share:
    match text:
        case "users" | "link":
            return text
        case _:
            return "owner"
