"""Chooses host mode for `codehub up` on a laptop: each workspace at its own host below `.localhost`.

Browsers resolve `*.localhost` to this machine without DNS. Own hosts keep the pages of workspaces and ports apart.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from codehub.settings import NAMES, Settings

LOCAL_PATTERN: Final = "*.localhost"
_SETTING: Final = NAMES["CODEHUB_WORKSPACE_HOST"]


def with_own_hosts(settings: Settings) -> Settings:
    """Return the settings with host mode, unless the user chose a mode or another machine may use this CodeHub.

    Only on this machine does `*.localhost` lead here.
    """
    if _SETTING in settings.model_fields_set or not _is_local_only(settings):
        return settings
    return settings.model_copy(update={_SETTING: LOCAL_PATTERN})


def _is_local_only(settings: Settings) -> bool:
    bound = (urlsplit(f"//{bind}").hostname for bind in (settings.api_bind, settings.proxy_bind))
    return urlsplit(settings.workspace_url).hostname == "localhost" and all(
        is_loopback(host or "") for host in (*bound, urlsplit(settings.public_url).hostname)
    )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
