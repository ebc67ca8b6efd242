"""Signs a browser in to a workspace: the hand-over to the dashboard and back, and the cookies it leaves."""

from __future__ import annotations

import hashlib
import secrets
from urllib.parse import quote

from codehub.domain.cookies import cookie_values
from codehub.proxy.admission.addresses import Addresses, below_prefix, cookie_path
from codehub.proxy.admission.decision import Reply, refusal
from codehub.proxy.admission.request_context import RequestContext
from codehub.proxy.http1.headers import NONCE_COOKIE, WORKSPACE_COOKIE, as_location
from codehub.services.workspace_access import WorkspaceAccess


class SignIn:
    def __init__(self, access: WorkspaceAccess, addresses: Addresses) -> None:
        self._access = access
        self._addresses = addresses

    def redirect(self, context: RequestContext) -> Reply:
        if not context.navigation:
            if context.token:
                return refusal(401, "this API token is unknown, has expired, or is limited to another workspace")
            return refusal(401, "sign in first: the workspace's cookie is missing or has expired")
        # Tabs that sign in at the same time share one.
        nonce = next(iter(self.values(context, NONCE_COOKIE)), b"") or secrets.token_urlsafe(24).encode()
        digest = hashlib.sha256(nonce).hexdigest()
        place = f"{self._addresses.dashboard}/handover/{context.workspace_id}"
        back = below_prefix(context.workspace_id, context.door, context.rest)
        location = f"{place}?nonce={digest}&next={quote(back, safe='')}"
        return Reply(
            303,
            headers=(
                (b"Location", location.encode()),
                (b"Set-Cookie", self._cookie(NONCE_COOKIE, nonce, context, b"; Max-Age=600")),
            ),
        )

    async def redeem(self, context: RequestContext, ticket: str, rest: str) -> Reply | None:
        """Exchange a ticket for a workspace cookie. None if it is not good for this browser and workspace."""
        nonces = self.values(context, NONCE_COOKIE)
        secret = None
        if context.navigation and nonces:
            secret = await self._access.redeem(ticket.encode(), nonces, context.workspace_id)
        if secret is None:
            return None
        return Reply(
            303,
            headers=(
                (b"Location", as_location(rest.encode())),
                (b"Set-Cookie", self._cookie(WORKSPACE_COOKIE, secret.encode(), context)),
                (b"Set-Cookie", self._cookie(NONCE_COOKIE, b"", context, b"; Max-Age=0")),
            ),
        )

    def values(self, context: RequestContext, name: bytes) -> list[bytes]:
        """Return the values of one of CodeHub's cookies."""
        return cookie_values(context.request.fields.cookie, self._addresses.cookie(name))

    def _cookie(self, name: bytes, value: bytes, context: RequestContext, more: bytes = b"") -> bytes:
        return self.set_cookie(name, value, cookie_path(context.workspace_id, context.door), more)

    def set_cookie(self, name: bytes, value: bytes, path: str, more: bytes = b"") -> bytes:
        secure = b"; Secure" if self._addresses.secure else b""
        named = self._addresses.cookie(name)
        if named != name:
            path = "/"  # browsers require it of the prefix, and a host with it belongs to one workspace
        return b"%b=%b; Path=%b; HttpOnly; SameSite=Lax%b%b" % (named, value, path.encode(), secure, more)
