"""SSH: users' public keys, and what a client needs to connect to a workspace."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from codehub.api.context import Ctx, Who
from codehub.api.forwarding import Wake
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Wire
from codehub.api.views import View
from codehub.domain.ssh_keys import SshKey, parse_public_key

router = api_router("ssh")


class KeyCreate(Wire):
    public_key: Annotated[str, Field(min_length=1, max_length=16_384, description="One line of a .pub file.")]
    name: Annotated[str, Field(max_length=255)] = ""


class KeyView(View):
    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class KeyList(View):
    items: list[KeyView]


class SshView(View):
    user: str = Field(description="The user to sign in as.")
    host_key: str = Field(description="For a known-hosts file: the key that this workspace always has.")
    fingerprint: str


class KnownHostView(View):
    host_key: str | None = Field(description="null before the first connection.")
    fingerprint: str | None


@router.get("/keys", responses=signed_in())
async def list_keys(ctx: Ctx, who: Who) -> KeyList:
    """List your SSH public keys, oldest first."""
    return KeyList(items=[_view(key) for key in await ctx.ssh.keys(who)])


@router.post("/keys", status_code=201, responses=signed_in(409, 413))
async def add_key(body: KeyCreate, ctx: Ctx, who: Who) -> KeyView:
    """Add a public key. Adding the same key again returns the existing one."""
    return _view(await ctx.ssh.add_key(who, body.public_key, body.name))


@router.delete("/keys/{key_id}", status_code=204, responses=signed_in(404))
async def remove_key(key_id: str, ctx: Ctx, who: Who) -> None:
    """Remove a public key. Open connections continue; new ones need another key."""
    await ctx.ssh.remove_key(who, key_id)


@router.get("/workspaces/{workspace_id}/ssh", responses=signed_in(404))
async def known_host(workspace_id: str, ctx: Ctx, who: Who) -> KnownHostView:
    """Get the workspace's public host key."""
    line = await ctx.ssh.known_host(who, workspace_id)
    return KnownHostView(host_key=line, fingerprint=parse_public_key(line).fingerprint if line else None)


@router.post("/workspaces/{workspace_id}/ssh", responses=signed_in(404, 409, 429, 502))
async def prepare_ssh(workspace_id: str, ctx: Ctx, who: Who, wake: Wake = True) -> SshView:
    """Make the workspace accept SSH with your current keys; then connect to `/_codehub/{id}/ssh` of the proxy."""
    found = await ctx.ssh.prepare(who, workspace_id, wake=wake)
    return SshView(user=found.user, host_key=found.host_key, fingerprint=found.fingerprint)


def _view(key: SshKey) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        created_at=key.created_at,
    )
