"""Hand-over to the workspace proxy: the dashboard's side of the one-time ticket."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(include_in_schema=False)
