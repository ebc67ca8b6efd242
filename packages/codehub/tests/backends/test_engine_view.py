"""The view of the Docker engine that API and proxy get, attacked as a compromised proxy would."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from codehub.adapters.docker.engine import INSTALLATION, Engine
from codehub.adapters.embedded.account import Account
from codehub.cli.stack.engine_view import EngineView, engine_view, question_of
from codehub.domain.errors import CodeHubError
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.services import service_dir

OURS, OTHERS = "installation-one", "installation-two"


def _head(target: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return f"{method} {target} {version}\r\nHost: docker\r\n\r\n".encode()


@pytest.mark.parametrize(
    "head",
    [
        _head("/containers/create", "POST"),
        _head("/v1.43/containers/codehub-ws-1/start", "POST"),
        _head("/containers/codehub-ws-1", "DELETE"),
        _head("/containers/codehub-ws-1/archive?path=/"),
        _head("/containers/codehub-ws-1/export"),
        _head("/containers/codehub-ws-1/attach/ws"),
        _head("/containers/json"),
        _head("/containers/json?filters=" + quote('{"label": ["other=1"]}')),
        _head("/containers/json?filters=" + quote(f'{{"label": ["{INSTALLATION}={OURS}"]}}') + "&filters={}"),
        # The engine takes the first, which is no filter.
        _head("/containers/json?filters=&filters=" + quote(f'{{"label": ["{INSTALLATION}={OURS}"]}}')),
        _head("/events?filters=&filters=" + quote(f'{{"label": ["{INSTALLATION}={OURS}"]}}')),
        _head("/events"),
        _head("/images/../containers/json"),
        _head("/images/%2e%2e/containers/x/archive/json"),
        _head("/v1.43/v1.43/containers/create"),
        _head("//containers/x/json"),
        _head("http://docker/containers/x/archive"),
        _head("/volumes"),
        _head("/secrets"),
        _head("/version", version="HTTP/1.0"),
        b"GET /version\r\n\r\n",
        b"GET  /version HTTP/1.1\r\n\r\n",
        b"GET /version\x00 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_could_change_or_leak_something_is_refused(head: bytes) -> None:
    assert question_of(head, OURS) is None


def test_questions_about_the_installations_own_containers_pass() -> None:
    ours = quote(json.dumps({"label": [f"{INSTALLATION}={OURS}"]}))
    for target in ("/version", "/v1.43/_ping", "/v1.43/images/codehub/ide:1/json", f"/events?filters={ours}"):
        found = question_of(_head(target), OURS)
        assert found is not None, target
        assert found.container is None
    found = question_of(_head("/v1.43/containers/codehub-ws-7/logs?follow=true"), OURS)
    assert found is not None
    assert found.container == "codehub-ws-7"


@pytest.fixture
async def view(docker_engine: DockerEngine) -> AsyncIterator[str]:
    account = Account(os.geteuid(), os.getegid(), switched=False)
    async with engine_view(docker_engine.host, OURS, service_dir(), account) as host:
        yield host


@pytest.mark.needs("docker", "root")
@pytest.mark.xdist_group("docker")
async def test_the_view_shows_own_containers_and_neither_others_nor_a_way_to_change_anything(
    docker_engine: DockerEngine, view: str
) -> None:
    direct = Engine(docker_engine.host, OURS)
    engine = Engine(view, OURS)
    names = {}
    try:
        for owner in (OURS, OTHERS):
            names[owner] = f"view-{owner}-{os.getpid()}"
            body = {"Image": TINY_IMAGE, "Labels": {INSTALLATION: owner}, "Env": ["SECRET=of " + owner]}
            await direct.send("POST", "containers/create", body, params={"name": names[owner]})
        await engine.ping()
        found = await engine.get(f"containers/{names[OURS]}/json")
        assert found["Config"]["Labels"][INSTALLATION] == OURS
        assert await engine.get(f"containers/{names[OTHERS]}/json") is None
        # Neither by its id, which does not show whose it is.
        foreign = (await direct.get(f"containers/{names[OTHERS]}/json"))["Id"]
        assert await engine.get(f"containers/{foreign}/json") is None
        listed = await engine.get(
            "containers/json", all="true", filters=json.dumps({"label": [f"{INSTALLATION}={OURS}"]})
        )
        assert [each["Names"] for each in listed] == [[f"/{names[OURS]}"]]
        for method, path in (("POST", f"containers/{names[OURS]}/start"), ("POST", "containers/create")):
            with pytest.raises(CodeHubError):
                await engine.send(method, path, {})
        assert (await direct.get(f"containers/{names[OURS]}/json"))["State"]["Status"] == "created"
        # A second request behind an allowed one never reaches the engine.
        reader, writer = await asyncio.open_unix_connection(view.removeprefix("unix://"))
        start = f"POST /containers/{names[OURS]}/start HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n"
        writer.write(_head("/version") + start.encode())
        await reader.read()
        writer.close()
        assert (await direct.get(f"containers/{names[OURS]}/json"))["State"]["Status"] == "created"
    finally:
        for name in names.values():
            await direct.remove(f"containers/{name}", force="true")
        await engine.close()
        await direct.close()


async def test_an_engine_that_does_not_answer_is_not_taken_for_a_missing_container(tmp_path: Path) -> None:
    view = EngineView(str(tmp_path / "no.sock"), OURS)
    assert (await view._refused("codehub-ws-1")).startswith(b"HTTP/1.1 502 ")
