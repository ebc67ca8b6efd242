"""List and watch against a real API server: resumed without a list, listed again on 410, across restarts of the server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from codehub.adapters.kubernetes import watch
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.errors import AlreadyExists, Forbidden, InvalidObject
from codehub.adapters.kubernetes.kubeconfig import find_access
from codehub.adapters.kubernetes.manifests import HomeClaim, home_claim
from codehub.domain.errors import BackendDown, Conflict
from testing.codehub.kubernetes import TIMEOUT_S, Node, admin_client

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def claim(cluster: Cluster, workspace_id: str) -> dict[str, Any]:
    """The cheapest object there is: nothing happens to a claim that no pod uses."""
    what = HomeClaim(
        f"claim-{workspace_id}",
        cluster.installation_id,
        workspace_id,
        "inc",
        None,
        "1Mi",
        "codehub-test",
        "ReadWriteOnce",
    )
    return home_claim(what)


async def test_what_is_created_changed_and_deleted_is_seen_with_one_list(cluster: Cluster) -> None:
    claims = cluster.claims
    assert await claims.objects() == {}
    async with asyncio.timeout(TIMEOUT_S):
        hints = aiter(claims.changes())
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.sleep(0)
        made = await cluster.client.create(cluster.claims_path, claim(cluster, "w1"))
        assert await heard == "w1"
        uid = made["metadata"]["uid"]
        path = f"{cluster.claims_path}/claim-w1"
        await cluster.client.patch(path, {"metadata": {"uid": uid, "annotations": {"x": "1"}}})
        assert await claims.wait_until(
            lambda: (one := claims.get(uid)) is not None and "x" in one.meta.annotations, 60
        )
        assert await cluster.client.delete(path, uid)
        assert await claims.wait_until(lambda: claims.get(uid) is None, TIMEOUT_S)
    assert claims.lists == 1
    assert await claims.workspaces() == {}


async def test_preconditions_are_the_fence(cluster: Cluster) -> None:
    first = await cluster.client.create(cluster.claims_path, claim(cluster, "w1"))
    with pytest.raises(AlreadyExists):
        await cluster.client.create(cluster.claims_path, claim(cluster, "w1"))
    path = f"{cluster.claims_path}/claim-w1"
    assert not await cluster.client.delete(path, str(uuid.uuid4())), "another uid is another object"
    with pytest.raises(Conflict):
        await cluster.client.patch(path, {"metadata": {"uid": str(uuid.uuid4()), "annotations": {"x": "1"}}})
    assert await cluster.client.get(path) is not None
    assert await cluster.client.delete(path, first["metadata"]["uid"])
    async with asyncio.timeout(TIMEOUT_S):
        while await cluster.client.get(path) is not None:
            await asyncio.sleep(0.05)
    assert not await cluster.client.delete(path, first["metadata"]["uid"]), "gone is gone"


async def test_the_servers_own_words_are_kept(cluster: Cluster, namespace: str) -> None:
    wrong = claim(cluster, "w1")
    wrong["spec"]["accessModes"] = ["Sometimes"]
    with pytest.raises(InvalidObject, match="Sometimes"):
        await cluster.client.create(cluster.claims_path, wrong)
    nobody = ApiClient(
        replace(find_access(os.environ, namespace=namespace), client_certificate=None, client_key=None)
    )
    unknown = Cluster(nobody, "x")
    try:
        with pytest.raises(Forbidden, match="system:anonymous"):
            await nobody.list_all(cluster.pods_path)
        with pytest.raises(BackendDown, match="system:anonymous"):
            await unknown.pods.objects()
    finally:
        await unknown.close()
    stranger = ApiClient(replace(nobody.access, token="never-issued"))
    try:
        with pytest.raises(BackendDown, match="refuses CodeHub's credentials"):
            await stranger.list_all(cluster.pods_path)
    finally:
        await stranger.close()


async def test_a_forgotten_resource_version_costs_one_list_and_loses_nothing(cluster: Cluster, node: Node) -> None:
    claims = cluster.claims
    await claims.objects()
    for number in range(3):
        await cluster.client.create(cluster.claims_path, claim(cluster, f"w{number}"))
    assert await claims.wait_until(lambda: len(claims.known_of("w2")) == 1, TIMEOUT_S)
    # As after a day without a connection: the server no longer has the version that the watch would resume from. A server
    # that has just started has only what came after its start.
    await claims.close()
    claims._version = "1"
    await asyncio.to_thread(node.program, "kill", "apiserver")
    await asyncio.to_thread(node.program, "start", "apiserver")
    await asyncio.to_thread(node.wait_api)
    await cluster.client.create(cluster.claims_path, claim(cluster, "w3"))
    await claims.objects()
    assert await claims.wait_until(lambda: len(claims.known_of("w3")) == 1, TIMEOUT_S)
    assert sorted(await claims.workspaces()) == ["w0", "w1", "w2", "w3"]
    assert claims.lists == 2


# A TLS handshake that a dying server breaks off leaves its socket to the garbage collector, in anyio.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_api_server_that_restarts_is_unknown_for_a_while_and_then_resumed(
    cluster: Cluster, node: Node, namespace: str
) -> None:
    claims = cluster.claims
    await claims.objects()
    await cluster.client.create(cluster.claims_path, claim(cluster, "w1"))
    assert await claims.wait_until(lambda: bool(claims.known_of("w1")), TIMEOUT_S)
    await asyncio.to_thread(node.program, "kill", "apiserver")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while await _answers(cluster):
                await asyncio.sleep(0.05)
        with pytest.raises(BackendDown):
            await cluster.ping()
    finally:
        await asyncio.to_thread(node.program, "start", "apiserver")

    await asyncio.to_thread(node.wait_api)
    async with asyncio.timeout(TIMEOUT_S):
        while not await _answers(cluster):
            await asyncio.sleep(0.1)
    other = admin_client(namespace)
    try:
        await other.create(cluster.claims_path, claim(cluster, "w2"))
    finally:
        await other.close()
    assert await claims.wait_until(lambda: bool(claims.known_of("w2")), TIMEOUT_S)
    assert sorted(await claims.workspaces()) == ["w1", "w2"]


async def _answers(cluster: Cluster) -> bool:
    try:
        await cluster.claims.objects()
    except BackendDown:
        return False
    return True


async def test_many_objects_are_listed_in_pages_and_watched_without_another_list(cluster: Cluster) -> None:
    async def create(start: int) -> None:
        for number in range(start, start + 10):
            await cluster.client.create(cluster.claims_path, claim(cluster, f"w{number}"))

    await asyncio.gather(*(create(start) for start in range(0, 50, 10)))
    cluster.client.page = 20
    assert len(await cluster.claims.objects()) == 50
    await create(50)
    assert await cluster.claims.wait_until(lambda: bool(cluster.claims.known_of("w59")), TIMEOUT_S)
    assert cluster.claims.lists == 1


@contextlib.asynccontextmanager
async def cut_line(server: str) -> AsyncIterator[tuple[int, Callable[[], int]]]:
    """Yield a port that leads to the API server, and a function that aborts the connections through it."""
    host, port = server.removeprefix("https://").split(":")
    open_now: set[asyncio.StreamWriter] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(host, int(port))
        pair = {writer, ours}
        open_now.update(pair)
        try:
            await asyncio.gather(pump(reader, ours), pump(theirs, writer))
        finally:
            open_now.difference_update(pair)
            for one in pair:
                one.close()

    def cut() -> int:
        number = len(open_now)
        for one in list(open_now):
            one.transport.abort()
        return number

    relay = await asyncio.start_server(carry, "127.0.0.1", 0)
    async with relay:
        yield relay.sockets[0].getsockname()[1], cut


def _knows(cluster: Cluster, workspace_id: str) -> bool:
    return bool(cluster.claims.known_of(workspace_id))


async def test_dropped_connections_are_resumed_without_a_list_and_lose_nothing(
    cluster: Cluster, namespace: str
) -> None:
    access = admin_client(namespace).access
    async with cut_line(access.server) as (port, cut):
        far = Cluster(
            ApiClient(replace(access, server=f"https://127.0.0.1:{port}")), cluster.installation_id, lambda: 0.5
        )
        try:
            assert await far.claims.objects() == {}
            for number in range(6):
                # Seen: the watch is connected, so that it is the one which is cut, and not a handshake.
                await cluster.client.create(cluster.claims_path, claim(cluster, f"w{number}"))
                seen = functools.partial(_knows, far, f"w{number}")
                assert await far.claims.wait_until(seen, TIMEOUT_S)
                assert cut() > 0
            assert far.claims.lists == 1
        finally:
            await far.close()


async def test_a_slow_listener_is_told_to_look_at_everything_and_stops_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MOST_HINTS", 3)
    claims = cluster.claims
    await claims.objects()
    slow = aiter(claims.changes())
    first = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0)
    for number in range(8):
        await cluster.client.create(cluster.claims_path, claim(cluster, f"w{number}"))
    assert await claims.wait_until(lambda: len(claims.known_of("w7")) == 1, TIMEOUT_S), "the table goes on"
    assert await first == "w0"
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(BackendDown, match="a full resync is needed"):
            [hint async for hint in slow]
    assert len(await claims.workspaces()) == 8
    assert claims.lists == 1


async def test_bookmarks_move_the_version_while_nothing_of_ours_changes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server sends one before it ends a watch.
    monkeypatch.setattr(watch, "_WATCH_S", 5)
    claims = cluster.claims
    await claims.objects()
    before = claims._version
    other = Cluster(cluster.client, f"test-{uuid.uuid4()}")
    async with asyncio.timeout(TIMEOUT_S):
        while claims._version == before:
            await cluster.client.create(cluster.claims_path, claim(other, f"o{uuid.uuid4().hex[:8]}"))
            await asyncio.sleep(0.5)
    assert claims.events == 0, "no object of ours"
    assert claims.lists == 1
