"""Which open workspaces are kept for the next client, and which are closed."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sari.daemon.workspaces import MOST_UNUSED, Workspaces
from sari.protocol.tooling import Call, ToolResult


class _Opened:
    """A workspace that does nothing but be open."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def call(self, tool: str, arguments: Mapping[str, object], call: Call) -> ToolResult:
        return ToolResult("", {})

    def status(self) -> Mapping[str, object]:
        return {}

    def is_warm(self) -> bool:
        return True

    def close(self) -> None:
        return None


async def test_unused_workspaces_stay_open_for_their_time_but_not_too_many_of_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        workspaces = Workspaces(lambda root, data_dir: _Opened(root), tmp_path, threads)
        for number in range(MOST_UNUSED + 3):
            workspaces.leave(await workspaces.enter(f"/w/{number}"))
            await workspaces.close_unused(lambda root: False, 600.0, float(number))
        left = {slot.root for slot in workspaces.slots()}
        assert left == {f"/w/{number}" for number in range(3, MOST_UNUSED + 3)}
        await workspaces.close_unused(lambda root: root == "/w/5", 600.0, 10_000.0)
        assert {slot.root for slot in workspaces.slots()} == {"/w/5"}


async def test_a_workspace_whose_client_hangs_up_while_it_opens_is_closed_later(tmp_path: Path) -> None:
    is_opening, may_open = threading.Event(), threading.Event()
    opened: list[_Opened] = []
    closed: list[_Opened] = []

    class Slow(_Opened):
        def close(self) -> None:
            closed.append(self)

    def open_slowly(root: Path, data_dir: Path) -> _Opened:
        is_opening.set()
        assert may_open.wait(60)
        opened.append(Slow(root))
        return opened[-1]

    with ThreadPoolExecutor(2) as threads:
        workspaces = Workspaces(open_slowly, tmp_path, threads)
        entering = asyncio.create_task(workspaces.enter("/w"))
        await asyncio.to_thread(is_opening.wait, 60)
        entering.cancel()
        may_open.set()
        await asyncio.wait([entering])
        assert entering.cancelled()
        await workspaces.close_unused(lambda root: False, 0.0, 1.0)
        assert opened == closed != []
        assert workspaces.slots() == []
