"""Users' personal setup for their workspaces: git credentials, a key for git over SSH, secrets and dotfiles.

A stored value is never shown again. An API token that is restricted to one workspace has no access to any of this
(`api/context.py`), so code in a workspace cannot read or change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codehub.adapters.git_remote import Branches, GitRemote
from codehub.adapters.postgres import user_setup
from codehub.adapters.postgres.pool import Database
from codehub.adapters.secret_box import SecretBox
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Invalid, NotFound
from codehub.domain.repository import parse_source, parse_url
from codehub.domain.user_secrets import (
    ALL_ENV_BYTES,
    ALL_FILE_BYTES,
    MAX_CREDENTIALS,
    MAX_SECRETS,
    GitCredential,
    GitKey,
    SecretKind,
    UserSecret,
    check_secret,
    check_token,
    parse_git_host,
)
from codehub.services import git_keys
from codehub.services.audit import note
from codehub.services.held_user import hold_user
from codehub.services.principal import Clock, Ids, Principal
from codehub.services.setup_desk import credential_context, key_context, secret_context

DEFAULT_USERNAME = "git"


@dataclass(frozen=True, slots=True)
class UserSetup:
    database: Database
    box: Callable[[], SecretBox]
    clock: Clock
    ids: Ids
    remote: GitRemote

    # --- git credentials

    async def credentials(self, who: Principal) -> list[GitCredential]:
        async with self.database.transaction() as tx:
            return await user_setup.credentials(tx, who.user_id)

    async def add_credential(self, who: Principal, host: str, username: str, token: str) -> GitCredential:
        scheme, host = parse_git_host(host)
        check_token(username or DEFAULT_USERNAME, token)
        made = GitCredential(self.ids(), scheme, host, username or DEFAULT_USERNAME, self.clock())
        sealed = self.box().seal(token.encode(), credential_context(who.user_id, scheme, host))
        async with self.database.transaction() as tx:
            await hold_user(tx, who, made.created_at)
            held = await user_setup.credentials(tx, who.user_id)
            if len([each for each in held if (each.scheme, each.host) != (scheme, host)]) >= MAX_CREDENTIALS:
                raise Conflict(f"you have {MAX_CREDENTIALS} git credentials: remove one first")
            await user_setup.put_credential(tx, who.user_id, made, sealed)
            await note(tx, AuditKind.GIT_CREDENTIAL_ADDED, made.created_at, who, target=f"{scheme}://{host}")
        return made

    async def remove_credential(self, who: Principal, credential_id: str) -> None:
        async with self.database.transaction() as tx:
            held = [each for each in await user_setup.credentials(tx, who.user_id) if each.id == credential_id]
            if not held or not await user_setup.delete_credential(tx, who.user_id, credential_id):
                raise NotFound("you have no such git credential")
            target = f"{held[0].scheme}://{held[0].host}"
            await note(tx, AuditKind.GIT_CREDENTIAL_REMOVED, self.clock(), who, target=target)

    async def branches(self, who: Principal, url: str) -> Branches:
        """List the branches of a repository, with the credential that this user stored for its host."""
        parsed = parse_url(url)
        async with self.database.transaction() as tx:
            found = await user_setup.sealed_credential(tx, who.user_id, parsed.scheme, parsed.host)
        username = token = ""
        if found is not None:
            context = credential_context(who.user_id, parsed.scheme, parsed.host)
            username, token = found[0], self.box().open(found[1], context).decode()
        return await self.remote.branches(parsed, username, token, who.user_id)

    # --- the git key

    async def key(self, who: Principal) -> GitKey | None:
        async with self.database.transaction() as tx:
            found = await user_setup.git_key(tx, who.user_id)
        return None if found is None else found[0]

    async def make_key(self, who: Principal, *, replace: bool) -> GitKey:
        """Return the existing key, or create one if there is none or `replace` is set."""
        line, private = git_keys.make_key(f"{who.username}@codehub")
        sealed = self.box().seal(private, key_context(who.user_id))
        async with self.database.transaction() as tx:
            made = replace or await user_setup.git_key(tx, who.user_id) is None
            if made:
                await user_setup.put_git_key(tx, who.user_id, line, sealed, self.clock())
            found = await user_setup.git_key(tx, who.user_id)
            if made:
                await note(tx, AuditKind.GIT_KEY_MADE, self.clock(), who)
        assert found is not None
        return found[0]

    async def remove_key(self, who: Principal) -> None:
        async with self.database.transaction() as tx:
            if not await user_setup.delete_git_key(tx, who.user_id):
                raise NotFound("you have no git key")
            await note(tx, AuditKind.GIT_KEY_REMOVED, self.clock(), who)

    # --- secrets

    async def secrets(self, who: Principal) -> list[UserSecret]:
        async with self.database.transaction() as tx:
            return await user_setup.secrets_of(tx, who.user_id)

    async def set_secret(self, who: Principal, name: str, kind: SecretKind, value: bytes) -> UserSecret:
        check_secret(name, kind, value)
        made = UserSecret(name, kind, len(value), self.clock())
        sealed = self.box().seal(value, secret_context(who.user_id, name))
        async with self.database.transaction() as tx:
            await hold_user(tx, who, made.updated_at)
            others = [each for each in await user_setup.secrets_of(tx, who.user_id) if each.name != name]
            if len(others) >= MAX_SECRETS:
                raise Conflict(f"you have {MAX_SECRETS} secrets: remove one first")
            most = ALL_ENV_BYTES if kind is SecretKind.ENV else ALL_FILE_BYTES
            if sum(each.bytes for each in others if each.kind is kind) + len(value) > most:
                raise Invalid(f"value: all your secrets of this kind may have {most >> 10} KiB together")
            await user_setup.put_secret(tx, who.user_id, made, sealed)
            await note(tx, AuditKind.SECRET_SET, made.updated_at, who, target=name, given_as=kind.value)
        return made

    async def remove_secret(self, who: Principal, name: str) -> None:
        async with self.database.transaction() as tx:
            if not await user_setup.delete_secret(tx, who.user_id, name):
                raise NotFound(f"you have no secret {name!r}")
            await note(tx, AuditKind.SECRET_REMOVED, self.clock(), who, target=name)

    # --- dotfiles

    async def dotfiles(self, who: Principal) -> tuple[str, str]:
        async with self.database.transaction() as tx:
            return await user_setup.dotfiles(tx, who.user_id)

    async def set_dotfiles(self, who: Principal, url: str, ref: str) -> tuple[str, str]:
        """Set the dotfiles repository. An empty URL means none."""
        source = parse_source(url, ref) if url else None
        kept = (source.repository.url, source.ref) if source is not None else ("", "")
        async with self.database.transaction() as tx:
            await user_setup.set_dotfiles(tx, who.user_id, *kept)
        return kept
