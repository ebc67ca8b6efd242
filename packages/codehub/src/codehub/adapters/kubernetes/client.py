"""The Kubernetes API over httpx: requests, errors and streams. Knows paths and JSON, but not workspaces.

A request is retried only if the server requested it (429, Retry-After) or never received the request. A write that may have
arrived is not repeated here: its caller must check first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import httpx

from codehub.adapters.kubernetes.credentials import Credentials
from codehub.adapters.kubernetes.errors import Forbidden, Refusal, to_error
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess
from codehub.adapters.kubernetes.tls import tls_context
from codehub.domain.errors import BackendDown, Conflict

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_TIMEOUT: Final = httpx.Timeout(30.0, connect=15.0)
# A page of 500 pods is about 2 MB. A much larger answer does not come from an API server.
_LARGEST_ANSWER: Final = 64 << 20
_LARGEST_ERROR: Final = 64 << 10
# An object is at most 1.5 MB in etcd, and a watch event holds one object.
_LONGEST_LINE: Final = 8 << 20
# A start should not wait for a TLS handshake. Servers and load balancers close idle connections after a minute or later.
_KEEPALIVE_S: Final = 30.0
# Streams are not counted: watches and followed logs stay open, and requests must not wait for their end.
_REQUESTS_AT_ONCE: Final = 64
# Starts come in bursts. httpcore looks at every connection for every request, so more of them at once only cost CPU time:
# 16 keep an API server busy, and the others still have room.
_CREATES_AT_ONCE: Final = 16
# httpx limits the pauses in an answer. An answer that trickles in is limited by this.
_LONGEST_ANSWER_S: Final = 120.0
_TRIES: Final = 4
_LONGEST_PAUSE_S: Final = 10.0
PAGE: Final = 500
_MOST_PAGES: Final = 1000

Json = dict[str, Any]


class ApiClient:
    """A client for one cluster and user, with a default namespace. Call `close` when done."""

    def __init__(self, access: ClusterAccess, *, user_agent: str = "codehub") -> None:
        self.access = access
        self.namespace = access.namespace
        self._credentials = Credentials(access)
        self._user_agent = user_agent
        self._http: httpx.AsyncClient | None = None
        # May still serve requests that began before the certificate changed.
        self._retired: httpx.AsyncClient | None = None
        self._certificate: tuple[bytes, bytes] | None = None  # the exec plugin's, of the open connections
        self._is_refused = False
        self._opening = asyncio.Lock()
        self._requests = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._creates = asyncio.Semaphore(_CREATES_AT_ONCE)
        self.page = PAGE
        self.writes = 0  # number of write requests; read by tests and benchmarks

    async def close(self) -> None:
        for client in filter(None, (self._http, self._retired)):
            await client.aclose()
        self._http = self._retired = None

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json | None:
        """Return the object, or None if it does not exist."""
        try:
            return await self._send("GET", path, params=params)
        except _Refused as refused:
            if refused.refusal.is_missing:
                return None
            raise to_error(refused.refusal, f"get {path}") from None

    async def list_page(self, path: str, params: Mapping[str, str]) -> Json:
        page = await self._request("GET", path, f"list {path}", params=params)
        if not str(page.get("kind", "")).endswith("List"):
            # Taken for an empty list, it would mean that all workspaces are gone.
            raise BackendDown("the Kubernetes API server answered a list with something else; is a proxy in between?")
        return page

    async def list_all(self, path: str, params: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
        """Return all items of all pages, and the resourceVersion to watch from."""
        query = {"limit": str(self.page), **(params or {})}
        items: list[Json] = []
        for _ in range(_MOST_PAGES):
            page = await self.list_page(path, query)
            items.extend(page.get("items") or [])
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return items, str(meta.get("resourceVersion") or "")
            query = {**query, "continue": str(meta["continue"])}
        raise BackendDown("the Kubernetes API server's list does not end; is a proxy in between?")

    async def check_namespace(self) -> None:
        """Raise BackendDown if the namespace does not exist.

        A list in a missing namespace is empty, so it must not be taken for a namespace without objects. Without the right
        to read namespaces the list itself is refused, because the Role is part of the namespace.
        """
        with contextlib.suppress(Forbidden):
            if await self.get(f"/api/v1/namespaces/{self.namespace}") is None:
                raise BackendDown(
                    f"the namespace {self.namespace} does not exist."
                    " Apply deploy/kubernetes/workspaces, or correct CODEHUB_K8S_NAMESPACE"
                )

    async def create(self, path: str, body: Json) -> Json:
        self.writes += 1
        async with self._creates:
            return await self._request("POST", path, f"create {body.get('kind', 'an object')}", body=body)

    async def patch(self, path: str, body: Json) -> Json:
        """Apply a merge patch. `metadata.uid` in it is a precondition: raises Conflict if another object has that name."""
        self.writes += 1
        try:
            return await self._send("PATCH", path, body=body, content_type=MERGE_PATCH)
        except _Refused as refused:
            # An object's uid never changes, so this is how the server reports that it is another object.
            if refused.refusal.code == 422 and "metadata.uid" in refused.refusal.message:
                raise Conflict(refused.refusal.message) from None
            raise to_error(refused.refusal, f"change {path}") from None

    async def delete(self, path: str, uid: str, *, grace_s: int | None = None) -> bool:
        """Delete the object with this uid only. Return False if it is already gone or another object has its name."""
        self.writes += 1
        body: Json = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self._send("DELETE", path, body=body)
        except _Refused as refused:
            if refused.refusal.is_missing:
                return False
            # 409 is the precondition's refusal, or that of an admission webhook: then the object is still there.
            if refused.refusal.code == 409 and not await self._is_there(path, uid):
                return False
            raise to_error(refused.refusal, f"delete {path}") from None
        return True

    async def _is_there(self, path: str, uid: str) -> bool:
        found = await self.get(path)
        return found is not None and (found.get("metadata") or {}).get("uid") == uid

    async def version(self) -> tuple[int, int]:
        """Return the server's version, such as (1, 31). Some clouds append a plus to the minor number."""
        found = await self._request("GET", "/version", "ask for its version")
        major, minor = (re.match(r"[0-9]{0,9}", str(found.get(name) or "")) for name in ("major", "minor"))
        assert major is not None
        assert minor is not None
        return int(major[0] or 0), int(minor[0] or 0)

    async def _request(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
    ) -> Json:
        try:
            return await self._send(method, path, params=params, body=body, content_type=content_type)
        except _Refused as refused:
            raise to_error(refused.refusal, doing) from None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
    ) -> Json:
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        refreshed = False
        for tried in range(1, _TRIES + 1):
            async with (
                self._requests,
                _within(_LONGEST_ANSWER_S),
                self._open(method, path, params, content, content_type) as response,
            ):
                if response.status_code < 300:
                    return _object(await _bounded(response, _LARGEST_ANSWER))
                refusal = Refusal.parse(response.status_code, await _bounded(response, _LARGEST_ERROR, cut=True))
                retry_after = response.headers.get("retry-after", "")
            if refusal.code == 401 and not refreshed:
                # The token was rotated: the file or the plugin may have a newer one.
                refreshed = True
                self._refuse_credentials()
                continue
            if refusal.code == 429 and tried < _TRIES:
                pause_s = float(retry_after) if re.fullmatch(r"[0-9]{1,9}", retry_after) else float(tried)
                await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S))
                continue
            raise _Refused(refusal)
        raise _Refused(refusal)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, read_timeout_s: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the body in chunks as they arrive. Refusals raise before the first chunk."""
        timeout = httpx.Timeout(30.0, connect=15.0, read=read_timeout_s)
        async with self._open("GET", path, params, None, JSON, timeout) as response:
            if response.status_code >= 300:
                refusal = Refusal.parse(response.status_code, await _bounded(response, _LARGEST_ERROR, cut=True))
                if refusal.code == 401:
                    self._refuse_credentials()
                raise to_error(refusal, f"read {path}")
            with _translated(self.access.server):
                yield response.aiter_bytes()

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: bytes | None,
        content_type: str,
        timeout: httpx.Timeout = _TIMEOUT,
    ) -> AsyncIterator[httpx.Response]:
        http = await self._client()
        token = await self._credentials.token()
        headers = {"accept": JSON}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if content is not None:
            headers["content-type"] = content_type
        with _translated(self.access.server):
            request = http.build_request(
                method,
                path,
                params=params,
                content=content,
                headers=headers,
                timeout=timeout,
                extensions={"sni_hostname": self.access.server_name} if self.access.server_name else None,
            )
            try:
                response = await http.send(request, stream=True)
            except httpx.ConnectError as error:
                # The cluster's authority may have been replaced, and its file with it.
                self._is_refused |= "CERTIFICATE_VERIFY_FAILED" in str(error)
                raise
            try:
                yield response
            finally:
                await response.aclose()

    def _refuse_credentials(self) -> None:
        """Read them again before the next request: the server answered 401."""
        self._credentials.refuse()
        self._is_refused = True

    async def _client(self) -> httpx.AsyncClient:
        async with self._opening:
            certificate = await self._credentials.certificate()
            files = (self.access.client_certificate, self.access.authority)
            is_old = certificate != self._certificate or (
                self._is_refused and any(pem is not None and pem.path is not None for pem in files)
            )
            self._is_refused = False
            if self._http is None or is_old:
                context = await asyncio.to_thread(tls_context, self.access, certificate)
                if self._retired is not None:
                    await self._retired.aclose()
                self._retired, self._http, self._certificate = self._http, self._new_client(context), certificate
            return self._http

    def _new_client(self, context: ssl.SSLContext) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.access.server,
            verify=context,
            headers={"user-agent": self._user_agent},
            trust_env=not _is_loopback(self.access.server),
            proxy=self.access.proxy_url or None,
            # Idle ones are not limited: httpcore counts busy ones too, and would close those that are about to be reused.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEPALIVE_S),
        )


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def lines(pieces: AsyncIterator[bytes], longest: int = _LONGEST_LINE) -> AsyncIterator[bytes]:
    """Split a stream into lines of at most `longest` bytes, so that a peer that never ends a line cannot exhaust memory."""
    rest = bytearray()
    async for piece in pieces:
        rest += piece
        while (end := rest.find(b"\n")) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            if line.strip():
                yield line
        if len(rest) > longest:
            raise BackendDown("the Kubernetes API server sent an event that is too long")


@contextlib.asynccontextmanager
async def _within(limit_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise BackendDown(f"the Kubernetes API server did not finish its answer in {limit_s:g} s") from error


async def _bounded(response: httpx.Response, most: int, *, cut: bool = False) -> bytes:
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > most:
            if cut:
                break
            raise BackendDown("the Kubernetes API server's answer is too long")
    return bytes(raw)


def _object(raw: bytes) -> Json:
    try:
        found = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BackendDown(
            "the Kubernetes API server did not answer in JSON; is something else at its address?"
        ) from error
    if not isinstance(found, dict):
        raise BackendDown("the Kubernetes API server answered with something that is no object")
    return found


def _is_loopback(server: str) -> bool:
    host = httpx.URL(server).host
    return host == "localhost" or host.startswith("127.") or host == "::1"


@contextlib.contextmanager
def _translated(server: str) -> Iterator[None]:
    try:
        yield
    except httpx.ConnectError as error:
        raise BackendDown(f"the Kubernetes API server at {server} cannot be reached: {error}") from error
    except (httpx.HTTPError, httpx.StreamError, OSError, ssl.SSLError) as error:
        raise BackendDown(
            f"the Kubernetes API server does not answer: {str(error) or type(error).__name__}"
        ) from error
