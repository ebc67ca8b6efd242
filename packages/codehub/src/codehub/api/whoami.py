"""`GET /whoami`: who is signed in, if anybody. For the dashboard, which asks before it knows: here nobody is an answer,
where `/session` answers 401 and a browser would log an error."""

from __future__ import annotations

from fastapi import APIRouter, Request

from codehub.api.context import principal_or_none
from codehub.api.openapi import may_answer
from codehub.api.view import View
from codehub.api.views import UserBrief

router = APIRouter(tags=["sessions"])


class WhoamiView(View):
    user: UserBrief | None
    # Signed in through a link that a token made: may do no more than that token.
    by_token: bool = False


@router.get("/whoami", responses=may_answer())
async def whoami(request: Request) -> WhoamiView:
    """Who is signed in; `user` is null when nobody is."""
    who = await principal_or_none(request)
    if who is None:
        return WhoamiView(user=None)
    brief = UserBrief(id=who.user_id, username=who.username, is_admin=who.is_admin)
    return WhoamiView(user=brief, by_token=who.token_id is not None)
