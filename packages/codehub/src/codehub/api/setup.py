"""Users' personal setup (git credentials, a git key, secrets, dotfiles), and the output of workspace setups."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from codehub.api.context import Ctx, Who
from codehub.api.forwarding import Wake, forward
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Wire
from codehub.api.views import View
from codehub.domain.errors import Invalid
from codehub.domain.user_secrets import GitCredential, GitKey, SecretKind, UserSecret

router = api_router("setup")


class SetupSkip(Wire):
    step: Annotated[str, Field(min_length=1, max_length=100, description="The id of a step that `may_skip`.")]


class GitCredentialCreate(Wire):
    host: Annotated[
        str, Field(min_length=1, max_length=2_048, description="A host, or the URL of a repository on it.")
    ]
    username: Annotated[
        str, Field(max_length=255, description="Empty: `git`, which most hosts take with a token.")
    ] = ""
    token: Annotated[str, Field(min_length=1, max_length=8_192)]


class GitCredentialView(View):
    """The token is never shown again."""

    id: str
    url: str = Field(description="Scheme and host.")
    host: str
    username: str
    created_at: datetime


class GitCredentialList(View):
    items: list[GitCredentialView]


class GitKeyCreate(Wire):
    replace: bool = Field(False, description="Replace the key with a new one.")


class GitKeyView(View):
    public_key: str | None = Field(description="Add it to your account at the git host. null: you have none.")
    fingerprint: str | None
    created_at: datetime | None


class SecretPut(Wire):
    kind: Literal["env", "file"] = Field("env", description="An environment variable, or a file in memory.")
    value: Annotated[str, Field(max_length=131_072)]
    base64: bool = Field(False, description="`value` is base64: for files that are not text.")


class SecretView(View):
    """The value is never shown again."""

    name: str
    kind: Literal["env", "file"]
    bytes: int
    updated_at: datetime


class SecretList(View):
    items: list[SecretView]


class DotfilesPut(Wire):
    url: Annotated[str, Field(max_length=2_048, description="Empty: none.")]
    ref: Annotated[str, Field(max_length=255)] = ""


class DotfilesView(View):
    url: str
    ref: str


class BranchesAsk(Wire):
    url: Annotated[str, Field(min_length=1, max_length=2_048)]


class BranchesView(View):
    default: str = Field(description="The default branch; empty when the repository is empty.")
    items: list[str]


@router.post("/repositories/branches", responses=signed_in(413, 503))
async def list_branches(body: BranchesAsk, ctx: Ctx, who: Who) -> BranchesView:
    """List the branches of a repository with your credential for its host. 400 says why they cannot be listed."""
    found = await ctx.user_setup.branches(who, body.url)
    return BranchesView(default=found.default, items=list(found.names))


@router.get("/git-credentials", responses=signed_in())
async def list_git_credentials(ctx: Ctx, who: Who) -> GitCredentialList:
    """List your credentials for git over HTTPS, by host. Tokens are not shown."""
    return GitCredentialList(items=[_credential(each) for each in await ctx.user_setup.credentials(who)])


@router.post("/git-credentials", status_code=201, responses=signed_in(409, 413))
async def add_git_credential(body: GitCredentialCreate, ctx: Ctx, who: Who) -> GitCredentialView:
    """Store a credential for a host, replacing an existing one. Your running workspaces use it immediately."""
    return _credential(await ctx.user_setup.add_credential(who, body.host, body.username, body.token))


@router.delete("/git-credentials/{credential_id}", status_code=204, responses=signed_in(404))
async def remove_git_credential(credential_id: str, ctx: Ctx, who: Who) -> None:
    """Remove a credential. Access with it ends immediately, also in running workspaces."""
    await ctx.user_setup.remove_credential(who, credential_id)


@router.get("/git-key", responses=signed_in())
async def get_git_key(ctx: Ctx, who: Who) -> GitKeyView:
    """Get the public part of your key for git over SSH."""
    return _key(await ctx.user_setup.key(who))


@router.post("/git-key", status_code=201, responses=signed_in(413))
async def make_git_key(body: GitKeyCreate, ctx: Ctx, who: Who) -> GitKeyView:
    """Create a key for git over SSH. The private key stays in CodeHub, which signs for your workspaces."""
    return _key(await ctx.user_setup.make_key(who, replace=body.replace))


@router.delete("/git-key", status_code=204, responses=signed_in(404))
async def remove_git_key(ctx: Ctx, who: Who) -> None:
    """Remove the key. Nothing is signed with it any more."""
    await ctx.user_setup.remove_key(who)


@router.get("/secrets", responses=signed_in())
async def list_secrets(ctx: Ctx, who: Who) -> SecretList:
    """List your secrets, without their values."""
    return SecretList(items=[_secret(each) for each in await ctx.user_setup.secrets(who)])


@router.put("/secrets/{name}", responses=signed_in(409, 413))
async def set_secret(name: str, body: SecretPut, ctx: Ctx, who: Who) -> SecretView:
    """Set a secret. Files change in running workspaces immediately; an IDE's environment changes at its next start."""
    value = body.value.encode()
    if body.base64:
        try:
            value = base64.b64decode(body.value, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("value: not base64") from None
    return _secret(await ctx.user_setup.set_secret(who, name, SecretKind(body.kind), value))


@router.delete("/secrets/{name}", status_code=204, responses=signed_in(404))
async def remove_secret(name: str, ctx: Ctx, who: Who) -> None:
    """Remove a secret. Its file is removed immediately; running programs keep their environment until they end."""
    await ctx.user_setup.remove_secret(who, name)


@router.get("/dotfiles", responses=signed_in())
async def get_dotfiles(ctx: Ctx, who: Who) -> DotfilesView:
    """Get your dotfiles repository."""
    url, ref = await ctx.user_setup.dotfiles(who)
    return DotfilesView(url=url, ref=ref)


@router.put("/dotfiles", responses=signed_in(413))
async def set_dotfiles(body: DotfilesPut, ctx: Ctx, who: Who) -> DotfilesView:
    """Set your dotfiles repository. It is used at the next start of each workspace."""
    url, ref = await ctx.user_setup.set_dotfiles(who, body.url, body.ref)
    return DotfilesView(url=url, ref=ref)


@router.get(
    "/workspaces/{workspace_id}/setup-log",
    response_class=Response,
    responses={
        200: {"description": "What the steps printed, in order.", "content": {"text/plain": {}}},
        **signed_in(404, 409, 502),
    },
)
async def setup_log(workspace_id: str, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """Get the output of the workspace's setup: the clone, dotfiles, commands."""
    return await forward(ctx, who, workspace_id, "GET", "/setup/log", wake=wake)


@router.post(
    "/workspaces/{workspace_id}:skip-setup",
    status_code=204,
    response_class=Response,
    responses=signed_in(404, 409, 413, 502),
)
async def skip_setup(workspace_id: str, body: SetupSkip, ctx: Ctx, who: Who) -> Response:
    """Stop a running step of the workspace's setup. The next step follows; `:retry-setup` repeats it."""
    content = json.dumps({"step": body.step}).encode()
    headers = {"content-type": "application/json"}
    return await forward(ctx, who, workspace_id, "POST", "/setup/skip", wake=False, headers=headers, body=content)


def _credential(found: GitCredential) -> GitCredentialView:
    return GitCredentialView(
        id=found.id,
        url=f"{found.scheme}://{found.host}",
        host=found.host,
        username=found.username,
        created_at=found.created_at,
    )


def _key(found: GitKey | None) -> GitKeyView:
    if found is None:
        return GitKeyView(public_key=None, fingerprint=None, created_at=None)
    return GitKeyView(public_key=found.public_key, fingerprint=found.fingerprint, created_at=found.created_at)


def _secret(found: UserSecret) -> SecretView:
    return SecretView(name=found.name, kind=found.kind.value, bytes=found.bytes, updated_at=found.updated_at)
