"""The database as the services are given it. Entry points pass it on; what is in it is the services' business."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database, Transaction

__all__ = ["Database", "Transaction"]
