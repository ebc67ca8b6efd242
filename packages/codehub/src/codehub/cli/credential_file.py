"""Settings that systemd passes as a credential (`LoadCredential=codehub.env:…`) instead of in the environment.

`systemctl show` reveals a unit's environment, and child processes inherit it; a credential is a file that only this unit
can read.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from codehub.domain.errors import Invalid

_NAME = "codehub.env"


def load_credentials(environment: MutableMapping[str, str]) -> None:
    """Add the credential's settings to the environment. Existing variables take precedence."""
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if not directory:
        return
    path = Path(directory, _NAME)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from error
    for name, value in _assignments(text, path):
        environment.setdefault(name, value)


def _assignments(text: str, path: Path) -> list[tuple[str, str]]:
    """Parse like a systemd EnvironmentFile: NAME=VALUE lines, without quotes around values."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"{path}, line {number}: expected NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found.append((name.strip(), value))
    return found
