"""What API and coordinator both need of the settings for users' secrets and git servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from codehub.adapters.secret_box import SecretBox, open_box
from codehub.domain.errors import Invalid
from codehub.settings import Settings


def secret_box(settings: Settings) -> Callable[[], SecretBox]:
    """Open the secret box on first use: an installation without secrets needs no key."""
    return cache(lambda: open_box(settings.secrets_key, settings.data_dir, settings.secrets_key_file))


def git_ca_of(settings: Settings) -> str:
    if settings.git_ca_file is None:
        return ""
    try:
        return settings.git_ca_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"CODEHUB_GIT_CA_FILE: {settings.git_ca_file} cannot be read: {error}") from error
