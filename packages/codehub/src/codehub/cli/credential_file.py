"""Settings that systemd hands over as a credential (`LoadCredential=codehub.env:…`) instead of in the environment.

A unit's environment is shown by `systemctl show` and inherited by whatever it starts; a credential is a file that only
this unit can read.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from codehub.domain.errors import Invalid

_NAME = "codehub.env"


def load_credentials(environment: MutableMapping[str, str]) -> None:
    """Add what the credential says to the environment, which wins where both say something."""
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
    """As systemd reads an EnvironmentFile: NAME=VALUE lines, quotes around a value taken off."""
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
