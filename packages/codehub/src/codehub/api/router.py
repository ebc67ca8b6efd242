"""Routers of the API. Each route has its full path, so that an app can use it as it is.

`FastAPI.include_router` would build every route a second time, with all its schemas, for each app.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from codehub.api.json_bodies import JsonRoute

PREFIX = "/api/v1"


def api_router(tag: str, *, in_schema: bool = True) -> APIRouter:
    return APIRouter(
        prefix=PREFIX,
        tags=[tag],
        include_in_schema=in_schema,
        generate_unique_id_function=_operation_id,
        route_class=JsonRoute,
    )


def root_router(tag: str = "", *, in_schema: bool = False) -> APIRouter:
    """Return a router without the API's prefix, for pages and for what monitoring reads."""
    return APIRouter(
        tags=[tag] if tag else [], include_in_schema=in_schema, generate_unique_id_function=_operation_id
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
