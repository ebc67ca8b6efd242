"""A language server for one project: started for the first request, stopped when idle, restarted if it died.

Requests are answered one at a time in a separate thread. The server reads files from disk; before each request it is
notified of the files that changed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sari.index.regular import copy_regular, read_start
from sari.languages import catalog as languages
from sari.lsp.catalog import ServerSpec, find_program, search_path, typescript_library
from sari.lsp.client import LspClient, RequestFailed, ServerGone

MEMORY_MB = 2048
_START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 120.0
# clangd reports when its index of the project is built, but sends no such message for a project that it knows.
_INDEX_BEGINS_S = 5.0
_MOST_STARTS, _STARTS_WITHIN_S = 3, 600.0
_MOST_BYTES = 4 << 20
# Variables by which a toolchain loads or starts other code.
_LEFT_OUT = (
    "GIT_", "NODE_", "npm_", "PYTHON", "GO", "CARGO", "RUST", "LD_", "DYLD_", "VIRTUAL_ENV", "BASH_ENV",
)  # fmt: skip
_MOST_OPENED = 400
# Chromium's takes 100 MB.
_LARGEST_COMMANDS = 512 << 20


class NoTypes(Exception):
    """Raised when a request cannot be answered by types. The message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a name: the line counts from 1, the column in UTF-16 units from 0."""

    path: str
    line: int
    column: int


Job = Callable[["ServerSession"], list[Place]]


class ServerSession:
    """One server of one project folder."""

    def __init__(
        self,
        spec: ServerSpec,
        root: Path,
        folder: Path,
        private: Path,
        paths: Callable[[], Iterable[bytes]],
        environ: Mapping[str, str],
        idle_s: float,
    ) -> None:
        self.spec, self.root, self.folder = spec, root, folder
        self._private, self._paths, self._environ, self._idle_s = private, paths, environ, idle_s
        self._client: LspClient | None = None
        self._capabilities: Mapping[str, object] = {}
        self._stamps: dict[bytes, int] = {}
        self._starts: list[float] = []
        self._indexing, self._indexed = threading.Event(), threading.Event()
        self._jobs: queue.Queue[tuple[Job, Future[list[Place]]] | None] = queue.Queue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"sari-{spec.name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Place]]:
        """Queue a request. The future fails with `NoTypes`."""
        future: Future[list[Place]] = Future()
        self._jobs.put((job, future))
        return future

    @property
    def pid(self) -> int | None:
        """The pid of the running server's supervisor."""
        client = self._client
        return client.pid if client is not None and client.is_running else None

    def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        client = self._client
        if client is not None:
            client.close()
        self._thread.join()

    # Runs in the session's thread.

    def _run(self) -> None:
        while True:
            try:
                taken = self._jobs.get(timeout=self._idle_s if self._client is not None else None)
            except queue.Empty:
                self._end()
                continue
            if taken is None:
                self._end()
                return
            job, future = taken
            try:
                future.set_result(self._work(job))
            except NoTypes as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - whatever a server sends, the syntax-based answer remains
                future.set_exception(NoTypes(f"{self.spec.name} failed: {error}"))

    def _work(self, job: Job) -> list[Place]:
        for attempt in (1, 2):
            try:
                self._ensure()
                self._report_changes()
                return job(self)
            except RequestFailed as error:
                # Retry once: a server may refuse a request because a file changed meanwhile. A file that the build leaves
                # out (`_windows.go`) is refused each time, and the server remains useful for others.
                if attempt == 2 or self._closed:
                    raise NoTypes(f"{self.spec.name}: {error}") from error
            except (ServerGone, FutureTimeout, TimeoutError) as error:
                # The server was killed or exceeded its memory: retry once with a new one.
                self._end()
                if attempt == 2 or self._closed:
                    raise NoTypes(f"{self.spec.name} did not answer ({type(error).__name__})") from error
        raise AssertionError("the second attempt returns or raises")

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ensure(self) -> LspClient:
        if self._client is not None and self._client.is_running:
            return self._client
        self._end()
        now = time.monotonic()
        self._starts = [start for start in self._starts if now - start < _STARTS_WITHIN_S]
        if len(self._starts) >= _MOST_STARTS or self._closed:
            raise NoTypes(f"{self.spec.name} ended {_MOST_STARTS} times in ten minutes")
        self._starts.append(now)
        program = find_program(self.spec, self.root, self._environ)
        if program is None:
            raise NoTypes(f"{self.spec.name} is not installed")
        os.makedirs(self._private, mode=0o700, exist_ok=True)
        params = self._initialize(program)
        client = LspClient(
            [program, *self.spec.command[1:], *self._extra_arguments()],
            self._environment(),
            self._private,
            MEMORY_MB,
            self.spec.settings,
            self._notified,
        )
        self._client = client
        if self._closed:
            raise NoTypes(f"{self.spec.name} is being ended")
        self._indexing.clear()
        self._indexed.clear()
        try:
            answer = client.request("initialize", params).result(_START_TIMEOUT_S)
        except RequestFailed as error:
            raise ServerGone(str(error)) from error
        capabilities = answer.get("capabilities") if isinstance(answer, dict) else None
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}
        client.notify("initialized", {})
        client.notify("workspace/didChangeConfiguration", {"settings": self.spec.settings})
        self._stamps = self._stat_all()
        return client

    def _extra_arguments(self) -> list[str]:
        if self.spec.name != "clangd":
            return []
        # clangd keeps its index beside the compile commands, so pass it a copy outside the workspace.
        commands = self._private / "compile_commands.json"
        if not copy_regular(self.folder / "compile_commands.json", commands, _LARGEST_COMMANDS):
            raise NoTypes(f"compile_commands.json is larger than {_LARGEST_COMMANDS >> 20} MiB or not a regular file")
        return [f"--compile-commands-dir={self._private}"]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in self._environ.items() if not name.startswith(_LEFT_OUT)}
        return {**kept, "PATH": search_path(self.root, self._environ), **self.spec.environment}

    def _initialize(self, program: str) -> dict[str, object]:
        uri = self.folder.as_uri()
        options = dict(self.spec.options)
        if self.spec.name == "typescript-language-server":
            library = typescript_library(program)
            if library is None:
                raise NoTypes("there is no TypeScript beside typescript-language-server")
            options["tsserver"] = {"path": library, "fallbackPath": library, "useSyntaxServer": "never"}
        return {
            "processId": os.getpid(),
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": self.folder.name}],
            "initializationOptions": options,
            "capabilities": {
                "workspace": {
                    "configuration": True,
                    "workspaceFolders": True,
                    "didChangeWatchedFiles": {"dynamicRegistration": True},
                },
                "window": {"workDoneProgress": True},
                "textDocument": {"references": {}, "implementation": {"linkSupport": False}, "synchronization": {}},
            },
        }

    def _notified(self, method: str, params: object) -> None:
        if method != "$/progress" or not isinstance(params, dict) or params.get("token") != "backgroundIndexProgress":
            return
        value = params.get("value")
        self._indexing.set()
        if isinstance(value, dict) and value.get("kind") == "end":
            self._indexed.set()

    def _stat_all(self) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        base = os.fsencode(self.root)
        for path in self._paths():
            language = languages.of_path(os.fsdecode(path))
            if language is not None and language.name in self.spec.languages:
                with contextlib.suppress(OSError):
                    found[path] = os.lstat(os.path.join(base, path)).st_mtime_ns
        return found

    def _report_changes(self) -> None:
        assert self._client is not None
        now, before = self._stat_all(), self._stamps
        self._stamps = now
        changes = [{"uri": self.uri(path), "type": 1} for path in now if path not in before]
        changes += [{"uri": self.uri(path), "type": 3} for path in before if path not in now]
        changes += [
            {"uri": self.uri(path), "type": 2} for path, stamp in now.items() if before.get(path, stamp) != stamp
        ]
        if changes:
            self._client.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    # Used by jobs.

    def uri(self, path: bytes) -> str:
        return (self.root / os.fsdecode(path)).as_uri()

    def locate(
        self, method: str, capability: str, places: Sequence[Place], uses: Callable[[], Sequence[str]]
    ) -> list[Place]:
        """Return the locations for these places, within the workspace. `uses` returns the files that contain the name."""
        client = self._client
        assert client is not None
        if not self._capabilities.get(capability):
            raise NoTypes(f"{self.spec.name} does not answer this")
        opened = list(dict.fromkeys([place.path for place in places]))
        if self.spec.opens_uses:
            opened += [path for path in uses() if path not in opened]
            if len(opened) > _MOST_OPENED:
                raise NoTypes(f"{len(opened)} files hold the name, more than {_MOST_OPENED}")
        found: dict[Place, None] = {}
        try:
            for path in opened:
                client.notify("textDocument/didOpen", {"textDocument": self._document(path)})
            self._wait_indexed()
            for place in places:
                params: dict[str, object] = {
                    "textDocument": {"uri": self.uri(os.fsencode(place.path))},
                    "position": {"line": place.line - 1, "character": place.column},
                }
                if method == "textDocument/references":
                    params["context"] = {"includeDeclaration": True}
                answer = client.request(method, params).result(_ANSWER_TIMEOUT_S)
                found.update(dict.fromkeys(self._places(answer)))
        finally:
            for path in opened:
                client.notify("textDocument/didClose", {"textDocument": {"uri": self.uri(os.fsencode(path))}})
        return list(found)

    def _document(self, path: str) -> dict[str, object]:
        language = languages.of_path(path)
        assert language is not None
        # A file that contains the name may be of any size.
        text = (read_start(self.root / path, _MOST_BYTES) or b"").decode("utf-8", "replace")
        name = self.spec.languages[language.name]
        return {"uri": self.uri(os.fsencode(path)), "languageId": name, "version": 1, "text": text}

    def _wait_indexed(self) -> None:
        begins = self.spec.name == "clangd" and self._indexing.wait(_INDEX_BEGINS_S)
        if begins and not self._indexed.wait(_ANSWER_TIMEOUT_S):
            raise NoTypes("clangd is still indexing the project")

    def _places(self, answer: object) -> Iterable[Place]:
        rows = answer if isinstance(answer, list) else [answer]
        for row in rows:
            if not isinstance(row, dict):
                continue
            uri, span = row.get("uri") or row.get("targetUri"), row.get("range") or row.get("targetSelectionRange")
            path = path_of(str(uri), self.root)
            if path is not None and isinstance(span, dict):
                start = span["start"]
                yield Place(path, int(start["line"]) + 1, int(start["character"]))


def path_of(uri: str, root: Path) -> str | None:
    """Return the path of a file URI relative to the root; None if it is elsewhere, or a link leads there."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return None
    try:
        path = Path(os.path.realpath(unquote(parts.path, errors="surrogateescape")))
    except ValueError:
        # It contains a NUL byte.
        return None
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None
