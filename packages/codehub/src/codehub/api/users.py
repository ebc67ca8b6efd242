"""Users, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from codehub.api.account_views import UserPage, UserView, user_view
from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import PageQuery, UserCreate, UserPatch
from codehub.services.users import UserChange

router = api_router("users")


@router.get("/users", responses=signed_in())
async def list_users(query: Annotated[PageQuery, Query()], ctx: Ctx, who: Who) -> UserPage:
    """List all users by name."""
    found, total = await ctx.users.page(who, query.per_page, query.offset)
    return UserPage(items=[user_view(each) for each in found], page=query.page, per_page=query.per_page, total=total)


@router.post("/users", status_code=201, responses=signed_in(409, 413, 429))
async def create_user(body: UserCreate, ctx: Ctx, who: Who) -> UserView:
    """Create a user."""
    return user_view(await ctx.users.create(who, body.username, body.password, is_admin=body.is_admin))


@router.get("/users/{user_id}", responses=signed_in(404))
async def get_user(user_id: str, ctx: Ctx, who: Who) -> UserView:
    """Get a user."""
    return user_view(await ctx.users.get(who, user_id))


@router.patch("/users/{user_id}", responses=signed_in(404, 409, 413, 429))
async def change_user(user_id: str, body: UserPatch, ctx: Ctx, who: Who) -> UserView:
    """Set a password (ends the user's sessions and tokens), change administrator rights, disable or enable the user."""
    change = UserChange(password=body.password, is_admin=body.is_admin, disabled=body.disabled)
    return user_view(await ctx.users.change(who, user_id, change))


@router.delete("/users/{user_id}", status_code=204, responses=signed_in(404, 409))
async def delete_user(user_id: str, ctx: Ctx, who: Who) -> None:
    """Delete a user who owns no workspaces."""
    await ctx.users.delete(who, user_id)
