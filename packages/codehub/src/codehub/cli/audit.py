"""The output of `codehub admin audit`."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from codehub.cli.client import Client, Json
from codehub.cli.output import json_line, when

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AT_ONCE = 500
_POLL_INTERVAL_S = 1.0


def start_of(since: str | None) -> str | None:
    """Parse a duration before now, or a date or time (in this machine's zone if none is given)."""
    if since is None:
        return None
    if found := re.fullmatch(r"(\d{1,6})([smhd])", since):
        return (datetime.now(UTC) - timedelta(seconds=int(found[1]) * _UNITS[found[2]])).isoformat()
    try:
        return datetime.fromisoformat(since).astimezone(UTC).isoformat()
    except ValueError:
        raise click.UsageError(f"--since {since}: use 30m, 24h, 7d, or a date such as 2026-11-17") from None


def print_trail(client: Client, query: Mapping[str, object], *, limit: int, follow: bool, as_json: bool) -> None:
    """Print the newest `limit` events, oldest first, and then, with `follow`, new ones as they arrive."""
    shown = list(_newest(client, query, limit))[::-1]
    for item in shown:
        _print(item, as_json)
    if not follow:
        if not shown and not as_json:
            click.echo("There are no such events.", err=True)
        return
    after = int(shown[-1]["id"]) if shown else _last_id(client)
    while True:
        page = client.get("audit", after=after, limit=_AT_ONCE, **query)
        for item in page["items"]:
            _print(item, as_json)
        after = int(page["next_cursor"])
        if len(page["items"]) < _AT_ONCE:
            time.sleep(_POLL_INTERVAL_S)


def _last_id(client: Client) -> int:
    newest = client.get("audit", limit=1)["items"]
    return int(newest[0]["id"]) if newest else 0


def _newest(client: Client, query: Mapping[str, object], limit: int) -> Iterator[Json]:
    more: dict[str, object] = {}
    while limit > 0:
        page = client.get("audit", limit=min(limit, _AT_ONCE), **query, **more)
        yield from page["items"]
        limit -= len(page["items"])
        if page["next_cursor"] is None:
            return
        more = {"cursor": page["next_cursor"]}


def _print(item: Json, as_json: bool) -> None:
    if as_json:
        click.echo(json_line(item))
    else:
        click.echo(line_of(item))
    sys.stdout.flush()


def line_of(item: Mapping[str, Any]) -> str:
    """Format an event: 2026-11-17 03:00:00  user.created  admin  ada  from 10.0.0.7  is_admin=false"""
    detail = " ".join(
        f"{name}={_shown(value)}" for name, value in sorted(item["detail"].items()) if value is not None
    )
    words = [when(item["at"]), str(item["event"]), _shown(item["actor"]), _shown(item["target"])]
    place = [f"workspace {item['workspace_id']}"] if item["workspace_id"] else []
    origin = [f"from {item['address']}"] if item["address"] else []
    return "  ".join(word for word in (*words, *place, *origin, detail) if word)


def _shown(value: object) -> str:
    """Return the value on one line. Control characters in user-supplied names must not reach the terminal."""
    return json.dumps(value, ensure_ascii=True) if not isinstance(value, str) or not value.isprintable() else value
