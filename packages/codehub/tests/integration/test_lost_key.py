"""Secrets that were encrypted with a key that is gone: the owner is told, and everything else is set up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from codehub.adapters.postgres import user_setup
from codehub.adapters.postgres.pool import Database
from codehub.adapters.secret_box import SecretBox
from codehub.domain.model import DesiredState, Phase
from codehub.domain.profiles import Runs
from codehub.domain.user_secrets import SecretKind, UserSecret
from codehub.services.setup_desk import PostgresSetupDesk, secret_context
from codehub.wiring import new_id
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace

_OLD, _NEW = SecretBox((b"o" * 32,)), SecretBox((b"n" * 32,))


async def test_secrets_of_a_lost_key_are_named_and_the_rest_is_sent(database: Database) -> None:
    now = datetime.now(UTC)
    row = replace(workspace(new_id(), created_at=now), phase=Phase.RUNNING, desired_state=DesiredState.RUNNING)
    await put_workspace(database, row)
    owner = row.owner_user_id
    async with database.transaction() as tx:
        for name, box in (("LOST", _OLD), ("KEPT", _NEW)):
            secret = UserSecret(name, SecretKind.ENV, 1, now)
            await user_setup.put_secret(tx, owner, secret, box.seal(b"x", secret_context(owner, name)))
        await user_setup.set_dotfiles(tx, owner, "https://git.example.org/dot.git", "")
    message = await PostgresSetupDesk(
        database, lambda: _NEW, lambda _: Runs.COMMAND, lambda: datetime.now(UTC)
    ).message(row.id, owner)
    assert message is not None
    assert message["env"] == {"KEPT": "x"}
    assert message["dotfiles"] == {"url": "https://git.example.org/dot.git", "ref": ""}
    assert "key has changed: LOST. Enter them again" in str(message["trouble"])
    both = PostgresSetupDesk(
        database, lambda: SecretBox((*_NEW.keys, *_OLD.keys)), lambda _: Runs.COMMAND, lambda: datetime.now(UTC)
    )
    again = await both.message(row.id, owner)
    assert again is not None
    assert (again["env"], again["trouble"]) == ({"KEPT": "x", "LOST": "x"}, "")
