"""Work that thousands of tests would repeat for nothing, done once per process.

* Each httpx client reads all certificate authorities of the machine: 20 ms of CPU. Tests share one context per kind.
* structlog without a configuration renders exceptions with rich, which highlights the source of every frame: up to 200 ms
  of CPU for a traceback that nobody reads. Tests get the same lines with Python's own traceback.
* Some machines set PYTHONDONTWRITEBYTECODE for every program: each run and each process it starts would compile all it
  imports. The Makefile unsets it too, for what it runs besides pytest.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
from typing import Any

import httpx._config
import httpx._transports.default
import structlog

# When this is imported, no test module and nothing of ours is compiled yet.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_created = httpx._config.create_ssl_context


@functools.lru_cache
def _shared(trust_env: bool) -> ssl.SSLContext:
    return _created(verify=True, cert=None, trust_env=trust_env)


def _create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    return _shared(trust_env) if verify is True and cert is None else _created(verify, cert, trust_env)


def pytest_configure() -> None:
    httpx._config.create_ssl_context = _create_ssl_context
    httpx._transports.default.create_ssl_context = _create_ssl_context  # type: ignore[attr-defined]
    _log_plainly()


def _log_plainly() -> None:
    processors = structlog.get_config()["processors"]
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors[:-1], console])
