"""The API and the dashboard as one ASGI app. All dependencies are passed in as `ApiDeps`; nothing is read from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from codehub.api import (
    about,
    audit,
    diagnostics,
    events,
    exec,
    files,
    handover,
    login_links,
    ports,
    sessions,
    setup,
    ssh,
    system,
    templates,
    terminal_page,
    terminals,
    tokens,
    users,
    whoami,
    workspaces,
)
from codehub.api.config import ApiConfig, ApiDeps, api_config
from codehub.api.context import Context, make_context
from codehub.api.errors import http_error
from codehub.api.middleware import Bounded, Guarded, Logged
from codehub.api.openapi import describe
from codehub.domain.errors import CodeHubError
from codehub.web import routes as dashboard

__all__ = ["ApiConfig", "ApiDeps", "api_config", "create_app"]

_SWEEP_EVERY_S = 3600.0
_log = structlog.get_logger()


def create_app(deps: ApiDeps) -> FastAPI:
    context = make_context(deps)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        streams = asyncio.create_task(context.live.run(), name="live events")
        sweeping = asyncio.create_task(_sweep(context), name="audit retention")
        try:
            yield
        finally:
            context.leave()
            await context.terminal_program.close()
            for task in (streams, sweeping):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    app = FastAPI(
        title="CodeHub",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    app.state.connect_sources = context.config.host_checks
    # The last added is the outermost.
    app.add_middleware(Bounded)
    app.add_middleware(Guarded, config=deps.config)
    app.add_middleware(Logged, config=deps.config, metrics=context.metrics, ids=deps.ids, monotonic=deps.monotonic)
    for error in (CodeHubError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _answer)
    app.add_exception_handler(WebSocketRequestValidationError, _refuse_socket)
    for part in (
        sessions,
        tokens,
        users,
        workspaces,
        templates,
        diagnostics,
        exec,
        files,
        ports,
        terminals,
        ssh,
        setup,
        events,
        about,
        audit,
        whoami,
        login_links,
        handover,
        terminal_page,
    ):
        app.router.routes.extend(part.router.routes)
    app.router.routes.extend([*login_links.pages.routes, *system.router.routes])
    _add_openapi(app, deps.config)
    # The dashboard must be last: it matches all remaining paths.
    app.router.routes.extend([*handover.pages.routes, *terminal_page.pages.routes, *dashboard.router.routes])
    return app


async def _sweep(context: Context) -> None:
    """Remove audit events that are not kept, and old counts of failed sign-ins, every hour."""
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        try:
            await context.audit.sweep()
            await context.accounts.forget_old_failures()
        except CodeHubError as error:
            _log.warning("old audit events and failed sign-ins could not be removed", error=str(error))


def _add_openapi(app: FastAPI, config: ApiConfig) -> None:
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(describe(app, config.session_cookie, version("codehub")))
        return made

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json() -> JSONResponse:
        return JSONResponse(openapi())


async def _answer(_: Request, error: Exception) -> Response:
    return http_error(error).response()


async def _refuse_socket(socket: WebSocket, error: Exception) -> None:
    """Accept and close, like the routes: a browser cannot read why a handshake failed."""
    await socket.accept()
    await terminals.close_refused(socket, error)
