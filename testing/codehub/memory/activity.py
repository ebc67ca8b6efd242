"""The activity buffer in memory."""

from __future__ import annotations

from collections.abc import Mapping

from codehub.domain.errors import BackendDown


class MemoryActivity:
    """Implements ports.activity.ActivityStore with a dictionary. `away` makes it unavailable."""

    def __init__(self) -> None:
        self.away = False
        self._touched: dict[str, float] = {}
        self._kept = False

    async def flush(self, touched: Mapping[str, float]) -> None:
        self._answer()
        for workspace_id, at in touched.items():
            self._touched[workspace_id] = max(at, self._touched.get(workspace_id, at))

    async def pending(self) -> Mapping[str, float]:
        self._answer()
        return dict(self._touched)

    async def forget(self, stored: Mapping[str, float]) -> None:
        self._answer()
        for workspace_id, at in stored.items():
            if self._touched.get(workspace_id) == at:
                del self._touched[workspace_id]

    async def unbroken(self) -> bool:
        self._answer()
        kept, self._kept = self._kept, True
        return kept

    def wipe(self) -> None:
        self._touched.clear()
        self._kept = False

    def _answer(self) -> None:
        if self.away:
            raise BackendDown("the activity store is away")
