"""Exceptions, classified by the required reaction. Adapters translate their drivers' errors into these in one place."""

from __future__ import annotations


class CodeHubError(Exception):
    """The root exception. The message says what happened and, if the user can act on it, what to do."""


class Transient(CodeHubError):
    """May succeed when retried; counts as an attempt."""


class BackendDown(Transient):
    """The backend does not answer. Never counts as an attempt; the circuit breaker handles it."""


class OutOfSpace(Transient):
    """No space on one side of a copy. Never counts as an attempt: it is retried until there is space."""


class Incomplete(CodeHubError):
    """A command did what was possible, and printed what it left out."""


class Terminal(CodeHubError):
    """Retrying cannot help; the workspace goes to ERROR with this reason."""

    reason = "ActionFailed"


class ImagePullFailed(Terminal):
    reason = "ImagePullFailed"


class ArchiveCorrupted(Terminal):
    reason = "ArchiveCorrupted"


class DataLost(Terminal):
    reason = "DataLost"


class FenceLost(CodeHubError):
    """The term is over or the resource is another incarnation: nothing was changed, and nothing may be."""


class Deposed(FenceLost):
    """Another coordinator leads, or may: the term is over, and so are all of its operations."""


class Invalid(CodeHubError):
    """The request is invalid (400)."""


class Unauthorized(CodeHubError):
    """The request is not authenticated, or its session has ended (401)."""


class Denied(CodeHubError):
    """Authenticated, but not allowed (403)."""


class NotFound(CodeHubError):
    """The object does not exist, or the user may not know that it does (404)."""


class WorkspaceNotFound(NotFound):
    """The workspace does not exist."""


class Conflict(CodeHubError):
    """Not allowed in the current state (409)."""


class NameTaken(Conflict):
    """Another workspace of the owner has this name (409)."""


class WorkspaceLimitExceeded(Conflict):
    """The owner has as many workspaces as allowed (409)."""


class LimitExceeded(CodeHubError):
    """Another running workspace would exceed the limit (429)."""


class TooManyRequests(CodeHubError):
    """Locked out temporarily (429 with Retry-After)."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(CodeHubError):
    """A required service is temporarily unavailable (503 with Retry-After)."""


class UpstreamUnavailable(CodeHubError):
    """The backend that a workspace runs on does not answer (502)."""
