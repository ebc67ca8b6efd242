"""The real code-server and JupyterLab on the process runtime, and a file through stop, archive, restore and start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from codehub.adapters.backend_set import BackendOptions, BackendSet, load_catalog, open_backends
from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.domain.profiles import Runs
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from codehub.ports.instances import InstanceSpec, Upstream
from testing.codehub.contracts.homes import key
from testing.codehub.contracts.instances import until, wid
from testing.codehub.ide import IDE_DIR, installed_code_server

pytestmark = [pytest.mark.needs("bwrap"), pytest.mark.xdist_group("ide"), pytest.mark.timeout(900)]


@pytest.fixture
async def backends(tmp_path: Path) -> AsyncIterator[BackendSet]:
    installed_code_server()
    data = tmp_path / "data"
    data.mkdir()
    (data / "ide").symlink_to(IDE_DIR)
    catalog = load_catalog(None, "code-server", ())
    options = BackendOptions(data, data / "homes", (data / "archives").as_uri(), "test", runtime="process")
    opened = await open_backends(options, catalog)
    try:
        yield opened
    finally:
        for instances in (opened.instances["process"],):
            for workspace_id in await instances.list_all():
                await instances.delete(workspace_id, no_fence)
        await opened.close()


async def run(backends: BackendSet, profile_name: str) -> Upstream:
    instances, homes = backends.instances["process"], backends.homes["local-dir"]
    image, profile = load_catalog(None, "code-server", ()).resolve(profile_name, Runs.COMMAND)
    spec = InstanceSpec(wid(), image, profile, homes.mount(key()))
    await instances.start(spec, ignore_progress, no_fence)
    await until(lambda: instances.probe(wid(), profile), "the IDE answers its health check")
    upstream = await instances.resolve_upstream(wid())
    assert upstream is not None
    return upstream


def client(upstream: Upstream) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=upstream.socket_path) if upstream.socket_path else None
    base = f"http://127.0.0.1:{upstream.port}" if upstream.port else "http://localhost"
    headers = dict([upstream.secret]) if upstream.secret else {}
    return httpx.AsyncClient(
        transport=transport, base_url=base, headers=headers, timeout=60, trust_env=False, follow_redirects=True
    )


async def test_a_file_in_a_real_code_server_survives_stop_archive_restore_and_start(backends: BackendSet) -> None:
    instances, homes = backends.instances["process"], backends.homes["local-dir"]
    ctx = await homes.provision(key(), "inc-1", no_fence)
    async with client(await run(backends, "code-server")) as ide:
        assert "code-server" in (await ide.get("/")).text
    files = Path(homes.mount(key()).source)
    settings = files / ".local/share/code-server/User/settings.json"
    assert "chat.disableAIFeatures" in settings.read_text(), "written by the IDE's own start"
    owner = settings.stat().st_uid
    await instances.delete(wid(), no_fence)
    receipt = await homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await homes.deprovision(key(), ctx, no_fence)
    assert (await homes.status(key())).state is HomeState.ABSENT
    await homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert (settings.stat().st_uid, "chat" in settings.read_text()) == (owner, True)
    async with client(await run(backends, "code-server")) as ide:
        assert (await ide.get("/healthz")).status_code == 200


async def test_a_real_jupyterlab_answers_below_its_prefix_and_only_with_its_secret(backends: BackendSet) -> None:
    await backends.homes["local-dir"].provision(key(), "inc-1", no_fence)
    upstream = await run(backends, "jupyterlab")
    assert upstream.secret is not None
    base = f"/w/{wid()}"
    async with client(upstream) as ide:
        assert (await ide.get(f"{base}/api/contents")).status_code == 200
        assert "JupyterLab" in (await ide.get(f"{base}/lab")).text
    async with client(replace(upstream, secret=None)) as ide:
        assert (await ide.get(f"{base}/api/contents")).status_code == 403


def test_an_install_that_is_there_is_not_made_again() -> None:
    install = CodeServerInstall(IDE_DIR)
    assert install.ensure(ignore_progress) == install.bin_dir == installed_code_server()
