"""The effective settings of a command: its environment, completed by those of a running `codehub up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codehub.data_dir import holder, read_environment
from codehub.domain.errors import Invalid
from codehub.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    settings: Settings
    # Whether an `up` is running on the data directory.
    running: bool

    def require_database(self) -> str:
        if not self.settings.database_url:
            raise Invalid(
                f"no database: no CodeHub is running in {self.settings.data_dir}, and CODEHUB_DATABASE_URL is not set. "
                "Start one with `codehub up`, or set CODEHUB_DATABASE_URL."
            )
        return self.settings.database_url


def effective_settings(environment: Mapping[str, str]) -> EffectiveSettings:
    """Return the settings of the environment, completed by those of the `up` that runs on the same data directory."""
    configured = load_settings(environment)
    running = holder(configured.data_dir) is not None
    if not running:
        return EffectiveSettings(configured, running=False)
    return EffectiveSettings(load_settings({**read_environment(configured.data_dir), **environment}), running=True)
