"""Unsuccessful answers of the API server, as values and as CodeHub's errors. Pure.

One function maps a refused request to the error that leads to the right reaction. It keeps the server's message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from codehub.domain.errors import BackendDown, CodeHubError, Conflict, NotFound, OutOfSpace, Terminal, Transient

_LONGEST_MESSAGE = 800


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer of 400 or above: a `Status` object, or whatever was sent instead."""

    code: int
    reason: str
    message: str

    @classmethod
    def parse(cls, code: int, raw: bytes) -> Refusal:
        try:
            status = json.loads(raw)
            if isinstance(status, dict) and status.get("kind") == "Status":
                reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
                return cls(int(status.get("code") or code), reason, message[:_LONGEST_MESSAGE])
        except (ValueError, TypeError, OverflowError, RecursionError):
            pass
        return cls(code, "", raw[:_LONGEST_MESSAGE].decode("utf-8", "replace").strip())

    @property
    def is_expired(self) -> bool:
        """Return whether the resourceVersion is older than the server's history, so that a new list is needed."""
        return self.code == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_missing(self) -> bool:
        """Return whether the API server says that the object does not exist.

        A 404 without a Status comes from something in front of it, such as a load balancer, or from an API that it does not
        serve. It says nothing about the object.
        """
        return self.code == 404 and self.reason == "NotFound" and not self.is_of_a_policy

    @property
    def is_quota(self) -> bool:
        return self.code == 403 and "exceeded quota" in self.message

    @property
    def is_of_a_policy(self) -> bool:
        """Return whether a webhook or a ValidatingAdmissionPolicy refuses it, with a code of its own such as 400 or 422."""
        return self.code < 500 and any(
            mark in self.message for mark in (" denied the request", "ValidatingAdmissionPolicy '")
        )

    @property
    def is_missing_permission(self) -> bool:
        return self.code == 403 and 'User "' in self.message and " cannot " in self.message


class Expired(Transient):
    """Raised on 410: a watch or a page must restart from a list."""


class AlreadyExists(Conflict):
    """Raised on 409 of a create: an object has that name."""


class Forbidden(Transient):
    """Raised on 403 or by a policy: a permission is missing, or an admission rule refuses the object."""


class InvalidObject(Terminal):
    """Raised on 400 or 422: the API server rejects the object, and would reject the same object again."""


def to_error(refusal: Refusal, doing: str) -> CodeHubError:
    """Return the error for a refused request."""
    words = f"{refusal.message or refusal.reason or 'no reason given'} ({refusal.code})"
    match refusal.code:
        case code if code < 400:
            return BackendDown(f"something that is not the Kubernetes API server answers at its address: {words}")
        case 401:
            return BackendDown(
                f"the Kubernetes API server refuses CodeHub's credentials: {words}. Renew the token or the certificate"
            )
        case 403 if refusal.is_quota:
            return OutOfSpace(
                f"the namespace's quota does not allow it: {words}. Raise the ResourceQuota or stop a workspace"
            )
        case 403 if "violates PodSecurity" in refusal.message:
            return Forbidden(f"the namespace's Pod Security Standard refuses it: {words}")
        case _ if refusal.is_of_a_policy or (
            refusal.code == 403 and refusal.message and not refusal.is_missing_permission
        ):
            return Forbidden(f"an admission rule of the cluster refuses to {doing}: {words}")
        case 403:
            return Forbidden(f"the Kubernetes API server does not allow CodeHub to {doing}: {words}. Check its Role")
        case 404 if not refusal.is_missing:
            return BackendDown(f"something that is not the Kubernetes API server answers at its address: {words}")
        case 404:
            return NotFound(f"the Kubernetes API server has nothing to {doing}: {words}")
        case 409 if refusal.reason == "AlreadyExists":
            return AlreadyExists(words)
        case 409:
            return Conflict(f"the object changed before CodeHub could {doing}: {words}")
        case _ if refusal.is_expired:
            return Expired(words)
        case 400 | 422:
            return InvalidObject(f"the Kubernetes API server refuses to {doing}: {words}")
        case 429 | 500 | 502 | 503 | 504:
            return BackendDown(f"the Kubernetes API server does not answer: {words}")
        case _:
            return Transient(f"the Kubernetes API server refused to {doing}: {words}")
