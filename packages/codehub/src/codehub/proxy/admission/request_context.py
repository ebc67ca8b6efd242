"""The properties of a request that admission needs: workspace, credential, navigation, activity. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from codehub.domain import routing
from codehub.domain.doors import NO_PORT, Door, Kind, prefix_of, read_host, read_path
from codehub.domain.ids import ID_LENGTH, is_id
from codehub.proxy.admission.decision import Admission, Reply, refusal
from codehub.proxy.http1.headers import LINK_NAME, PORT_PATH, TICKET_PARAMETER, bearer_token, wants_upgrade
from codehub.proxy.http1.messages import RequestHead

_SAFE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_PREFIX: Final = routing.WORKSPACE_PREFIX.encode()
_ID_BEGIN: Final = len(_PREFIX)
ID_END: Final = _ID_BEGIN + ID_LENGTH


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request, as seen by admission."""

    workspace_id: str
    door: Door
    rest: str  # path and query as requested
    navigation: bool
    token: bytes
    cookies: list[bytes]
    request: RequestHead

    @property
    def key(self) -> bytes:
        return self.door.key(self.workspace_id)


def key_in_path(target: bytes) -> bytes:
    """Return the `Door.key` of the IDE or port that a path below the prefix leads to; empty if its part is incomplete."""
    if target[ID_END : ID_END + 1] != b"/" or not target.startswith(_PREFIX):
        return b""
    if not target.startswith(PORT_PATH, ID_END + 1):
        return target[_ID_BEGIN:ID_END]
    end = target.find(b"/", ID_END + len(PORT_PATH) + 1)
    return target[_ID_BEGIN:end] if end >= 0 else b""


def must_be_own(request: RequestHead) -> bool:
    return request.method not in _SAFE or wants_upgrade(request)


def is_from_sibling(request: RequestHead) -> bool:
    """Return whether another host of our site, such as a port's, sent this.

    Unlike other sites' requests, those carry cookies.
    """
    return request.fields.fetch_site == b"same-site"


def is_work(context: RequestContext, admission: Admission) -> bool:
    """Return whether a user or an agent caused this request. Opening a WebSocket and an IDE's own polling do not count."""
    target = admission.target
    path = context.request.target[len(target.rewrite.prefix) :].partition(b"?")[0]
    return not wants_upgrade(context.request) and not target.background.is_request(context.request.method, path)


def read(request: RequestHead, cookies: list[bytes], host_pattern: str) -> RequestContext | Reply:
    try:
        rest = request.target.decode("ascii")
    except UnicodeDecodeError:
        return refusal(400, "the address is not ASCII")
    path, question, query = rest.partition("?")
    found = read_host(request.fields.host.decode("latin-1"), host_pattern) or read_path(path)
    if found is None:
        return refusal(404, "there is nothing at this address of a workspace")
    workspace_id, door = found
    if door.kind in (Kind.PORT, Kind.TCP) and door.port == NO_PORT:
        return refusal(404, "there is no such port: their numbers are from 1 to 65535")
    if path == prefix_of(workspace_id, door) and is_id(workspace_id):
        return Reply(308, headers=((b"Location", f"{path}/{question}{query}".encode()),))
    navigation = routing.is_navigation(
        request.method.decode("latin-1"),
        fetch_mode=request.fields.fetch_mode.decode("latin-1"),
        fetch_dest=request.fields.fetch_dest.decode("latin-1"),
        purpose=request.fields.purpose.decode("latin-1"),
        accept=request.fields.accept.decode("latin-1"),
    )
    token = bearer_token(request.fields.authorization) if request.fields.authorization else b""
    return RequestContext(workspace_id, door, rest, navigation, token, cookies, request)


def ticket_of(rest: str) -> tuple[str, str] | None:
    """Return (ticket, the address without it)."""
    return parameter_of(rest, TICKET_PARAMETER.decode())


def parameter_of(rest: str, name: str) -> tuple[str, str] | None:
    """Return (value, the address without the parameter). The rest of the query is unchanged."""
    path, _, query = rest.partition("?")
    parts = query.split("&")
    found = [part for part in parts if part.startswith(name + "=")]
    if not found:
        return None
    others = "&".join(part for part in parts if not part.startswith(name + "="))
    return found[0].removeprefix(name + "="), f"{path}?{others}" if others else path


def port_page_without_link(context: RequestContext) -> str | None:
    """Return the address without the secret of a link: the history, the application and its Referers would keep it.

    None if it is no page of a port, or has none.
    """
    if not context.navigation or context.door.kind is not Kind.PORT:
        return None
    found = parameter_of(context.rest, LINK_NAME.decode())
    return None if found is None else found[1]
