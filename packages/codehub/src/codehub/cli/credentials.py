"""Which server the commands use, and its stored token: one file that only its owner can read.

In this order: `--server`, `CODEHUB_SERVER`, the server of the last sign-in, the `codehub up` on this machine. A token in
`CODEHUB_TOKEN` takes precedence over a stored one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from codehub.data_dir import may_be_held
from codehub.domain.errors import Invalid, Unavailable

DEFAULT_SERVER = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Kept:
    """The stored credentials for one server."""

    username: str
    token: str
    token_id: str = ""
    # The data directory of the CodeHub on this machine that it was created with. It is sent to no other.
    data_dir: str = ""


def normal_server(address: str) -> str:
    """`codehub.example.org` → `https://codehub.example.org`; loopback names without a scheme use http."""
    text = address.strip().rstrip("/")
    if "://" not in text:
        host = text.partition(":")[0]
        text = f"{'http' if host in ('localhost', '127.0.0.1', '[') else 'https'}://{text}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise Invalid(f"{address!r} is not a server URL; expected https://codehub.example.org")
    return f"{parts.scheme}://{parts.netloc}"


def check_reached(server: str, kept: Kept) -> None:
    """Refuse to send a token of the CodeHub on this machine to somebody else who listens at its address."""
    if kept.data_dir:
        from codehub.cli.local_installation import serves

        if not serves(Path(kept.data_dir), server):
            raise Unavailable(
                f"the CodeHub of {kept.data_dir} does not listen at {server}, so nothing is sent there.\n"
                "`codehub up` starts it; if it uses another port now, sign in with `codehub login URL`."
            )


class Credentials:
    """The credentials file, read and written as a whole. If it is damaged, the error names its path."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
        self.path = Path(base) / "codehub" / "credentials.json"

    def server(self, given: str | None) -> str:
        chosen = given or self._environment.get("CODEHUB_SERVER") or self._read().get("default")
        return normal_server(str(chosen or self._running_here() or DEFAULT_SERVER))

    def _running_here(self) -> str | None:
        """Return the address of the local CodeHub. Its port differs if the default one was in use."""
        if not may_be_held(self._environment):
            return None
        # Loading all settings takes a quarter of a second, and is only needed until the first sign-in.
        from codehub.cli.effective_settings import effective_settings

        found = effective_settings(self._environment)
        return found.settings.public_url if found.running else None

    def token(self, server: str) -> str | None:
        if given := self._environment.get("CODEHUB_TOKEN"):
            return given
        kept = self.kept(server)
        if kept is None:
            return None
        check_reached(server, kept)
        return kept.token

    def kept(self, server: str) -> Kept | None:
        servers = self._read().get("servers")
        entry = servers.get(server) if isinstance(servers, dict) else None
        if not isinstance(entry, dict):
            return None
        return Kept(
            str(entry.get("username", "")),
            str(entry.get("token", "")),
            str(entry.get("token_id", "")),
            str(entry.get("data_dir", "")),
        )

    def keep(self, server: str, kept: Kept) -> None:
        content = self._read()
        servers = content.setdefault("servers", {})
        assert isinstance(servers, dict)
        servers[server] = asdict(kept)
        content["default"] = server
        self._write(content)

    def forget(self, server: str) -> None:
        content = self._read()
        servers = content.get("servers")
        if isinstance(servers, dict):
            servers.pop(server, None)
        if content.get("default") == server:
            del content["default"]
        self._write(content)

    def _read(self) -> dict[str, object]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Invalid(f"{self.path} cannot be read ({error}); remove it and run `codehub login`") from error
        if not isinstance(content, dict):
            raise Invalid(f"{self.path} has an unknown format; remove it and run `codehub login`")
        return content

    def _write(self, content: dict[str, object]) -> None:
        """Write to a new private file, then rename it, so that a token is never half-written or readable by others."""
        import tempfile  # takes as long to import as the rest of this module, which every command needs

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".credentials.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
