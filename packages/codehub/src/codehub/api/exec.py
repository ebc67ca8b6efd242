"""Commands in a workspace: run one and get its output, or start one and refer to it later by its id."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from codehub.api.context import Ctx, Who
from codehub.api.forwarding import Wake, forward, passed_on
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Wire
from codehub.api.views import View

router = api_router("exec")

_JSON = {"Content-Type": "application/json"}
Command = Annotated[
    list[str] | str,
    Field(description="A list of arguments, or a line for the user's shell.", min_length=1),
]


class ProcessCreate(Wire):
    command: Command
    cwd: str | None = Field(None, description="Relative to the home.")
    env: dict[str, str] = Field(default_factory=dict)
    stdin: str | None = None


class ExecCreate(ProcessCreate):
    timeout_s: float | None = Field(None, gt=0, le=604_800, description="End it after this many seconds.")
    wait: bool = Field(True, description="Answer when it has ended; otherwise immediately, with its id.")
    kill_on_disconnect: bool = Field(False, description="End it when the caller disconnects.")


class SignalSend(Wire):
    signal: Annotated[str, Field(pattern="^[A-Z0-9]{1,16}$")] = "TERM"


class ExecResult(View):
    exit_code: int | None = Field(description="128 + n for signal n; null while it runs or when that is not known.")
    stdout: str = Field(description="Head and tail, when it is long.")
    stderr: str
    truncated: bool = Field(description="Whether something was left out; the full log is a file in the workspace.")
    process_id: str
    state: Literal["running", "exited", "lost"]


class ProcessView(View):
    id: str
    kind: Literal["exec", "process"]
    command: str
    state: Literal["running", "exited", "lost"]
    exit_code: int | None
    started_at: datetime
    cpu_percent: float = Field(description="Of one core, over the last minute.")
    log: str = Field(description="The file in the workspace that holds its full output.")


class ProcessList(View):
    items: list[ProcessView]


def _model(model: Any, status: int = 200, description: str = "The workspace's answer.") -> dict[int | str, Any]:
    return {status: {"model": model, "description": description}}


@router.post(
    "/workspaces/{workspace_id}/exec",
    response_class=Response,
    responses={**_model(ExecResult), **signed_in(404, 409, 413, 429, 502)},
)
async def exec_command(
    workspace_id: str, body: ExecCreate, request: Request, ctx: Ctx, who: Who, wake: Wake = True
) -> Response:
    """Run a command.

    With `Accept: application/x-ndjson`, output is streamed: `{stream, data}` lines, then `{exit_code}`. The command
    continues if the caller disconnects, unless `kill_on_disconnect` is set.
    """
    return await forward(
        ctx,
        who,
        workspace_id,
        "POST",
        "/exec",
        wake=wake,
        headers=_JSON | passed_on(request, "accept"),
        body=body.model_dump_json().encode(),
    )


@router.get(
    "/workspaces/{workspace_id}/processes",
    response_class=Response,
    responses={**_model(ProcessList), **signed_in(404, 409, 429, 502)},
)
async def list_processes(workspace_id: str, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """List processes started by exec or as a process, running and finished, oldest first."""
    return await forward(ctx, who, workspace_id, "GET", "/processes", wake=wake)


@router.post(
    "/workspaces/{workspace_id}/processes",
    status_code=201,
    response_class=Response,
    responses={**_model(ProcessView, 201), **signed_in(404, 409, 413, 429, 502)},
)
async def start_process(workspace_id: str, body: ProcessCreate, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """Start a long-running process. Standard output and error are one stream, stored in a file."""
    raw = body.model_dump_json().encode()
    return await forward(ctx, who, workspace_id, "POST", "/processes", wake=wake, headers=_JSON, body=raw)


@router.get(
    "/workspaces/{workspace_id}/processes/{process_id}",
    response_class=Response,
    responses={**_model(ProcessView), **signed_in(404, 409, 429, 502)},
)
async def get_process(workspace_id: str, process_id: str, ctx: Ctx, who: Who) -> Response:
    """Get a process. Never wakes the workspace: a process does not survive its sleep."""
    return await forward(ctx, who, workspace_id, "GET", f"/processes/{_id(process_id)}", wake=False)


@router.get(
    "/workspaces/{workspace_id}/processes/{process_id}/output",
    response_class=Response,
    responses={
        200: {"description": "Its output from `after` on.", "content": {"application/octet-stream": {}}},
        **signed_in(404, 409, 429, 502),
    },
)
async def process_output(
    workspace_id: str,
    process_id: str,
    ctx: Ctx,
    who: Who,
    after: Annotated[int, Query(ge=0, description="How many bytes of it you already have.")] = 0,
    follow: Annotated[bool, Query(description="Keep the stream open until the process ends.")] = False,
    stream: Annotated[Literal["stdout", "stderr"], Query()] = "stdout",
) -> Response:
    """Get a process's output, from any byte on without gaps. Never wakes the workspace."""
    target = f"/processes/{_id(process_id)}/output?after={after}&follow={int(follow)}&stream={stream}"
    return await forward(ctx, who, workspace_id, "GET", target, wake=False)


@router.post(
    "/workspaces/{workspace_id}/processes/{process_id}/signal",
    status_code=204,
    response_class=Response,
    responses=signed_in(404, 409, 413, 429, 502),
)
async def signal_process(workspace_id: str, process_id: str, body: SignalSend, ctx: Ctx, who: Who) -> Response:
    """Send a signal to a process and its children."""
    raw = body.model_dump_json().encode()
    target = f"/processes/{_id(process_id)}/signal"
    return await forward(ctx, who, workspace_id, "POST", target, wake=False, headers=_JSON, body=raw)


def _id(text: str) -> str:
    """Check that the id is hexadecimal, so that it cannot change the path."""
    return text if text.isalnum() and text.isascii() else "none"
