"""Files of a workspace's home: read, list, write, remove, edit; whole folders as tar."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query
from pydantic import Field
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from codehub.api.context import Ctx, Who
from codehub.api.forwarding import Wake, body_of, forward, passed_on
from codehub.api.openapi import signed_in
from codehub.api.router import PREFIX, api_router
from codehub.api.schemas import Wire
from codehub.api.views import View
from codehub.domain.errors import Invalid

router = api_router("files")


class _AnyPath(PathConvertor):
    """A path with any character; Starlette's own has no line feeds."""

    regex = "(?s:.*)"


register_url_convertor("any_path", _AnyPath())
_ONE = "/workspaces/{workspace_id}/files/{path:any_path}"
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file; a tar of a folder; or, with `list`, its entries as JSON.",
        "content": {"application/octet-stream": {}, "application/x-tar": {}, "application/json": {}},
    },
    206: {"description": "The requested range.", "content": {"application/octet-stream": {}}},
}


class FileEdit(Wire):
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    old: Annotated[str, Field(min_length=1)]
    new: str
    expected_count: Annotated[int, Field(ge=1)] = 1


class EditResult(View):
    path: str
    count: int


@router.get(_ONE, response_class=Response, responses={**_CONTENT, **signed_in(404, 409, 429, 502)})
async def read_file(
    workspace_id: str,
    path: str,
    request: Request,
    ctx: Ctx,
    who: Who,
    list: Annotated[bool, Query(description="A folder's entries instead of its content.")] = False,
    depth: Annotated[int, Query(ge=1, le=32)] = 1,
    after: Annotated[str, Query(description="`next` of a list that was too long: go on after this name.")] = "",
    download: Annotated[bool, Query(description="Have a browser save it under its own name.")] = False,
    wake: Wake = True,
) -> Response:
    """Read a file (optionally a range) or a folder as tar, or list a folder with `list=1`."""
    target = _target(request) + (f"?list=1&depth={depth}&after={quote(after, safe='')}" if list else "")
    name = path.rstrip("/").rpartition("/")[2] or "home"
    disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    extra = {"content-disposition": disposition} if download else None
    headers = passed_on(request, "range", "accept")
    return await forward(ctx, who, workspace_id, "GET", target, wake=wake, headers=headers, extra=extra)


@router.put(
    _ONE,
    response_class=Response,
    responses={200: {"description": "Replaced."}, 201: {"description": "Made."}, **signed_in(404, 409, 429, 502)},
)
async def write_file(
    workspace_id: str,
    path: str,
    request: Request,
    ctx: Ctx,
    who: Who,
    mode: Annotated[str | None, Query(pattern="^[0-7]{3,4}$", description="Octal.")] = None,
    wake: Wake = True,
) -> Response:
    """Write a file, or unpack a tar into a folder (`Content-Type: application/x-tar`). Atomic."""
    target = _target(request) + (f"?mode={mode}" if mode else "")
    headers = passed_on(request, "content-type", "content-length")
    body = body_of(request)
    return await forward(ctx, who, workspace_id, "PUT", target, wake=wake, headers=headers, body=body)


@router.delete(_ONE, status_code=204, response_class=Response, responses=signed_in(404, 409, 429, 502))
async def remove_file(
    workspace_id: str,
    path: str,
    request: Request,
    ctx: Ctx,
    who: Who,
    recursive: Annotated[bool, Query(description="A folder with everything in it.")] = False,
    wake: Wake = True,
) -> Response:
    """Remove a file or an empty folder; with `recursive`, any folder."""
    target = _target(request) + ("?recursive=1" if recursive else "")
    return await forward(ctx, who, workspace_id, "DELETE", target, wake=wake)


@router.post(
    "/workspaces/{workspace_id}/files:edit",
    response_class=Response,
    responses={200: {"model": EditResult, "description": "Replaced."}, **signed_in(404, 409, 413, 429, 502)},
)
async def edit_file(workspace_id: str, body: FileEdit, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """Replace a text that occurs exactly `expected_count` times. Otherwise, the answer is 409 and nothing changes."""
    raw = body.model_dump_json().encode()
    headers = {"Content-Type": "application/json"}
    return await forward(ctx, who, workspace_id, "POST", "/files:edit", wake=wake, headers=headers, body=raw)


def _target(request: Request) -> str:
    """Return the path as sent: names are bytes, and decoding them twice would change some names."""
    raw: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    before = f"{PREFIX}/workspaces/{request.path_params['workspace_id']}/files/".encode()
    if not raw.startswith(before):
        raise Invalid("the address up to /files/ must not be percent-encoded")
    return "/files/" + raw.removeprefix(before).decode("ascii", "replace")
