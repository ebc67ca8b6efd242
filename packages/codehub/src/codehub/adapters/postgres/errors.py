"""Translates the driver's errors into ours. No other module does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from codehub.domain.errors import BackendDown, Conflict, Invalid, Transient


class WritesRefused(BackendDown):
    """Raised when the server answers but is read-only (a standby or an administrator's setting) or its disk is full."""


class ReadOnlySession(WritesRefused):
    """Raised when a session is read-only. It may stay so after the database accepts writes again: open another."""


# SQLSTATE classes which mean that the server is shutting down, gone or full, not that the statement was wrong.
_AWAY = ("08", "53", "57P", "58")
# Values that no column takes, although they have the right type here: text with NUL or half a surrogate pair, numbers and
# dates out of range. Anything else of this class is a mistake in a statement.
_NOT_A_VALUE = (
    pg.CharacterNotInRepertoire,
    pg.UntranslatableCharacter,
    pg.NumericValueOutOfRange,
    pg.DatetimeFieldOverflow,
)


@contextmanager
def translated() -> Iterator[None]:
    """Translate driver errors raised inside into BackendDown, Transient, Conflict or Invalid, chained."""
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
    except pg.ForeignKeyViolation as error:
        raise Conflict("what this belongs to was removed meanwhile: load it again") from error
    except (UnicodeEncodeError, psycopg.DataError) as error:
        # The driver itself refuses NUL, and then there is no SQLSTATE.
        if isinstance(error, psycopg.DataError) and error.sqlstate and not isinstance(error, _NOT_A_VALUE):
            raise
        raise Invalid(
            "a value cannot be stored: it has a NUL character, or is a number or a date out of range"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        state = getattr(error, "sqlstate", None)
        if state is None or state.startswith(_AWAY):
            raise BackendDown("the database does not answer") from error
        raise Transient(str(error)) from error
