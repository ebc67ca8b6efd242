"""Routes requests to the JSON routes, the page and `/mcp`, after the access checks.

Only POST (and MCP's DELETE) changes state. Everything but `/health` requires the token, or the page's cookie and key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from sari.protocol.errors import Denied, SariError, Transient, UnknownWorkspace
from sari.protocol.facade import Facade
from sari.registry.layout import find_layout
from sari.web import page
from sari.web.diagnostics import collect_checks
from sari.web.guard import Caller, Guard
from sari.web.http1 import Rejected, Request, Response, as_json, problem
from sari.web.mcp import McpEndpoint

# Query parameter → (argument of the tool, how its text is parsed).
_Reader = Callable[[str], object]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


_SEARCH: Mapping[str, _Reader] = {
    "mode": str,
    "case": str,
    "globs": _words,
    "languages": _words,
    "context": int,
    "max_tokens": int,
    "cursor": str,
}
# path → (tool, the argument `q` stands for, the other parameters)
_TOOLS: Mapping[str, tuple[str, str | None, Mapping[str, _Reader]]] = {
    "/search": ("search", "query", _SEARCH),
    "/symbols": ("symbols", "query", {"kind": str, "languages": _words, "limit": int}),
    "/files": ("find_files", "query", {"globs": _words, "limit": int}),
    "/outline": ("outline", None, {"path": str}),
    "/read": ("read", None, {"path": str, "start": int, "end": int, "symbol": str}),
}


class Routes:
    """Answers requests. Knows the daemon only through its facade."""

    def __init__(self, facade: Facade, guard: Guard) -> None:
        self._facade = facade
        self._guard = guard
        self._mcp = McpEndpoint(facade, guard)
        self._posts: Mapping[str, Callable[[Request, Caller], Response]] = {
            "/open": self._open,
            "/rescan": self._rescan,
        }

    def answer(self, request: Request) -> Response:
        self._guard.check_site(request)
        reading = request.method in ("GET", "HEAD")
        if request.path == "/health" and reading:
            return self._health()
        if request.path == "/signin" and request.method == "POST":
            return self._sign_in(request)
        if request.path == "/signout" and request.method == "POST":
            return self._sign_out(request)
        caller = self._guard.admit(request.headers)
        if caller is None:
            # A browser loads the page without the key, which only the page's scripts can send. There is no data in it.
            if page.has(request.path) and reading and self._guard.page_of(request.headers) is not None:
                return page.asset(request.path)
            if request.path == "/" and reading:
                return page.sign_in_page()
            why = "sari needs its token here: open the page with `sari web`, or send it as `Authorization: Bearer`"
            return problem(401, why, {"WWW-Authenticate": 'Bearer realm="sari"'})
        try:
            return self._admitted(request, caller, reading=reading)
        except SariError as error:
            return problem(_status_of(error), str(error))

    def _admitted(self, request: Request, caller: Caller, *, reading: bool) -> Response:
        path = request.path
        if path == "/mcp":
            return self._mcp.answer(request)
        if path in self._posts:
            return self._posts[path](request, caller) if request.method == "POST" else _not_allowed("POST")
        if path == "/signout":
            return _not_allowed("POST")
        known = path in ("/status", "/doctor") or path in _TOOLS or page.has(path)
        if not known:
            return problem(404, f"there is nothing at {path}")
        if not reading:
            return _not_allowed("GET, HEAD")
        if path == "/status":
            return self._status(request)
        if path == "/doctor":
            return self._doctor(request)
        if path in _TOOLS:
            return self._tool(request, caller)
        return page.asset(path)

    def _health(self) -> Response:
        info = self._facade.daemon_info()
        draining = bool(info.get("draining"))
        # Visible to everyone who can reach the port, so it contains nothing of the indexed content.
        return as_json({"status": "draining" if draining else "ok", "name": "sari", "version": info.get("version")})

    def _status(self, request: Request) -> Response:
        workspaces = [asdict(view) for view in self._facade.workspaces()]
        wanted = request.one("workspace")
        if wanted is not None:
            root = _real(wanted)
            workspaces = [view for view in workspaces if view["root"] == root]
            if not workspaces:
                raise UnknownWorkspace(f"{root} is not open here")
        sessions = [asdict(view) for view in self._facade.sessions()]
        daemons = [asdict(view) for view in self._facade.daemons()]
        daemon = dict(self._facade.daemon_info())
        return as_json({"daemon": daemon, "daemons": daemons, "workspaces": workspaces, "sessions": sessions})

    def _tool(self, request: Request, caller: Caller) -> Response:
        tool, subject, readers = _TOOLS[request.path]
        arguments: dict[str, object] = {}
        if subject is not None:
            text = request.one("q", subject)
            if text is None:
                raise Rejected(400, f"name what to search for: {request.path}?q=…")
            arguments[subject] = text
        for name, read in readers.items():
            text = request.one(name)
            if text is None:
                continue
            try:
                arguments[name] = read(text)
            except ValueError as error:
                raise Rejected(400, f"{name} is not a number: {text!r}") from error
        if caller.page is not None:
            self._facade.lease(caller.page, "web page")
        result = self._facade.call_tool(self._root(request.one("workspace")), tool, arguments, request.gone)
        if result.is_error:
            return problem(400, result.text)
        return as_json(dict(result.structured))

    def _doctor(self, request: Request) -> Response:
        """Return the index's own diagnostics, and those of its environment."""
        root = self._root(request.one("workspace"))
        result = self._facade.call_tool(root, "doctor", {})
        return as_json(collect_checks(result, find_layout(os.environ), os.environ, root))

    def _root(self, named: str | None) -> Path:
        if named:
            return Path(_real(named))
        roots = [view.root for view in self._facade.workspaces()]
        if len(roots) == 1:
            return Path(roots[0])
        if not roots:
            raise UnknownWorkspace("no workspace is open: name one that a client uses, as ?workspace=/its/path")
        raise Rejected(400, f"several workspaces are open, name one as ?workspace=: {', '.join(sorted(roots))}")

    def _open(self, request: Request, caller: Caller) -> Response:
        """Open a workspace and keep it open while this page's lease lasts."""
        named = _field(request, "workspace")
        if not os.path.isabs(named):
            raise Rejected(400, "`workspace` is an absolute path")
        session = caller.page
        if session is not None:
            self._facade.lease(session, "web page")
        return self._called(session, named, "status")

    def _rescan(self, request: Request, caller: Caller) -> Response:
        return self._called(caller.page, _field(request, "workspace"), "rescan")

    def _called(self, session: str | None, workspace: str, tool: str) -> Response:
        """Call a tool as a client would, which opens the workspace."""
        params = {"name": tool, "arguments": {"workspace": workspace}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self._facade.handle_mcp(message, session, Path(workspace)) or {}
        result = answer.get("result")
        if not isinstance(result, Mapping):
            error = answer.get("error")
            return problem(400, str(error.get("message")) if isinstance(error, Mapping) else "sari did not answer")
        if result.get("isError"):
            return problem(400, _text_of(result))
        return as_json(result.get("structuredContent") or {})

    def _sign_in(self, request: Request) -> Response:
        signed_in = self._guard.sign_in(_field(request, "key"))
        if signed_in is None:
            return problem(401, "this key is too old or was used: run `sari web` again")
        cookie, page_key = signed_in
        return as_json({"signed_in": True, "page_key": page_key}, headers={"Set-Cookie": cookie})

    def _sign_out(self, request: Request) -> Response:
        """Remove the cookie, also of a page that has no key."""
        caller = self._guard.admit(request.headers)
        if caller is not None and caller.page is not None:
            self._facade.end_session(caller.page)
        return as_json({"signed_in": False}, headers={"Set-Cookie": self._guard.sign_out()})


def _real(path: str) -> str:
    if "\0" in path:
        raise Rejected(400, "`workspace` holds a NUL character")
    return os.path.realpath(path)


def _field(request: Request, name: str) -> str:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Rejected(415, "send JSON")
    body = request.json()
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, str) or not value:
        raise Rejected(400, f'send {{"{name}": "…"}}')
    return value


def _text_of(result: Mapping[str, object]) -> str:
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else {}
    return str(first.get("text", "")) if isinstance(first, Mapping) else ""


def _not_allowed(methods: str) -> Response:
    return problem(405, f"only {methods} is answered here", {"Allow": methods})


def _status_of(error: SariError) -> int:
    match error:
        case UnknownWorkspace():
            return 404
        case Denied():
            return 403
        case Transient():
            return 503
        case _:
            return 400
