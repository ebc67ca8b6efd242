"""The database as passed to the services. Entry points only pass it on."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database, Transaction

__all__ = ["Database", "Transaction"]
