"""Answers `sari search`: the daemon if the workspace is warm there, otherwise ripgrep in this process.

Starting a daemon, or opening a workspace in it, takes longer than searching a small tree. The first search therefore
answers by itself, with the tool's own code and so with the same lines in the same order. It prepares the daemon for the
next one after its answer is printed.
"""

from __future__ import annotations

import sys

from sari.cli.tool_client import Answer, call_if_warm, call_tool, workspace_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sari.cli.local_search import LocalSearch


class SearchSource:
    """The pages of one search."""

    def __init__(self, workspace: str | None) -> None:
        self._root = workspace_root(workspace)
        self._local: LocalSearch | None = None
        self._is_first = True

    def page(self, arguments: Mapping[str, object]) -> Answer:
        """Return one page. Raises `SariError` with the tool's error."""
        if self._is_first:
            self._is_first = False
            answer = call_if_warm("search", arguments, self._root)
            if answer is not None:
                return answer
            from sari.cli.local_search import LocalSearch

            self._local = LocalSearch(self._root)
        if self._local is not None:
            return self._local.page(arguments)
        return call_tool("search", arguments, self._root)

    def finish(self) -> None:
        """Open the workspace in a daemon if none has answered. Called when the answer is printed."""
        if self._local is None:
            return
        sys.stdout.flush()
        if sys.stdout.isatty():
            # A person waits for the prompt.
            _warm_up_in_background(self._root)
        else:
            # The next line of a script may rely on the daemon.
            warm_up(self._root)


def warm_up(root: str) -> None:
    """Start a daemon if there is none, and open the workspace in it."""
    call_tool("status", {}, root)


def _warm_up_in_background(root: str) -> None:
    import subprocess

    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        flags = 0
    subprocess.Popen(
        [sys.executable, "-P", "-m", "sari.cli.warm_up", root],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        creationflags=flags,
        # Closing the terminal must not end it.
        start_new_session=True,
    )
