"""Pages for users, shown if there is nothing to forward to. Each shows the state, what happens next, and possible actions.

A page polls `_codehub/status` and continues automatically when the workspace is ready. Buttons lead to the dashboard, which
asks for confirmation and acts.
"""

from __future__ import annotations

import json
import secrets
from html import escape
from typing import Final

from codehub.domain.actions import Action, Viewer, allowed_actions
from codehub.domain.doors import IDE, Door, prefix_of
from codehub.domain.model import Operation, Status, Workspace
from codehub.domain.routing import Page
from codehub.domain.status import status_of
from codehub.domain.wording import OPERATIONS, error_text, unreachable_text
from codehub.proxy.admission.decision import Reply

STATUS_PATH: Final = "_codehub/status"

_TITLES: Final[dict[Page, str]] = {
    Page.NOT_FOUND: "Workspace not found",
    Page.FORBIDDEN: "This workspace belongs to someone else",
    Page.WAKING: "Your workspace is waking up",
    Page.AWAY: "Your workspace does not answer",
    Page.PORT_CLOSED: "Nothing listens on this port",
    Page.ARCHIVED: "Your workspace is archived",
    Page.PENDING: "Your workspace is not ready yet",
    Page.ERROR: "Something went wrong with your workspace",
    Page.LIMIT: "Too many workspaces are running",
    Page.SIGNED_OUT: "Sign-in failed",
    Page.LINK_ENDED: "This link no longer works",
    Page.UNAVAILABLE: "CodeHub is temporarily unavailable",
}
_TEXTS: Final[dict[Page, str]] = {
    Page.NOT_FOUND: "It may have been deleted, or the address is incomplete.",
    Page.FORBIDDEN: "Only its owner can open it.",
    Page.WAKING: "This page opens it as soon as it is ready. Your files are safe.",
    Page.AWAY: "It is running, but its IDE does not answer. This page retries automatically.",
    Page.PORT_CLOSED: "Start a server on it in the workspace. This page opens it when something listens.",
    Page.ARCHIVED: "Your files are safe. Restore it to continue.",
    Page.PENDING: "It has not been started yet.",
    Page.LIMIT: "Stop one of these, then open this workspace again.",
    Page.SIGNED_OUT: "The sign-in link has been used or has expired, or this browser blocks cookies. Try again.",
    Page.LINK_ENDED: "It has expired or was revoked. Ask the person who gave it to you for a new one.",
    Page.UNAVAILABLE: "One of its services does not answer. This page retries automatically.",
}
# The limit of the installation is reached, and the user has no running workspace to stop.
_ALL_TAKEN: Final = (
    "Other users' workspaces use all available places. This page opens yours as soon as one of them stops;"
    " an administrator can stop one, or raise the limit."
)
# Archived, but never used: there are no files that could be restored.
_NEVER_STARTED: Final = "Your workspace is not started yet"
_EMPTY_YET: Final = "It has no files yet. Start it to begin."
# The backend that runs the workspace does not answer; what runs there goes on.
_UNREACHABLE: Final = "Your files are safe. This page opens your workspace as soon as it can be reached."
_ACTIONS: Final[dict[Page, tuple[str, str]]] = {
    Page.ARCHIVED: ("restore", "Restore"),
    Page.PENDING: ("start", "Start"),
    Page.ERROR: ("start", "Start again"),
}
# The button that opens the address again.
_AGAIN: Final[dict[Page, str]] = {Page.SIGNED_OUT: "Try again", Page.LINK_ENDED: "Sign in instead"}
# These pages are only shown to a user who waits for the workspace, so operations in the way are described as temporary.
_BEFORE_WAKING: Final[dict[Operation, str]] = {
    Operation.STOPPING: "It is still stopping; then it starts again",
    Operation.ARCHIVING: "It is still being archived; then it is restored",
}
_FOLLOWED: Final = frozenset(
    {
        Page.WAKING,
        Page.AWAY,
        Page.PORT_CLOSED,
        Page.UNAVAILABLE,
        Page.ARCHIVED,
        Page.PENDING,
        Page.LIMIT,
        Page.ERROR,
    }
)

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;display:grid;place-items:center;min-height:100vh;color:#1c2430;"
    "background:#f4f6f9}main{max-width:34rem;padding:2rem}h1{font-size:1.4rem;margin:0 0 .5rem}"
    "a.button{display:inline-block;padding:.5rem 1.1rem;border-radius:.4rem;background:#1f5fbf;color:#fff;"
    "text-decoration:none;margin-right:.6rem}progress{width:100%}.quiet{color:#55606e}"
    "@media(prefers-color-scheme:dark){body{background:#14181f;color:#e6eaf0}.quiet{color:#9aa5b4}}"
)
# Polls a second after each answer, even after an error, because a proxy or a database that is down comes back.
_SCRIPT: Final = """
const status = document.getElementById("step"), bar = document.querySelector("progress");
const first = document.body.dataset.page;
async function follow() {
  try {
    const response = await fetch(document.body.dataset.status, {cache: "no-store", credentials: "same-origin"});
    if (response.status === 401) { location.reload(); return; }
    if (response.ok) {
      const now = await response.json();
      if (now.go || (now.page !== first && now.page !== "waking" && first !== "away")) { location.reload(); return; }
      if (now.page === "waking" && first !== "waking" && first !== "away") { location.reload(); return; }
      if (status) status.textContent = now.step ?? "";
      if (bar && now.total) { bar.max = now.total; bar.value = now.done; } else if (bar) bar.removeAttribute("value");
    }
  } catch { }
  setTimeout(follow, 1000);
}
setTimeout(follow, 500);
"""


