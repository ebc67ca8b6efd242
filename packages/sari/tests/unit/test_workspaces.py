"""Which open workspaces are kept for the next client, and which are closed."""

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
