"""Checks, before and while a coordinator leads, that the homes and archives it sees belong to this installation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from codehub.control.observe import home_key
from codehub.domain.errors import BackendDown, CodeHubError, Denied
from codehub.domain.model import Workspace
from codehub.domain.stores import Absent, Claim, Foreign, StoreRecord, Use, Verdict, judge_store
from codehub.ports.archives import Archives
from codehub.ports.control_store import StoreRegistry
from codehub.ports.homes import Homes, HomeState
from codehub.ports.leadership import Lease
from codehub.ports.stores import IdentifiedStore

_log = structlog.get_logger()

# How many rows are checked before concluding that a store holds nothing of this installation.
_SAMPLE: Final = 20
_AGAIN_S: Final = 30.0


class WrongStore(CodeHubError):
    """This coordinator sees homes or archives of another installation and must not lead."""


async def stores_in_use(stores: Sequence[IdentifiedStore], registry: StoreRegistry) -> list[IdentifiedStore]:
    """Return the stores that hold data of this installation, or will. Others may be anything, different on each machine."""
    return [store for store in stores if store.takes_new or await registry.store_evidence(store.kind, 1)]


class StoreCheck:
    def __init__(
        self,
        stores: Sequence[IdentifiedStore],
        registry: StoreRegistry,
        homes: Homes | None,
        archives: Archives,
        installation_id: str,
        new_id: Callable[[], str],
    ) -> None:
        self._stores = stores
        self._registry = registry
        self._homes = homes
        self._archives = archives
        self._installation_id = installation_id
        self._new_id = new_id

    async def before_campaign(self) -> None:
        """Raises WrongStore. Changes nothing: only the leader writes."""
        for store in await stores_in_use(self._stores, self._registry):
            try:
                verdict = await self._judge(store)
            except BackendDown:
                continue  # a store that is down is not a wrong store
            if isinstance(verdict, Foreign):
                raise WrongStore(verdict.message)

    async def in_term(self, lease: Lease) -> None:
        """Raises WrongStore. Records correct stores and withholds missing ones."""
        for store in await stores_in_use(self._stores, self._registry):
            try:
                await self._settle(store, await self._judge(store), lease)
            except BackendDown as error:
                _log.info("a store cannot be identified now", kind=store.kind, error=str(error))

    async def watch(self, lease: Lease) -> None:
        """Check again while leading: a store may come back or be replaced."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            await self.in_term(lease)

    async def _judge(self, store: IdentifiedStore) -> Verdict:
        recorded = (await self._registry.store_records()).get(store.kind)
        seen = await store.read_id()
        rows = await self._registry.store_evidence(store.kind, _SAMPLE) if recorded is None else []
        proven = bool(rows) and await self._is_there(store, rows)
        return judge_store(store.kind, store.place, seen, recorded, has_data=bool(rows), proven=proven)

    async def _is_there(self, store: IdentifiedStore, rows: Sequence[Workspace]) -> bool:
        if store.kind == "archives":
            keys = [row.archive_key for row in rows if row.archive_key is not None]
            return any((await self._archives.committed(keys)).values())
        for row in rows:
            assert self._homes is not None
            found = await self._homes.status(home_key(row))
            if found.state is HomeState.COMPLETE and found.ctx == row.home_ctx:
                return True
        return False

    async def _settle(self, store: IdentifiedStore, verdict: Verdict, lease: Lease) -> None:
        match verdict:
            case Foreign(message):
                raise WrongStore(message)
            case Absent(message):
                _log.error("a store is not there", kind=store.kind, place=store.place, why=message)
                store.hold(message)
            case Claim():
                store_id = self._new_id()
                lease.fence()
                await store.write_id(store_id)
                await self._take(store, store_id, lease)
            case Use(store_id, record):
                if record:
                    await self._take(store, store_id, lease)
                else:
                    store.expect(store_id)

    async def _take(self, store: IdentifiedStore, store_id: str, lease: Lease) -> None:
        if store.kind == "archives":
            try:
                await self._archives.claim(self._installation_id)
            except Denied as error:
                raise WrongStore(str(error)) from error
        await self._registry.record_store(lease.epoch, store.kind, StoreRecord(store_id, store.place))
        store.expect(store_id)
