"""JSON-RPC 2.0 messages: decodes untrusted input and builds answers. No I/O, quick to import."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

Message = dict[str, object]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# sari's own codes, in the range that JSON-RPC reserves for servers.
TIMED_OUT = -32001
UNAVAILABLE = -32002
DENIED = -32003
# MCP 2026-07-28: the request names a protocol version the server does not know.
UNSUPPORTED_VERSION = -32022


# No message of MCP is nested deeper. Python's own limit depends on the place in the program.
_DEEPEST = 100
# Each value takes up to a hundred bytes of memory, and 16 MiB hold millions. The largest request is one long text
# (`replace_symbol`), a list of workspaces or a batch.
MOST_VALUES = 100_000
_VALUE_BYTES = 100
_FEW = 1_000
# A string, also one without an end, or what stands before a value. Linear: nothing is looked at twice.
_STRING_OR_VALUE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[{,]', re.DOTALL)
# Longer ids and tokens are repeated in answers and in each notification of progress.
LONGEST_ID = 1_000


class NotAMessage(Exception):
    """Raised when the input is not a JSON-RPC message. `answer` is the error response for its sender."""

    def __init__(self, answer: Message) -> None:
        super().__init__(str(answer))
        self.answer = answer


def decode(data: bytes) -> object:
    """Decode a JSON value of an untrusted peer. Raises `NotAMessage`."""
    return _decoded(data, parse)


def decode_answer(data: bytes) -> object:
    """Decode a JSON value of the daemon, which can have any number of rows. Raises `NotAMessage`."""
    return _decoded(data, _parse)


def _decoded(data: bytes, read: Callable[[bytes], object]) -> object:
    try:
        return read(data)
    except ValueError as error:
        raise NotAMessage(failure(None, PARSE_ERROR, f"this is not JSON: {str(error)[:200]}")) from None


def parse(data: bytes) -> object:
    """Decode a JSON value of an untrusted peer. Raises `ValueError`, also for one that is nested so deeply that encoding it
    again could fail, or of so many values that it would fill the memory.
    """
    if count_values(data) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    return _parse(data)


def count_values(data: bytes) -> int:
    """Return at least how many values a JSON text holds; above `MOST_VALUES`, only that there are more."""
    count = data.count(b",") + data.count(b"[") + data.count(b"{")
    if count <= _FEW:
        return count
    # Most may be inside a long string, such as code.
    count = 0
    for _ in _STRING_OR_VALUE.finditer(data):
        count += 1
        if count > MOST_VALUES:
            break
    return count


def weigh(data: bytes) -> int:
    """Return about how much memory a JSON text takes once it is decoded."""
    return len(data) + _VALUE_BYTES * count_values(data)


def _parse(data: bytes) -> object:
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if data.count(b"[") + data.count(b"{") > _DEEPEST and _is_deep(value):
        raise ValueError("it is nested too deeply")
    return value


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


def encode(message: object) -> bytes:
    """Encode one message as bytes without a line break."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate, which can only be sent as an escape.
        return json.dumps(message, separators=(",", ":")).encode("ascii")


def check(value: object) -> Message:
    """Return a decoded value as a request, notification or answer. Raises `NotAMessage`."""
    if not isinstance(value, dict):
        raise NotAMessage(failure(None, INVALID_REQUEST, "a message must be a JSON object"))
    request_id = value.get("id")
    if not is_id(request_id):
        request_id = None
    if value.get("jsonrpc") != "2.0":
        raise NotAMessage(failure(request_id, INVALID_REQUEST, 'the message lacks "jsonrpc": "2.0"'))
    method = value.get("method")
    if method is None and ("result" in value or "error" in value):
        return value
    if not isinstance(method, str):
        raise NotAMessage(failure(request_id, INVALID_REQUEST, "the message has no method"))
    if "id" in value and request_id is None:
        raise NotAMessage(
            failure(None, INVALID_REQUEST, f"the id must be a number, or a string of at most {LONGEST_ID} characters")
        )
    if "params" in value and not isinstance(value["params"], dict):
        raise NotAMessage(failure(request_id, INVALID_PARAMS, "params must be an object"))
    return value


def is_id(value: object) -> bool:
    """Whether a value is valid as a request id."""
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, str):
        return len(value) <= LONGEST_ID
    return isinstance(value, int) and not isinstance(value, bool)


def params_of(message: Message) -> Message:
    """Return a checked message's params, empty if it has none."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def success(request_id: object, result: object) -> Message:
    """Build a success response."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: object, code: int, message: str, data: object = None) -> Message:
    """Build an error response."""
    error: Message = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def notification(method: str, params: object) -> Message:
    """Build a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