def step_of(workspace: Workspace) -> str:
    if workspace.blocked is not None:
        return workspace.blocked.message
    operation = workspace.operation
    if operation is Operation.NONE:
        return ""
    return _BEFORE_WAKING.get(operation, OPERATIONS[operation].started)


def status_document(page: Page | None, workspace: Workspace, dashboard: str) -> bytes:
    """Return the status for a page of the workspace's owner. `go` if the page should load the workspace."""
    progress = workspace.progress
    return json.dumps(
        {
            "go": page is None,
            "name": workspace.name,
            "dashboard": f"{dashboard}/",
            "page": page.value if page else None,
            "phase": workspace.phase.value,
            "operation": workspace.operation.value,
            "desired_state": workspace.desired_state.value,
            "step": step_of(workspace),
            "done": progress.done if progress else 0,
            "total": progress.total if progress else None,
        }
    ).encode()


def render(
    page: Page,
    status: int,
    *,
    dashboard: str,
    workspace_id: str,
    door: Door = IDE,
    workspace: Workspace | None = None,
    running: list[tuple[str, str]] | None = None,
    retry_after_s: int | None = None,
    backend_silent: bool = False,
) -> Reply:
    nonce = secrets.token_urlsafe(12)
    new = page is Page.ARCHIVED and workspace is not None and status_of(workspace) is Status.CREATED
    title = _NEVER_STARTED if new else _TITLES[page]
    parts = [f"<h1>{escape(title)}</h1>"]
    if workspace is not None and page is not Page.FORBIDDEN:
        parts.append(f'<p class="quiet">{escape(workspace.name)}</p>')
    text = _EMPTY_YET if new else _text(page, workspace, running, backend_silent=backend_silent)
    parts.append(f"<p>{escape(text)}</p>")
    if page is Page.WAKING:
        step = step_of(workspace) if workspace is not None else ""
        parts.append(f'<p id="step" class="quiet" role="status">{escape(step)}</p><progress></progress>')
    if page is Page.LIMIT and running:
        parts.append("<ul>")
        for other_id, name in running:
            parts.append(f'<li>{escape(name)} — <a href="{_link(dashboard, other_id, "stop")}">Stop</a></li>')
        parts.append("</ul>")
    action = _ACTIONS.get(Page.PENDING if new else page)
    if action is not None and (workspace is None or Action.START in allowed_actions(workspace, Viewer())):
        parts.append(f'<a class="button" href="{_link(dashboard, workspace_id, action[0])}">{action[1]}</a>')
    again = _AGAIN.get(page)
    if again is not None:
        parts.append(f'<a class="button" href="{escape(f"{prefix_of(workspace_id, door)}/")}">{again}</a>')
    if page is not Page.LINK_ENDED:  # most people with a link have no account
        parts.append(f'<a href="{escape(dashboard)}/">My workspaces</a>')
    # A guest at a shared port learns nothing about the workspace: the page is simply reloaded.
    guest = page is Page.PORT_CLOSED and workspace is None
    follows = page in _FOLLOWED and not guest
    script = f'<script nonce="{nonce}">{_SCRIPT}</script>' if follows else ""
    still = '<noscript><meta http-equiv="refresh" content="4"></noscript>' if follows else ""
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · CodeHub</title>'
        f'<meta name="viewport" content="width=device-width">{still}<style nonce="{nonce}">{_STYLE}</style></head>'
        f'<body data-page="{page.value}" data-status="{escape(f"{prefix_of(workspace_id, door)}/{STATUS_PATH}")}">'
        f"<main>{''.join(parts)}</main>{script}</body></html>\n"
    )
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = [
        (b"Content-Type", b"text/html; charset=utf-8"),
        (b"Content-Security-Policy", policy.encode()),
    ]
    if guest:
        headers.append((b"Refresh", b"2"))
    if retry_after_s is not None:
        headers.append((b"Retry-After", b"%d" % retry_after_s))
    return Reply(status, body.encode(), tuple(headers))


def _text(
    page: Page, workspace: Workspace | None, running: list[tuple[str, str]] | None, *, backend_silent: bool
) -> str:
    if page is Page.LIMIT and not running:
        return _ALL_TAKEN
    if page is Page.AWAY and backend_silent and workspace is not None:
        return f"{unreachable_text(workspace)}. {_UNREACHABLE}"
    if page is not Page.ERROR:
        return _TEXTS[page]
    return " ".join(error_text(workspace.error_reason if workspace is not None else None, is_admin=False))


def _link(dashboard: str, workspace_id: str, action: str) -> str:
    return escape(f"{dashboard}/#/workspaces/{workspace_id}?action={action}")
