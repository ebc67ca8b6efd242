"""`codehub serve api|proxy|coordinator`: runs one part of CodeHub until it is stopped.

Each part is a module that is imported when it runs, so that a proxy or a coordinator does not load the API's framework.
"""

from __future__ import annotations

import click

from codehub.cli.lazy_group import LazyGroup

_PARTS = {
    "api": ("codehub.cli.serve.api", "api", "Run the API and the dashboard on CODEHUB_API_BIND."),
    "coordinator": (
        "codehub.cli.serve.coordinator",
        "coordinator",
        "Run a coordinator. One leads, the others stand by.",
    ),
    "proxy": ("codehub.cli.serve.proxy", "proxy", "Run the workspace proxy on CODEHUB_PROXY_BIND."),
}


@click.group(cls=LazyGroup, entries=_PARTS)
def serve() -> None:
    """Run one process: api, proxy or coordinator.

    Any number of each may run against the same CODEHUB_DATABASE_URL and CODEHUB_REDIS_URL.
    """
