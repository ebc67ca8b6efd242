"""The root of sari's errors. Messages say what happened and what to do; users and models see them unchanged."""

from __future__ import annotations


class SariError(Exception):
    """An error that the user can understand and fix."""


class Transient(SariError):
    """An error that may go away if the request is retried soon."""


class Denied(SariError):
    """Raised for an operation that is not allowed: a wrong token, a refused root, a port that another program holds."""


class UnknownWorkspace(SariError):
    """Raised when the workspace is not open in this daemon."""
