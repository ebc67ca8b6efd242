"""The root of sari's errors. Messages say what happened and what to do: people and models are shown them as they are."""

from __future__ import annotations


class SariError(Exception):
    """An error that the user can understand and fix."""


class Transient(SariError):
    """Trying again soon may work."""


class Denied(SariError):
    """Not allowed: the wrong token, a refused root, a port someone else holds."""


class UnknownWorkspace(SariError):
    """No such workspace is open here."""
