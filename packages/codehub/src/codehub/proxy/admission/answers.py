"""Answers of the proxy itself: a page for a person, a short JSON error for a program."""

from __future__ import annotations

from typing import Final

from codehub.domain.ids import is_id
from codehub.domain.model import Workspace
from codehub.domain.routing import Page
from codehub.domain.wording import unreachable_text
from codehub.proxy import pages
from codehub.proxy.admission.decision import Reply, refusal
from codehub.proxy.admission.request_context import RequestContext
from codehub.services.workspace_access import AccessSnapshot

MESSAGES: Final[dict[Page, str]] = {
    Page.NOT_FOUND: "there is no such workspace",
    Page.FORBIDDEN: "this workspace belongs to someone else",
    Page.WAKING: "the workspace is not running yet: try again",
    Page.AWAY: "the workspace runs but does not answer",
    Page.PORT_CLOSED: "nothing listens on this port of the workspace",
    Page.ARCHIVED: "the workspace is archived: restore it in the dashboard",
    Page.PENDING: "the workspace is not started",
    Page.ERROR: "the workspace is in ERROR: its timeline says why",
    Page.LIMIT: "too many workspaces are running: stop one first",
    Page.LINK_ENDED: "this link has expired or was revoked: ask for a new one",
    Page.UNAVAILABLE: "the database does not answer: try again",
}


class Answers:
    def __init__(self, dashboard: str) -> None:
        self._dashboard = dashboard

    def page(
        self,
        context: RequestContext,
        status: int,
        page: Page,
        *,
        seen: AccessSnapshot | None = None,
        running: list[tuple[str, str]] | None = None,
        retry_after_s: int | None = None,
        backend_silent: bool = False,
    ) -> Reply:
        owner = seen is not None and seen.is_owner
        if not context.navigation:
            again = ((b"Retry-After", b"%d" % retry_after_s),) if retry_after_s is not None else ()
            message = MESSAGES.get(page, page.value)
            if backend_silent and owner and seen is not None and seen.workspace is not None:
                message = unreachable_text(seen.workspace)
            return refusal(status, message, *again)
        return pages.render(
            page,
            status,
            dashboard=self._dashboard,
            workspace_id=context.workspace_id if is_id(context.workspace_id) else "",
            door=context.door,
            workspace=seen.workspace if seen is not None and owner else None,
            running=running,
            retry_after_s=retry_after_s,
            backend_silent=backend_silent,
        )

    def status(self, page: Page | None, workspace: Workspace) -> Reply:
        body = pages.status_document(page, workspace, self._dashboard)
        return Reply(200, body, ((b"Content-Type", b"application/json"),))
