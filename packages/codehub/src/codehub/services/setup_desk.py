"""Messages and answers for linked workspaces. Secrets are decrypted only here, and for `git ls-remote`.

Every request is checked against the row: the instance must still belong to its owner, who must not be disabled, so a
removed credential or a transferred workspace is rejected immediately.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from codehub.adapters.postgres import setup_links, ssh_keys, user_setup
from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database
from codehub.adapters.secret_box import SecretBox
from codehub.domain.devcontainer import Command, DevContainer, parse_devcontainer
from codehub.domain.devcontainer_support import Unsupported
from codehub.domain.errors import Conflict, Denied, Invalid
from codehub.domain.model import Workspace
from codehub.domain.profiles import Runs
from codehub.domain.repository import canonical_host
from codehub.domain.setup import SetupState
from codehub.domain.user_secrets import SecretKind, UserSecret
from codehub.ports.setup import Linkable, Message
from codehub.services import git_keys
from codehub.services.host_keys import NO_KEYS, keep_host_key
from codehub.services.principal import Clock

_LONGEST_SIGNED = 256 << 10
_MOST_NAMED = 5
_FOR_ENABLED_OWNERS = ("credential", "ssh", "ssh-identities", "ssh-sign")


@dataclass(frozen=True, slots=True)
class PostgresSetupDesk:
    """`runs` is what an instance backend starts; `git_ca` holds certificates that git trusts besides the system's."""

    database: Database
    box: Callable[[], SecretBox]
    runs: Callable[[str], Runs]
    clock: Clock
    git_ca: str = ""
    partial_clone_bytes: int = 100 << 20
    step_limit_s: float = 3600.0

    async def linkable(self) -> Sequence[Linkable]:
        async with self.database.transaction() as tx:
            return await setup_links.linkable(tx)

    async def bind(self, epoch: int, workspace_id: str, instance: str, owner_user_id: str) -> bool:
        async with as_leader(self.database, epoch) as tx:
            return await setup_links.bind(tx, workspace_id, instance, owner_user_id)

    async def note(self, epoch: int, workspace_id: str, state: SetupState) -> None:
        async with as_leader(self.database, epoch) as tx:
            await setup_links.note(tx, workspace_id, state)

    async def awaits_environment(self, owner_user_id: str) -> bool:
        async with self.database.statement() as tx:
            found = await user_setup.secrets_of(tx, owner_user_id)
        return any(secret.kind is SecretKind.ENV for secret in found)

    async def message(self, workspace_id: str, owner_user_id: str) -> Message | None:
        async with self.database.transaction() as tx:
            workspace = await setup_links.workspace(tx, workspace_id)
            if workspace is None or workspace.owner_user_id != owner_user_id:
                return None
            withheld = await user_setup.is_withheld(tx, owner_user_id)
            sealed = [] if withheld else await user_setup.sealed_secrets(tx, owner_user_id)
            credentials = [] if withheld else await user_setup.credentials(tx, owner_user_id)
            url, ref = await user_setup.dotfiles(tx, owner_user_id)
        opened: dict[UserSecret, bytes] = {}
        lost: list[str] = []
        for secret, value in sealed:
            try:
                opened[secret] = self.box().open(value, secret_context(owner_user_id, secret.name))
            except Conflict:  # everything else of the setup works without it
                lost.append(secret.name)
        return {
            "env": {s.name: v.decode() for s, v in opened.items() if s.kind is SecretKind.ENV},
            "files": {s.name: base64.b64encode(v).decode() for s, v in opened.items() if s.kind is SecretKind.FILE},
            "git": {"hosts": [f"{each.scheme}://{each.host}" for each in credentials], "ca": self.git_ca},
            "repo": self._repo(workspace),
            "dotfiles": {"url": url, "ref": ref} if url else None,
            "commands": _template_commands(workspace),
            "retry": workspace.setup_retry,
            "step_limit_s": self.step_limit_s,
            "trouble": _lost_secrets(lost),
        }

    def _repo(self, workspace: Workspace) -> dict[str, object] | None:
        if workspace.repo is None:
            return None
        repository = workspace.repo.repository
        return {
            "url": repository.url,
            "name": repository.name,
            "ref": workspace.repo.ref,
            "path": workspace.repo.path,
            "partial_bytes": self.partial_clone_bytes,
        }

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> Message:
        async with self.database.transaction() as tx:
            if not await setup_links.is_bound(tx, workspace_id, instance, owner_user_id):
                raise Denied("this workspace has another owner now: stop and start it")
            kind = question.get("ask")
            if kind in _FOR_ENABLED_OWNERS and await user_setup.is_withheld(tx, owner_user_id):
                raise Denied("the account of this workspace's owner is disabled")
        match kind:
            case "credential":
                return await self._credential(owner_user_id, question)
            case "ssh":
                return await self._ssh(workspace_id, owner_user_id, question)
            case "ssh-identities":
                return await self._identities(owner_user_id)
            case "ssh-sign":
                return await self._sign(owner_user_id, question)
            case "devcontainer":
                return await self._devcontainer(workspace_id, question)
            case "image":
                return {}  # the coordinator prepares it
            case _:
                raise Invalid("this CodeHub does not know what the workspace asks for")

    async def _credential(self, owner_user_id: str, question: Message) -> Message:
        scheme = str(question.get("protocol", ""))
        host = canonical_host(scheme, str(question.get("host", "")))
        async with self.database.transaction() as tx:
            found = await user_setup.sealed_credential(tx, owner_user_id, scheme, host)
        if found is None:
            return {}
        token = self.box().open(found[1], credential_context(owner_user_id, scheme, host))
        return {"username": found[0], "password": token.decode()}

    async def _ssh(self, workspace_id: str, owner_user_id: str, question: Message) -> Message:
        """Return what `sshd` needs. Without a host key, the workspace makes one and asks again with it."""
        async with self.database.transaction() as tx:
            keys = await ssh_keys.keys_of(tx, owner_user_id)
            if not keys:
                raise Conflict(NO_KEYS)
            host_key = await ssh_keys.host_key(tx, workspace_id)
            match question:
                case {"private_key": str(private), "public_key": str(public)} if host_key is None:
                    host_key = await keep_host_key(tx, workspace_id, owner_user_id, private, public, self.clock())
        return {
            "host_key": None if host_key is None else host_key.private_key,
            "authorized_keys": [key.public_key for key in keys],
        }

    async def _identities(self, owner_user_id: str) -> Message:
        async with self.database.transaction() as tx:
            found = await user_setup.git_key(tx, owner_user_id)
        if found is None:
            return {"keys": []}
        return {"keys": [{"blob": git_keys.blob_of(found[0].public_key), "comment": "codehub"}]}

    async def _sign(self, owner_user_id: str, question: Message) -> Message:
        async with self.database.transaction() as tx:
            found = await user_setup.git_key(tx, owner_user_id)
        if found is None:
            raise Denied("you have no git key at CodeHub any more")
        try:
            data = base64.b64decode(str(question.get("data", "")), validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("what is to be signed is not base64") from None
        if len(data) > _LONGEST_SIGNED:
            raise Invalid("what is to be signed is too long")
        private = self.box().open(found[1], key_context(owner_user_id))
        return {"signature": git_keys.sign(private, str(question.get("blob", "")), data)}

    async def _devcontainer(self, workspace_id: str, question: Message) -> Message:
        async with self.database.transaction() as tx:
            workspace = await setup_links.workspace(tx, workspace_id)
            assert workspace is not None
            owned = {secret.name for secret in await user_setup.secrets_of(tx, workspace.owner_user_id)}
        folder, home = str(question.get("folder", "")), str(question.get("home", ""))
        try:
            found = parse_devcontainer(
                str(question.get("text", "")),
                containers=self.runs(workspace.instance_backend) is Runs.IMAGE,
                folder=folder,
                home=home,
                workspace_id=workspace_id,
            )
        except Invalid as error:
            return {"error": str(error)}
        return devcontainer_message(found, owned)


def _lost_secrets(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"These secrets cannot be decrypted, because CodeHub's key has changed: {', '.join(names[:_MOST_NAMED])}{more}. "
        "Enter them again with `codehub secrets set` or on your account page, or ask an administrator for the old key."
    )


def devcontainer_message(found: DevContainer, owned_secrets: Set[str] = frozenset()) -> dict[str, object]:
    """Return the part that the workspace applies. The coordinator applies images (`control/dev_images.py`)."""
    missing = [(f"secrets.{name}", Unsupported.MISSING) for name in found.secrets if name not in owned_secrets]
    ignored = [[key, str(reason)] for key, reason in (*found.ignored, *missing)]
    return {
        "env": dict(found.env),
        "commands": [_command(command) for command in found.commands],
        "extensions": list(found.extensions),
        "settings": dict(found.settings),
        "ports": list(found.ports),
        "port_labels": {str(port): label for port, label in found.port_labels.items()},
        "ignored": ignored,
    }


def _command(command: Command) -> Mapping[str, object]:
    name = f"{command.when.value}: {command.name}" if command.name else command.when.value
    return {
        "name": name,
        "when": "create" if command.when.once_per_home else "start",
        "shell": command.shell or None,
        "words": list(command.words) or None,
        "group": command.when.value if command.name else "",
    }


def _template_commands(workspace: Workspace) -> list[Mapping[str, object]]:
    """Return the setup commands of the template, which run once per home. Parameters are in their environment."""
    setup = workspace.template.setup if workspace.template is not None else ()
    return [{"name": command, "when": "create", "shell": command} for command in setup]


def secret_context(user_id: str, name: str) -> str:
    return f"user_secrets/{user_id}/{name}"


def credential_context(user_id: str, scheme: str, host: str) -> str:
    return f"git_credentials/{user_id}/{scheme}://{host}"


def key_context(user_id: str) -> str:
    return f"git_keys/{user_id}"
