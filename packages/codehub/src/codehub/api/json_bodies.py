"""Reads JSON bodies, for all routes: refuses texts and integers that Python accepts, and that fail wherever they are used.

NaN and infinity are refused field by field (`schemas.Wire`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

# PostgreSQL's largest integer has 19 digits and a sign. Longer ones are not even converted.
_LONGEST_INTEGER = 20
_LARGEST = 2**63 - 1


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    async def json(self) -> Any:
        return parse_json(await self.body())


def parse_json(body: bytes) -> Any:
    """Parse a body. Raises JSONDecodeError, or HTTPException for a value that is refused."""
    value = json.loads(body, parse_int=_integer)
    if b"\\u" in body:
        for name, field in value.items() if isinstance(value, dict) else [("body", value)]:
            if not _is_text([name, field]):
                raise _refused(f"{name}: a text has one half of a surrogate pair")
    return value


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER or not -_LARGEST <= (value := int(text)) <= _LARGEST:
        raise _refused("an integer of the body is out of range")
    return value


def _refused(message: str) -> HTTPException:
    return HTTPException(400, message)
