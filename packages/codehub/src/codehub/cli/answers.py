"""Decodes the server's answers: the only place where the commands find out that a server is not CodeHub's API.

Such a server may be another program, a login page in front of CodeHub, or a CodeHub of another version. Commands read the
fields they need without checking each one; reading a field that is not there raises the same error as decoding does.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final

from codehub.domain.errors import Unavailable

# The types of fields that commands read further into, the same in every answer. A test compares them with the API's schema.
SHAPES: Final[Mapping[str, type | UnionType]] = {
    "items": list,
    "total": int,
    "name": str,
    "status": str,
    "summary": dict,
    "conditions": dict,
    "progress": dict | None,
    "scheduled": dict | None,
    "allowed_actions": list,
}


_WEB_ADDRESS: Final = re.compile(r"https?://[!-~]{1,4000}")


class Answer(dict[str, Any]):
    """An object of an answer."""

    def __init__(self, server: str, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.server = server

    def __missing__(self, key: str) -> Any:
        raise not_codehub(self.server, f"the answer has no {key!r}")

    def part(self, key: str) -> Answer:
        """Return the object in a field."""
        value = self[key]
        if not isinstance(value, Answer):
            raise not_codehub(self.server, f"{key!r} has another type")
        return value


def decode(server: str, content: bytes | str) -> Answer:
    """Return the object that a complete answer, or a line of a stream, consists of."""
    try:
        answer = json.loads(content, object_hook=functools.partial(Answer, server))
    except (ValueError, RecursionError) as error:
        raise not_codehub(server, "the answer is no JSON") from error
    if not isinstance(answer, Answer):
        raise not_codehub(server, "the answer is no JSON object")
    # Not in the objects further inside: the keys of some are names that users chose.
    for each in (answer, *_items(server, answer)):
        for name in SHAPES.keys() & each.keys():
            if not isinstance(each[name], SHAPES[name]):
                raise not_codehub(server, f"{name!r} has another type")
    return answer


def _items(server: str, answer: Answer) -> list[Answer]:
    items = answer.get("items", [])
    if not isinstance(items, list) or not all(isinstance(item, Answer) for item in items):
        raise not_codehub(server, "'items' has another type")
    return items


def web_address(answer: Answer) -> str:
    """Return the URL of an answer. It is opened in a browser, for which other schemes and `-…` have other effects."""
    url = str(answer["url"])
    if not _WEB_ADDRESS.fullmatch(url):
        raise not_codehub(answer.server, "'url' is not the address of a web page")
    return url


def not_codehub(server: str, what: str) -> Unavailable:
    return Unavailable(
        f"{server} does not answer like this version of CodeHub: {what}.\n"
        "Check the URL (`--server`, CODEHUB_SERVER or your last `codehub login`). "
        "The server may also have another version, or a proxy in front of it may answer."
    )
