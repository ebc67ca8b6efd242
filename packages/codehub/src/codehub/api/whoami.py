"""`GET /whoami`: the signed-in user, if any.

For the dashboard, which does not know yet whether there is a session: this answers null, while `/session` answers 401,
which a browser would log as an error.
"""

from __future__ import annotations

from fastapi import Request

from codehub.api.account_views import UserBrief
from codehub.api.context import principal_or_none
from codehub.api.openapi import may_answer
from codehub.api.router import api_router
from codehub.api.views import View

router = api_router("sessions")


class WhoamiView(View):
    user: UserBrief | None
    # Signed in through a link that a token created: has no more rights than that token.
    by_token: bool = False


@router.get("/whoami", responses=may_answer())
async def whoami(request: Request) -> WhoamiView:
    """Get the signed-in user; `user` is null if there is none."""
    who = await principal_or_none(request)
    if who is None:
        return WhoamiView(user=None)
    brief = UserBrief(id=who.user_id, username=who.username, is_admin=who.is_admin)
    return WhoamiView(user=brief, by_token=who.token_id is not None)
