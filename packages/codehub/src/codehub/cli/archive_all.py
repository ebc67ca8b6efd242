"""Archives several workspaces and waits until all of them are archived. Can be repeated after a failure."""

from __future__ import annotations

from collections.abc import Sequence

from codehub.cli.client import Client, Json
from codehub.cli.follow import follow
from codehub.cli.output import console
from codehub.domain.errors import CodeHubError, Conflict


def archive_all(client: Client, workspaces: Sequence[Json]) -> None:
    """Request all archives first: they run at the same time. Raises Conflict that names those that failed."""
    waiting = [workspace for workspace in workspaces if not _is_at_rest_without_home(workspace)]
    for workspace in workspaces:
        if "archive" in workspace["allowed_actions"]:
            client.post(f"workspaces/{workspace['id']}:archive")
        elif workspace["desired_state"] != "ARCHIVED":  # it is about to start, starting or stopping
            client.patch(f"workspaces/{workspace['id']}", {"desired_state": "ARCHIVED"})
    failed = []
    for number, workspace in enumerate(waiting, 1):
        console(err=True).print(f"Archiving {workspace['name']} ({number} of {len(waiting)}) …")
        try:
            follow(client, workspace, "ARCHIVED")
        except CodeHubError as error:
            failed.append(f"{workspace['name']} ({workspace['id']}): {error}")
    if failed:
        raise Conflict("not everything could be archived; no workspace was transferred.\n" + "\n".join(failed))


def _is_at_rest_without_home(workspace: Json) -> bool:
    """A workspace that was never started, or that is archived: there is nothing to wait for."""
    return workspace["phase"] in ("PENDING", "ARCHIVED") and workspace["operation"] == "NONE"
