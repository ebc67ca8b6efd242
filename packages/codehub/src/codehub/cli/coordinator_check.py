"""Checks for `codehub doctor` which coordinator leads, and which ones refuse to."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database
from codehub.cli.checks import Finding, Health
from codehub.cli.effective_settings import EffectiveSettings
from codehub.domain.errors import CodeHubError
from codehub.services.system import leadership


async def check_coordinator(state: EffectiveSettings) -> list[Finding]:
    settings = state.settings
    if not settings.database_url:
        return []
    try:
        async with Database(settings.database_url, max_connections=1) as database:
            found = await leadership(database, settings.lock_id)
    except CodeHubError:
        return []  # a database that does not answer, or has no schema, is reported by its own check
    refusals = [
        Finding(
            "coordinator",
            Health.WARNING if found.held else Health.BAD,
            f"{node_id} refuses to lead: {why}",
            "correct its settings, or mount its disk; it checks again every few seconds",
        )
        for node_id, why in found.refusals.items()
    ]
    if found.held:
        return [Finding("coordinator", Health.GOOD, f"{found.holder_id} leads"), *refusals]
    nobody = "none leads: nothing is started, stopped or archived"
    fix = "" if refusals else "`codehub up` or `codehub serve coordinator` starts one"
    return [Finding("coordinator", Health.BAD if refusals else Health.WARNING, nobody, fix), *refusals]
