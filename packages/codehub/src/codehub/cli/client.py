"""The commands' API client: sends requests and maps the server's errors to the domain's, which determine the exit codes.

Every message says what to do next. Knows nothing about the output format.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit

from codehub import __version__
from codehub.cli.answers import Answer, decode, not_codehub
from codehub.cli.lazy_group import imported
from codehub.domain import errors

if TYPE_CHECKING:
    import httpx

Json = Mapping[str, Any]

_TIMEOUT_S = 30.0
HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
KINDS: Final[Mapping[int, type[errors.CodeHubError]]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    429: errors.LimitExceeded,
    502: errors.Unavailable,
    503: errors.Unavailable,
}
# A load balancer answers these itself while the API is away.
_FROM_PROXIES: Final = frozenset({502, 503, 504})
_NEXT_STEPS: Final[Mapping[str, str]] = {
    "UNAUTHORIZED": "Sign in with `codehub login`.",
    "FORBIDDEN": "It belongs to another user, or needs an administrator or a browser session.",
    "WORKSPACE_NOT_FOUND": "`codehub ws ls` lists your workspaces.",
    "INVALID_STATE": "`codehub ws show` shows its state.",
    "RUNNING_LIMIT_EXCEEDED": "`codehub ws ls --running` lists yours; `codehub ws stop NAME` frees a place.",
    "WORKSPACE_LIMIT_EXCEEDED": "`codehub ws ls` lists yours; `codehub ws rm NAME` deletes one.",
    "SERVICE_UNAVAILABLE": "Try again in a moment; `codehub doctor` on the server says what is wrong.",
}


class Client:
    """A client for one server and token. A context manager."""

    def __init__(self, server: str, token: str | None, *, transport: httpx.BaseTransport | None = None) -> None:
        httpx = _httpx()
        self.server = server
        headers = {"User-Agent": f"codehub-cli/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            base_url=f"{server}/api/v1/",
            headers=headers,
            timeout=_timeout(connect=10.0),
            transport=transport,
            # Reading the CA certificates takes as long as importing httpx; redirects to https:// are not followed.
            verify=server.startswith("https:"),
            # HTTP_PROXY must not apply to this machine itself.
            trust_env=urlsplit(server).hostname not in HERE,
        )

    @contextmanager
    def without_timeout(self) -> Iterator[Self]:
        """Disable the time limit on answers: waking a workspace can take any time."""
        before, self._http.timeout = self._http.timeout, _timeout(read=None)
        try:
            yield self
        finally:
            self._http.timeout = before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def sign_in(self, username: str, password: str) -> None:
        """Open a session for the lifetime of this client: the cookie, and the key that belongs to it."""
        answer = self.post("login", {"username": username, "password": password})
        self._http.headers["X-CodeHub-Session-Key"] = str(answer.get("session_key") or "")

    def get(self, path: str, **query: object) -> Answer:
        return self._json("GET", path, params={name: _text(value) for name, value in query.items()})

    def post(self, path: str, body: Json | None = None) -> Answer:
        return self._json("POST", path, json=body)

    def patch(self, path: str, body: Json) -> Answer:
        return self._json("PATCH", path, json=body)

    def put_json(self, path: str, body: Json) -> Answer:
        return self._json("PUT", path, json=body)

    def put(self, path: str, content: Iterable[bytes] | bytes, **headers: str) -> Answer:
        """Upload a body of any size and type, streamed."""
        timeout = _timeout(read=None, write=None)
        return self._json("PUT", path, content=content, headers=headers, timeout=timeout)

    @contextmanager
    def download(self, path: str, **headers: str) -> Iterator[httpx.Response]:
        """Stream a response body, without a time limit between chunks."""
        with self.streaming("GET", path, headers=headers) as response:
            yield response

    @contextmanager
    def streaming(self, method: str, path: str, **how: Any) -> Iterator[httpx.Response]:
        timeout = _timeout(read=None)
        with contextlib.ExitStack() as stack:
            with self._reaching():
                response = stack.enter_context(self._http.stream(method, path, timeout=timeout, **how))
                if not response.is_success:
                    response.read()
                    raise self._error_of(response)
            try:
                yield response
            except _httpx().DecodingError as error:
                raise not_codehub(self.server, f"the answer cannot be decompressed ({error})") from error
            except _httpx().TransportError as error:
                raise errors.Unavailable(
                    "the connection ended before the answer was complete: the workspace may have been stopped, or the "
                    "server restarted.\n`codehub ws ls` shows the workspaces' states."
                ) from error

    def delete(self, path: str, **query: object) -> None:
        self._json("DELETE", path, params={name: _text(value) for name, value in query.items()})

    def every(self, path: str, **query: object) -> Iterator[Json]:
        """Yield all items of a paged list."""
        page = 1
        while True:
            answer = self.get(path, page=page, per_page=200, **query)
            yield from answer["items"]
            if page * 200 >= answer["total"]:
                return
            page += 1

    def json_lines(self, path: str, body: Json) -> Iterator[Answer]:
        """Yield the objects of a streamed answer (NDJSON) as they arrive."""
        headers = {"Accept": "application/x-ndjson"}
        with self.streaming("POST", path, json=body, headers=headers) as response:
            for line in response.iter_lines():
                yield decode(self.server, line)

    @contextmanager
    def lines(self, path: str, **query: object) -> Iterator[Iterator[str]]:
        """Stream text lines, without a time limit between chunks."""

        params = {name: _text(value) for name, value in query.items()}
        with self.streaming("GET", path, params=params) as response:
            yield response.iter_text()

    def _json(self, method: str, path: str, **how: Any) -> Answer:
        with self._reaching():
            response = self._http.request(method, path, **how)
        if not response.is_success:
            raise self._error_of(response)
        return decode(self.server, response.content) if response.content else Answer(self.server, {})

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        httpx = _httpx()
        try:
            yield
        except httpx.DecodingError as error:
            raise not_codehub(self.server, f"the answer cannot be decompressed ({error})") from error
        except httpx.TransportError as error:
            raise errors.Unavailable(
                f"{self.server} does not answer ({str(error) or type(error).__name__}).\n"
                "Is it running? `codehub up` starts one here; `--server URL` or CODEHUB_SERVER names another."
            ) from error

    def _error_of(self, response: httpx.Response) -> errors.CodeHubError:
        status, path = response.status_code, response.request.url.path
        if response.has_redirect_location:
            return not_codehub(self.server, f"it redirects to {response.headers['location']}")
        try:
            error = decode(self.server, response.content).part("error")
            code, message = str(error["code"]), str(error["message"])
        except errors.Unavailable:
            if status in _FROM_PROXIES:
                return errors.Unavailable(f"{self.server} answered {status}\n{_NEXT_STEPS['SERVICE_UNAVAILABLE']}")
            return not_codehub(self.server, f"it answered {status} without a message of CodeHub")
        kind = KINDS.get(status, errors.CodeHubError)
        step = _NEXT_STEPS.get(code)
        if (code == "UNAUTHORIZED" and path.endswith("/login")) or (
            code == "INVALID_STATE" and "/workspaces" not in path
        ):
            step = None  # about signing in again, and about the state of a workspace
        if code == "TOO_MANY_REQUESTS":
            step = f"Try again in {response.headers.get('retry-after', 'some')} s."
        return kind(f"{message}\n{step}" if step else message)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _timeout(**limits: float | None) -> httpx.Timeout:
    made: httpx.Timeout = _httpx().Timeout(_TIMEOUT_S, **limits)
    return made


def _httpx() -> ModuleType:
    """Import httpx on the first request, without its own command line, which would import rich and pygments."""
    sys.modules.setdefault("httpx._main", cast(ModuleType, None))  # None: httpx goes on without it
    return imported("httpx")
