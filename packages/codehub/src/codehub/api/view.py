"""The base of every response schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
