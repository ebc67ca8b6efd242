"""Audit events and their fields as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class AuditKind(StrEnum):
    SIGN_IN = "sign_in.succeeded"
    SIGN_IN_FAILED = "sign_in.failed"
    LOCKED_OUT = "sign_in.locked_out"
    SIGN_OUT = "session.ended"
    LOGIN_LINK = "login_link.created"
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - a name
    TOKEN_CREATED = "token.created"  # noqa: S105 - a name
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - a name
    SSH_KEY_ADDED = "ssh_key.added"
    SSH_KEY_REMOVED = "ssh_key.removed"
    USER_CREATED = "user.created"
    USER_CHANGED = "user.changed"
    USER_DELETED = "user.deleted"
    PASSWORD_RESET = "user.password_reset"  # noqa: S105 - a name
    WORKSPACE_READ = "workspace.read"
    WORKSPACE_CHANGED = "workspace.changed"
    WORKSPACE_REFUSED = "workspace.refused"
    WORKSPACE_RECOVERED = "workspace.recovered"
    WORKSPACE_UNDELETED = "workspace.undeleted"
    WORKSPACE_TRANSFERRED = "workspace.transferred"
    TEMPLATE_PUSHED = "template.pushed"
    TEMPLATE_ARCHIVED = "template.archived"
    GIT_CREDENTIAL_ADDED = "git_credential.added"
    GIT_CREDENTIAL_REMOVED = "git_credential.removed"
    GIT_KEY_MADE = "git_key.made"
    GIT_KEY_REMOVED = "git_key.removed"
    SECRET_SET = "secret.set"  # noqa: S105 - a name
    SECRET_REMOVED = "secret.removed"  # noqa: S105 - a name
    PORT_SHARED = "port.shared"
    PORT_LINK_CREATED = "port.link_created"
    PORT_OPENED = "port.opened"
    PURGED = "audit.purged"
    DROPPED = "audit.dropped"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """`actor` is a user name or another originator; `target` is the affected object. Neither ever contains a secret."""

    at: datetime
    event: str
    actor: str
    actor_id: str | None = None
    token_id: str | None = None
    address: str = ""
    target: str = ""
    workspace_id: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
    id: int = 0  # assigned by the database, in commit order


@dataclass(frozen=True, slots=True)
class Flood:
    """More events of one kind by one actor than are kept."""

    actor: str
    actor_id: str | None
    event: str


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """None means no restriction. `event` may end with `*`."""

    event: str | None = None
    actor: str | None = None
    workspace_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
