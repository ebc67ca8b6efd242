"""A whole CodeHub for browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.ports import free_ports


@contextmanager
def browser_stack(**environment: str) -> Iterator[Stack]:
    """Yield a CodeHub that is up, with an IDE that starts at once and a known password.

    Its ports stay the same after a restart, and no other CodeHub on this machine has them.
    """
    with fresh_stack() as made:
        made.with_tiny_ide()
        api, proxy = free_ports(2)
        made.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
            "LIMITS_MAX_RUNNING_PER_USER": "20",
            "LIMITS_MAX_RUNNING_GLOBAL": "20",
            **environment,
        }
        made.up()
        yield made


@contextmanager
def code_server_stack() -> Iterator[Stack]:
    """Yield a CodeHub that is up, with the real code-server installed once for all tests. Its ports stay the same."""
    installed_code_server()
    api, proxy = free_ports(2)
    with fresh_stack() as made:
        (made.data_dir / "ide").symlink_to(IDE_DIR)
        made.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
        }
        made.up()
        yield made
