"""Routes requests to the workspace proxy: addresses, the definition of a navigation, and the decision table of
docs/proxy.md.

Pure. The signed-in user and the workspace's row are arguments; the proxy handles pages and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from codehub.domain.model import DesiredState, Operation, Phase

# Every workspace is below this path. No other code spells it out.
WORKSPACE_PREFIX: Final = "/w/"


def workspace_path(workspace_id: str) -> str:
    return f"{WORKSPACE_PREFIX}{workspace_id}/"


def workspace_authority(base_url: str, host_pattern: str, workspace_id: str) -> str:
    """Return the Host of a workspace: the shared host of all workspaces, or its own with `*.ws.example.org`."""
    netloc = urlsplit(base_url).netloc
    if not host_pattern:
        return netloc
    port = netloc.rpartition(":")[2] if ":" in netloc.rpartition("]")[2] else ""
    return f"{workspace_id}{host_pattern[1:]}" + (f":{port}" if port else "")


def workspace_origin(base_url: str, host_pattern: str, workspace_id: str) -> str:
    return f"{urlsplit(base_url).scheme}://{workspace_authority(base_url, host_pattern, workspace_id)}"


def workspace_url(base_url: str, host_pattern: str, workspace_id: str) -> str:
    """Return the URL that users open."""
    return workspace_origin(base_url, host_pattern, workspace_id) + workspace_path(workspace_id)


def is_local_path(text: str, workspace_id: str) -> bool:
    """Return whether a return address stays inside the workspace: no other host, no other workspace."""
    return (
        text.startswith(workspace_path(workspace_id))
        and "\\" not in text
        # Browsers take %2e for a dot.
        and ".." not in text.partition("?")[0].lower().replace("%2e", ".").split("/")
        and all(" " < char < "\x7f" for char in text)
    )


def is_navigation(method: str, *, fetch_mode: str, fetch_dest: str, purpose: str, accept: str) -> bool:
    """Return whether a user opened a page, as opposed to a request made by a page."""
    if method != "GET" or purpose:
        return False
    if fetch_mode or fetch_dest:
        return fetch_mode == "navigate" and fetch_dest == "document"
    return "text/html" in accept


class Page(StrEnum):
    """The page to show if there is no instance to forward to."""

    NOT_FOUND = "not-found"
    FORBIDDEN = "forbidden"
    WAKING = "waking"
    AWAY = "away"
    PORT_CLOSED = "port-closed"
    ARCHIVED = "archived"
    PENDING = "pending"
    ERROR = "error"
    LIMIT = "limit"
    SIGNED_OUT = "signed-out"
    LINK_ENDED = "link-ended"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class SignIn:
    """Not authenticated: a navigation goes to the dashboard and returns, any other request gets 401."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward to the instance.

    `rising`: it may not answer yet. `leaving`: it is stopping but still runs. `ask_running`: set the desired state to
    RUNNING again, whatever the request is.
    """

    ask_running: bool = False
    rising: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Wake:
    """Set the desired state to RUNNING, then answer that the workspace is starting."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer from the proxy itself. `retry_after_s` is set if an automatic retry is useful."""

    status: int
    page: Page
    retry_after_s: int | None = None


Route = SignIn | Forward | Wake | Answer

# A start takes seconds; a client that retries sooner only adds load.
RETRY_AFTER_S: Final = 2


def route(
    *,
    signed_in: bool,
    is_owner: bool,
    phase: Phase | None,
    desired: DesiredState | None,
    operation: Operation,
    navigation: bool,
    with_token: bool,
) -> Route:
    """Apply the table from top to bottom. `phase` and `desired` are None if the workspace does not exist."""
    if not signed_in:
        return SignIn()
    gone = phase in (None, Phase.DELETING, Phase.DELETED) or desired in (None, DesiredState.DELETED)
    if not gone and not is_owner:
        return Answer(403, Page.FORBIDDEN)
    if gone:
        return Answer(404, Page.NOT_FOUND)
    if phase is Phase.ERROR:
        return Answer(502, Page.ERROR)
    wakes = navigation or with_token
    if phase is Phase.RUNNING:
        if desired is DesiredState.RUNNING:
            return Forward()
        if operation is Operation.NONE:
            return Forward(ask_running=wakes, leaving=True)
        return Wake() if wakes else Forward(rising=True)
    if desired is DesiredState.RUNNING:
        return Answer(503, Page.WAKING, RETRY_AFTER_S) if navigation else Forward(rising=True)
    if phase is Phase.STANDBY:
        return Wake() if wakes else Answer(503, Page.WAKING, RETRY_AFTER_S)
    return Answer(502, Page.ARCHIVED if phase is Phase.ARCHIVED else Page.PENDING)
