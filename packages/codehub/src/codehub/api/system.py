"""Health and metrics, under any host name and without authentication."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Literal

from fastapi import Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from codehub.api.context import Ctx, principal_or_none
from codehub.api.openapi import may_answer
from codehub.api.router import root_router
from codehub.api.views import View
from codehub.domain.errors import Unavailable
from codehub.services.system import leadership

router = root_router("system", in_schema=True)

# A load balancer that waits longer has usually given up.
_READY_WITHIN_S = 3.0


class Health(View):
    status: Literal["ok"] = "ok"


class LeaderView(View):
    holder_id: str
    epoch: int
    acquired_at: datetime | None


class ComponentView(View):
    last_tick_at: datetime | None
    last_error: str | None


class RefusalView(View):
    node_id: str
    reason: str | None


class CoordinatorHealth(View):
    is_leader: bool
    node_id: str
    uptime_seconds: float
    leader: LeaderView | None
    components: dict[str, ComponentView]
    refuses_to_lead: list[RefusalView]


@router.get("/health", responses=may_answer())
async def health() -> Health:
    """The process is running."""
    return Health()


@router.get("/health/ready", responses=may_answer())
async def ready(ctx: Ctx) -> Health:
    """The database answers and accepts writes, so requests can be served."""
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            await ctx.deps.database.take_writes()
    except TimeoutError as error:
        raise Unavailable("the database does not answer") from error
    return Health()


@router.get("/health/coordinator", responses=may_answer())
async def coordinator(ctx: Ctx, request: Request) -> CoordinatorHealth:
    """Which coordinator leads, how its components are doing, and which coordinators refuse to lead.

    Errors and reasons are shown to administrators only.
    """
    who = await principal_or_none(request)
    found = await leadership(ctx.deps.database, ctx.config.lock_id)
    may_see = who is not None and who.is_admin
    return CoordinatorHealth(
        is_leader=found.held and found.holder_id == ctx.config.node_id,
        node_id=ctx.config.node_id,
        uptime_seconds=round(ctx.deps.monotonic() - ctx.begun, 3),
        leader=LeaderView(holder_id=found.holder_id, epoch=found.epoch, acquired_at=found.acquired_at)
        if found.held
        else None,
        components={
            name: ComponentView(
                last_tick_at=seen.get("last_tick_at"), last_error=seen.get("last_error") if may_see else None
            )
            for name, seen in found.components.items()
        },
        refuses_to_lead=[
            RefusalView(node_id=node_id, reason=why if may_see else None) for node_id, why in found.refusals.items()
        ],
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **may_answer(),
    },
)
async def metrics(ctx: Ctx) -> Response:
    """Prometheus metrics."""
    return Response(generate_latest(ctx.metrics.registry), media_type=CONTENT_TYPE_LATEST)
