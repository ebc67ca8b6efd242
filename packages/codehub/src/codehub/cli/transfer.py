"""Gives workspaces to another user. The server stops one that runs, and transfers it when it has stopped."""

from __future__ import annotations

from codehub.cli.client import Client, Json
from codehub.cli.follow import follow
from codehub.domain.errors import Conflict


def transferred(client: Client, workspace: Json, username: str) -> Json:
    path, body = f"workspaces/{workspace['id']}:transfer", {"username": username}
    try:
        return client.post(path, body)
    except Conflict:
        if client.get(f"workspaces/{workspace['id']}")["desired_state"] not in ("STANDBY", "ARCHIVED"):
            raise
    follow(client, workspace, "STANDBY")
    return client.post(path, body)
