"""Errors that refuse a request. The user sees the message."""

from __future__ import annotations


class RequestError(Exception):
    """Refuses a request with this status and message. `code` is for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def invalid(message: str) -> RequestError:
    return RequestError(400, "INVALID_REQUEST", message)


def not_found(message: str) -> RequestError:
    return RequestError(404, "NOT_FOUND", message)


def conflict(message: str) -> RequestError:
    return RequestError(409, "INVALID_STATE", message)


def too_large(message: str) -> RequestError:
    return RequestError(413, "PAYLOAD_TOO_LARGE", message)
