"""Translates the driver's errors into ours. No other module does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from codehub.domain.errors import BackendDown, Conflict, Transient


class WritesRefused(BackendDown):
    """Raised when the server answers but is read-only (a standby or an administrator's setting) or its disk is full."""


class ReadOnlySession(WritesRefused):
    """Raised when a session is read-only. It may stay so after the database accepts writes again: open another."""


# SQLSTATE classes which mean that the server is shutting down, gone or full, not that the statement was wrong.
_AWAY = ("08", "53", "57P", "58")


@contextmanager
def translated() -> Iterator[None]:
    """Translate driver errors raised inside into BackendDown, Transient or Conflict, chained."""
    try:
        yield
    except (PoolTimeout, PoolClosed, TooManyRequests) as error:
        raise BackendDown("the database does not answer") from error
    except (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable) as error:
        raise Transient(f"the database asks to try again: {error}") from error
    except pg.ReadOnlySqlTransaction as error:
        raise ReadOnlySession(f"the database takes no writes: {error.diag.message_primary or error}") from error
    except pg.DiskFull as error:
        raise WritesRefused(f"the database takes no writes: {error.diag.message_primary or error}") from error
    except pg.UniqueViolation as error:
        raise Conflict(f"already there: {error.diag.constraint_name}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        state = getattr(error, "sqlstate", None)
        if state is None or state.startswith(_AWAY):
            raise BackendDown("the database does not answer") from error
        raise Transient(str(error)) from error
