"""Checks for `codehub doctor` that all parts of an installation have the same key for users' secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from codehub.cli.checks import Finding, Health
from codehub.cli.effective_settings import EffectiveSettings


async def check_secrets_key(state: EffectiveSettings, env: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check only CodeHub's own Pods: elsewhere, parts may share their data directory."""
    settings = state.settings
    if settings.secrets_key or settings.secrets_key_file is not None:
        return [Finding("secrets key", Health.GOOD, "users' secrets are encrypted with the key in the settings")]
    if settings.runtime != "kubernetes" or "KUBERNETES_SERVICE_HOST" not in env or state.running:
        return []
    message = "each Pod of CodeHub has its own key: users' secrets do not reach their workspaces"
    fix = "add CODEHUB_SECRETS_KEY (openssl rand -base64 32) to the Secret codehub, and restart all parts"
    return [Finding("secrets key", Health.BAD, message, fix)]
