"""The base of every response schema, and the schemas that several routes respond with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorBody(View):
    code: str
    message: str


class ErrorView(View):
    error: ErrorBody


class LimitsView(View):
    max_running_per_user: int
    max_running_global: int
    max_workspaces_per_user: int = Field(description="Running or not; 0: no limit.")
