"""ports.notifications on PostgreSQL: LISTEN on a dedicated connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import psycopg
import structlog

from codehub.adapters.postgres.errors import translated
from codehub.adapters.postgres.pool import connection_arguments
from codehub.ports.notifications import Notice, NoticeKind

_log = structlog.get_logger()

# How long silence lasts before it is reported, and therefore how soon a dead connection is detected.
_SILENCE_S: Final = 5.0


class PostgresNotifications:
    def __init__(self, url: str) -> None:
        self._url = url

    async def listen(self) -> AsyncIterator[Notice | None]:
        with translated():
            connection = await psycopg.AsyncConnection.connect(self._url, **connection_arguments("codehub-listener"))
        try:
            with translated():
                for kind in NoticeKind:
                    await connection.execute(f"LISTEN {kind.value}".encode())
            yield None
            while True:
                with translated():
                    heard = [notify async for notify in connection.notifies(timeout=_SILENCE_S, stop_after=1)]
                    if not heard:
                        await connection.execute("SELECT 1")
                for notify in heard:
                    if (notice := _notice(notify)) is not None:
                        yield notice
                if not heard:
                    yield None
        finally:
            await connection.close()


def _notice(notify: psycopg.Notify) -> Notice | None:
    try:
        payload = json.loads(notify.payload)
        return Notice(NoticeKind(notify.channel), payload["id"], payload.get("owner", ""))
    except (ValueError, KeyError, TypeError):
        _log.warning("a notification is invalid", channel=notify.channel)
        return None
