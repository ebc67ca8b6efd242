"""The activity buffer as a sorted set: workspace ids by the time of their last touch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from redis import asyncio as redis

from codehub.adapters.redis.client import translated

KEY: Final = "codehub:activity"
# Set by the TTL Runner when it reads. Missing if the server lost its data, including activity that was not read yet.
KEPT_KEY: Final = "codehub:activity:kept"
# Entries per round trip: about 100 KB.
_BATCH: Final = 2_000

# Removes each entry whose time is still the stored one: a later touch stays for the next tick.
_FORGET: Final = """
for i = 1, #ARGV, 2 do
    local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if score and tonumber(score) == tonumber(ARGV[i + 1]) then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
"""


class RedisActivity:
    """Implements ports.activity.ActivityStore on Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._forget = client.register_script(_FORGET)

    async def flush(self, touched: Mapping[str, float]) -> None:
        entries = iter(touched.items())
        with translated():
            while batch := dict(islice(entries, _BATCH)):
                await self._client.zadd(KEY, batch, gt=True)

    async def pending(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        with translated():
            async for workspace_id, at in self._client.zscan_iter(KEY, count=_BATCH):
                found[workspace_id] = at
        return found

    async def forget(self, stored: Mapping[str, float]) -> None:
        entries = iter(stored.items())
        with translated():
            while batch := list(islice(entries, _BATCH)):
                # repr keeps every digit of the time, as it was passed to ZADD.
                await self._forget(keys=[KEY], args=[word for name, at in batch for word in (name, repr(at))])

    async def unbroken(self) -> bool:
        with translated():
            return await self._client.set(KEPT_KEY, "1", get=True) is not None
