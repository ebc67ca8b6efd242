"""Type-based answers for one workspace: prepared by language servers in the background, kept until a file changes.

No call waits for a server: it takes the answer by types if that is ready, and a later call gets it otherwise.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sari.languages import catalog as languages
from sari.lsp.catalog import SERVERS, ServerSpec, find_program, project_folder, server_for
from sari.lsp.session import NoTypes, Place, ServerSession

_IDLE_S = 600.0
_LOOKUP_INTERVAL_S = 30.0
_KEPT_ANSWERS = 64
_MOST_SERVERS = 3
MOST_DEFINITIONS = 8
_REQUESTS = {
    "references": ("textDocument/references", "referencesProvider"),
    "implementations": ("textDocument/implementation", "implementationProvider"),
}


# Returns the files of some languages that contain the name.
Uses = Callable[[frozenset[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Typed:
    """The places that a server returned."""

    server: str
    places: Sequence[Place]


@dataclass(slots=True)
class Pending:
    """An answer that is ready or being prepared, and why the last attempt for the same question failed."""

    future: Future[Typed]
    failure: BaseException | None = None

    def take(self) -> Typed | None:
        """Return the answer if it is ready."""
        try:
            return self.future.result(0)
        except (NoTypes, TimeoutError):
            return None

    def why_not(self) -> str:
        """Return a note on why there is no answer; empty if no server applies."""
        if self.future.done():
            error = self.future.exception()
        elif self.failure is None:
            return "An answer by types is being prepared; repeat the call to get it."
        else:
            # It is tried again, but a client that was told to repeat the call would do so for ever.
            error = self.failure
        return f"No answer by types: {error}." if error is not None and str(error) else ""


class TypedAnswers:
    """The language servers of one workspace. Thread-safe."""

    def __init__(
        self,
        root: Path,
        private: Path,
        paths: Callable[[], Iterable[bytes]],
        trusted: Callable[[], bool],
        environ: Mapping[str, str],
    ) -> None:
        self._root, self._private, self._paths, self._trusted = root, private, paths, trusted
        self._environ = environ
        self._idle_s = _idle_s(environ.get("SARI_LANGUAGE_SERVER_IDLE_SEC", ""))
        self._is_off = environ.get("SARI_LANGUAGE_SERVERS", "on") == "off"
        self._sessions: OrderedDict[tuple[str, str], ServerSession] = OrderedDict()
        self._kept: OrderedDict[tuple[str, str], tuple[int, Future[Typed]]] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._has_servers, self._looked_at = False, float("-inf")
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="sari-types")

    def begin(self, kind: str, key: str, change: int, define: Callable[[], Sequence[Place]], uses: Uses) -> Pending:
        """Start preparing an answer, unless it is ready.

        `define` finds the definitions, `uses` the files of these languages that contain the name.
        """
        with self._lock:
            known = self._kept.get((kind, key))
            failure = None
            if known is not None and known[0] == change >= 0:
                failure = known[1].exception() if known[1].done() else None
                if failure is None:
                    return Pending(known[1])
            future: Future[Typed] = Future()
            if self._closed or self._is_off or not self._installed():
                future.set_exception(NoTypes(""))
                return Pending(future)
            self._kept[kind, key] = change, future
            while len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)
            self._threads.submit(self._prepare, kind, future, define, uses)
        return Pending(future, failure)

    def _installed(self) -> bool:
        """Whether any server is installed. Cached for a while, because every call checks it."""
        now = time.monotonic()
        if now - self._looked_at > _LOOKUP_INTERVAL_S:
            self._has_servers = any(find_program(spec, self._root, self._environ) for spec in SERVERS)
            self._looked_at = now
        return self._has_servers

    def _prepare(self, kind: str, future: Future[Typed], define: Callable[[], Sequence[Place]], uses: Uses) -> None:
        try:
            places = define()
            session = self._session(places)
            method, capability = _REQUESTS[kind]
            wanted = frozenset(session.spec.languages)
            found = session.submit(lambda one: one.locate(method, capability, places, lambda: uses(wanted))).result()
            if not found and kind == "references":
                raise NoTypes(f"{session.spec.name} does not know this name")
            future.set_result(Typed(session.spec.name, found))
        except NoTypes as error:
            future.set_exception(error)
        except Exception as error:  # noqa: BLE001 - the syntax-based answer remains
            future.set_exception(NoTypes(f"{type(error).__name__}: {error}"))

    def _session(self, places: Sequence[Place]) -> ServerSession:
        if not places or len(places) > MOST_DEFINITIONS:
            raise NoTypes("")
        chosen = {self._server_of(place) for place in places}
        if len(chosen) > 1:
            raise NoTypes("the name is defined in several projects or languages; qualify it")
        spec_name, folder = chosen.pop()
        with self._lock:
            if self._closed:
                raise NoTypes("")
            session = self._sessions.get((spec_name, folder))
            if session is None:
                spec = next(one for one in SERVERS if one.name == spec_name)
                private = self._private / f"{spec_name}-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"
                session = ServerSession(
                    spec, self._root, Path(folder), private, self._paths, self._environ, self._idle_s
                )
                self._sessions[spec_name, folder] = session
            self._sessions.move_to_end((spec_name, folder))
            unused = [
                self._sessions.popitem(last=False)[1] for _ in range(max(0, len(self._sessions) - _MOST_SERVERS))
            ]
        for one in unused:
            one.close()
        return session

    def _server_of(self, place: Place) -> tuple[str, str]:
        language = languages.of_path(place.path)
        spec = server_for(language.name) if language is not None else None
        if spec is None or find_program(spec, self._root, self._environ) is None:
            raise NoTypes("")
        check_trust(spec, self._trusted())
        folder = project_folder(spec, self._root, place.path)
        if folder is None:
            raise NoTypes(f"{spec.name} needs one of {', '.join(spec.project_files)} to know the whole project")
        return spec.name, str(folder)

    def sessions(self) -> list[ServerSession]:
        """The sessions that were started, for status and tests."""
        with self._lock:
            return list(self._sessions.values())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions = list(self._sessions.values())
        for session in sessions:
            session.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


def check_trust(spec: ServerSpec, is_trusted: bool) -> None:
    """Raise `NoTypes` for a server that runs programs that the repository names, unless the workspace is trusted."""
    if spec.needs_trust and not is_trusted:
        raise NoTypes(
            f"{spec.name} runs programs that the repository names; the user may allow it with "
            "`sari allow --language-servers`"
        )


def _idle_s(given: str) -> float:
    try:
        return max(0.1, float(given))
    except ValueError:
        return _IDLE_S
