"""Hints through PUBLISH and SUBSCRIBE."""

from __future__ import annotations

from collections.abc import AsyncIterator

from redis import asyncio as redis

from codehub.adapters.redis.client import refuse_to_swallow, translated

# How often a silent subscription checks whether it is still wanted and still connected.
_LISTEN_S = 5.0


class RedisBus:
    """Implements ports.bus.Bus on Redis. A channel that ends in `*` is subscribed as a pattern."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    async def publish(self, channel: str, payload: str) -> None:
        with translated():
            await self._client.publish(channel, payload)

    async def subscribe(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        try:
            with translated():
                if patterns := [channel for channel in channels if channel.endswith("*")]:
                    await pubsub.psubscribe(*patterns)
                if plain := [channel for channel in channels if not channel.endswith("*")]:
                    await pubsub.subscribe(*plain)
            while True:
                with translated():
                    message = await pubsub.get_message(timeout=_LISTEN_S)
                if message is not None:
                    yield str(message["channel"]), str(message["data"])
                refuse_to_swallow()
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
