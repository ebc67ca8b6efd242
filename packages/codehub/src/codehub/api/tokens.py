"""API tokens. A token cannot create tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from codehub.api.account_views import MintedTokenView, TokenPage, token_view
from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import PageQuery, TokenCreate

router = api_router("tokens")


@router.get("/tokens", responses=signed_in())
async def list_tokens(query: Annotated[PageQuery, Query()], ctx: Ctx, who: Who) -> TokenPage:
    """List your tokens, newest first, without their secrets."""
    found, total = await ctx.accounts.list_tokens(who, query.per_page, query.offset)
    return TokenPage(
        items=[token_view(each) for each in found], page=query.page, per_page=query.per_page, total=total
    )


@router.post("/tokens", status_code=201, responses=signed_in(404, 409, 413))
async def create_token(body: TokenCreate, ctx: Ctx, who: Who) -> MintedTokenView:
    """Create a token. Its secret is only in this response."""
    minted = await ctx.accounts.mint_token(who, body.name, body.expires_in_days, body.workspace_id)
    return MintedTokenView(**token_view(minted.token).model_dump(), token=minted.secret)


@router.delete("/tokens/{token_id}", status_code=204, responses=signed_in(404))
async def delete_token(token_id: str, ctx: Ctx, who: Who) -> None:
    """Revoke a token."""
    await ctx.accounts.delete_token(who, token_id)
