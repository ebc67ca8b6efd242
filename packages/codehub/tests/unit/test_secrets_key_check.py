"""`codehub doctor` in one of CodeHub's Pods: all of them need the same key for users' secrets."""

from __future__ import annotations

import pytest

from codehub.cli.checks import Health
from codehub.cli.effective_settings import EffectiveSettings
from codehub.cli.secrets_key_check import check_secrets_key
from codehub.settings import load_settings

_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
_CLUSTER = {"CODEHUB_RUNTIME": "kubernetes"}
_KEY = {"CODEHUB_SECRETS_KEY": "dHJpYWwtb25seS1rZXkta25vd24tdG8tZXZlcnlvbmU="}


@pytest.mark.parametrize(
    ("settings", "env", "running", "expected"),
    [
        (_CLUSTER, _POD, False, [Health.BAD]),
        (_CLUSTER | _KEY, _POD, False, [Health.GOOD]),
        (_CLUSTER | {"CODEHUB_SECRETS_KEY_FILE": "/run/key"}, _POD, False, [Health.GOOD]),
        (_CLUSTER, _POD, True, []),  # `codehub up` in one Pod: its parts share the data directory
        (_CLUSTER, {}, False, []),
        ({}, _POD, False, []),
    ],
)
async def test_pods_without_a_common_key_are_a_problem(
    settings: dict[str, str], env: dict[str, str], running: bool, expected: list[Health]
) -> None:
    found = await check_secrets_key(EffectiveSettings(load_settings(settings), running=running), env)
    assert [one.health for one in found] == expected
    assert all("CODEHUB_SECRETS_KEY" in one.fix for one in found if one.health is Health.BAD)
