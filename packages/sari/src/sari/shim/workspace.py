"""Determines the client's workspace by the registry's rules, using the roots that the client reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from sari.protocol import jsonrpc
from sari.protocol.jsonrpc import Message
from sari.shim.imports import IMPORTING

# A client that declares roots answers immediately. One that does not answer must not delay its own calls.
_ROOTS_TIMEOUT_S = 2.0


class WorkspaceRoot:
    """Finds the root once, and again when the client reports that its roots changed. Thread-safe."""

    def __init__(self, environ: Mapping[str, str], directory: str, ask: Callable[[Message], None]) -> None:
        self._environ = environ
        self._directory = directory
        self._ask = ask
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._request_id: str | None = None
        self._asks = 0
        self._requested_at = 0.0
        self._client_roots: list[str] = []
        self._can_ask = False

    def client_said(self, initialize: Message) -> bool:
        """Record from `initialize` whether to request the client's roots, which is only allowed later."""
        capabilities = jsonrpc.params_of(initialize).get("capabilities")
        has_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)
        self._can_ask = has_roots and not self._environ.get("SARI_WORKSPACE_ROOT")
        return self._can_ask

    def ask_client(self) -> None:
        """Request the client's roots, if they matter."""
        if not self._can_ask:
            return
        with self._lock:
            self._asks += 1
            self._request_id = f"sari-roots-{self._asks}"
            self._requested_at = time.monotonic()
            self._answered.clear()
            request_id = self._request_id
        self._ask({"jsonrpc": "2.0", "id": request_id, "method": "roots/list"})

    def take_answer(self, message: Message) -> bool:
        """Process the client's answer, which may be an error. Returns whether it answers our request."""
        with self._lock:
            if message.get("id") != self._request_id:
                return False
            result = message.get("result")
            listed = result.get("roots") if isinstance(result, dict) else None
            if isinstance(listed, list):
                uris = [root.get("uri") for root in listed if isinstance(root, dict)]
                with IMPORTING:
                    from sari.registry.roots import path_of_uri

                    paths = [path_of_uri(uri) for uri in uris if isinstance(uri, str)]
                self._client_roots = [path for path in paths if path is not None]
            self._answered.set()
        return True

    def client_roots(self) -> list[str]:
        """Return the roots that the client named."""
        with self._lock:
            return list(self._client_roots)

    def find(self) -> tuple[str, bool]:
        """Return the root and whether it was chosen. Waits briefly for the client's roots. Raises `RefusedRoot`."""
        with IMPORTING:
            from sari.registry.layout import home_directory
            from sari.registry.roots import find_root

        if self._request_id is not None:
            left = self._requested_at + _ROOTS_TIMEOUT_S - time.monotonic()
            self._answered.wait(max(0.0, left))
        with self._lock:
            roots = list(self._client_roots)
        root = find_root(self._environ, roots, self._directory, home_directory(self._environ))
        return root.path, root.chosen
