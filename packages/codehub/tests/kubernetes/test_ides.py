"""The real IDEs in Pods, started by the shipped images' scripts and used in a real browser through the proxy.

Each is opened from the dashboard, written in, put to sleep and woken, archived to S3 and restored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, expect

from e2e.ide_tabs import (
    CODE_SERVER_TERMINAL,
    EDITOR,
    LAB,
    TIMEOUT_S,
    WORKBENCH,
    arrives,
    holds,
    run_in_notebook,
    until,
)
from e2e.pages import card, create, open_workspace, sign_in, until_is
from testing.browser import with_long_timeouts
from testing.codehub.container_walkthrough import Walk
from testing.codehub.dashboard import PASSWORD
from testing.codehub.doors import Doors
from testing.codehub.isolated_browser import isolated_chromium
from testing.codehub.kubernetes import Node, fresh_namespace
from testing.codehub.kubernetes_images import load_code_server_image, load_jupyterlab_image
from testing.codehub.kubernetes_kills import volume_of
from testing.codehub.kubernetes_stack import kubernetes_stack, objects
from testing.codehub.objectstore import S3Server
from testing.codehub.packages import wheel
from testing.codehub.toolchain import WHEEL, check_toolchain
from testing.ports import free_ports

pytestmark = [pytest.mark.needs("kubernetes", "root", "npm", "chromium", "ip"), pytest.mark.timeout(900)]
_SECRET = "s3cret-of-this-test"
_ENVIRONMENT = (
    "for p in /proc/[0-9]*; do grep -az code-server $p/cmdline >/dev/null && cat $p/environ; done 2>/dev/null; true"
)


@dataclass(frozen=True)
class Here:
    """A CodeHub beside the node, its namespace and a signed-in client of its API."""

    walk: Walk
    namespace: str
    client: httpx.Client
    ports: tuple[int, int]

    def workspace(self, name: str) -> str:
        items = self.client.get("/api/v1/workspaces").json()["items"]
        (found,) = [str(item["id"]) for item in items if item["name"] == name]
        return found

    async def ask(self, workspace_id: str, action: str, phase: str) -> None:
        await asyncio.to_thread(self.walk.ask, self.client, workspace_id, action, phase)


@pytest.fixture(scope="module")
def here(node: Node, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    load_code_server_image(node)
    load_jupyterlab_image(node)
    api, proxy = free_ports(2)
    more = {
        "CODEHUB_INSTANCE_MEMORY": "2G",
        "CODEHUB_INSTANCE_CPUS": "2",
        "CODEHUB_K8S_HOME_SIZE": "1Gi",
        "CODEHUB_ADMIN_PASSWORD": PASSWORD,
        "CODEHUB_API_BIND": f"127.0.0.1:{api}",
        "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
    }
    with (
        fresh_namespace(node) as namespace,
        kubernetes_stack(node, namespace, s3_server, tmp_path_factory.mktemp("ides"), **more) as walk,
        walk.signed_in() as client,
    ):
        yield Here(walk, namespace, client, (api, proxy))


@pytest.fixture
async def context(here: Here) -> AsyncIterator[BrowserContext]:
    async with isolated_chromium(*here.ports) as browser:
        yield with_long_timeouts(await browser.new_context(viewport={"width": 1280, "height": 800}))


async def opened(here: Here, context: BrowserContext, profile: str, note: str = "") -> tuple[str, Page]:
    """Create a workspace in the dashboard and open it by its link, as its user does. `note` is put into it before."""
    dashboard = await context.new_page()
    await sign_in(dashboard, here.walk.stack)
    await create(dashboard, f"my {profile}", Profile=profile)
    await until_is(card(dashboard, f"my {profile}"), "Running")
    workspace_id = here.workspace(f"my {profile}")
    if note:
        put = here.client.put(f"/api/v1/workspaces/{workspace_id}/files/notes.txt", content=note.encode())
        assert put.status_code < 300, put.text
    tab = await open_workspace(dashboard, f"my {profile}")
    await dashboard.close()
    return workspace_id, tab


async def wakes_by_its_overlay(here: Here, workspace_id: str, tab: Page, arrived: str) -> None:
    await here.ask(workspace_id, "stop", "STANDBY")
    dialog = tab.get_by_role("dialog", name="is asleep")
    await expect(dialog).to_be_visible(timeout=TIMEOUT_S * 1000)
    await dialog.get_by_role("button", name="Wake up").click()
    await asyncio.to_thread(here.walk.reach, here.client, workspace_id, "RUNNING")
    await arrives(tab, arrived)


async def archived_and_opened_again(here: Here, node: Node, workspace_id: str, tab: Page, arrived: str) -> None:
    address = tab.url
    await tab.goto("about:blank")
    await here.ask(workspace_id, "archive", "ARCHIVED")
    left = await asyncio.to_thread(objects, node, here.namespace, workspace_id)
    assert left == {"Pod": [], "PersistentVolumeClaim": [], "Job": []}
    await here.ask(workspace_id, "start", "RUNNING")
    await tab.goto(address)
    await arrives(tab, arrived)


async def code_opens_files_from_other_shells(here: Here, workspace_id: str, tab: Page) -> None:
    """`code FILE` in a command and in a login shell, neither of which the IDE started."""

    async def runs(command: str) -> dict[str, object]:
        path = f"/api/v1/workspaces/{workspace_id}/exec"
        answer = await asyncio.to_thread(here.client.post, path, json={"command": command})
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    for file, text, command in (
        ("one.txt", "by exec", "code one.txt"),
        ("two.txt", "by a login shell", "env -u PATH sh -lc 'code two.txt'"),
    ):
        assert (await runs(f"echo {text} > {file}"))["exit_code"] == 0

        async def opened(command: str = command) -> bool:
            """The window is known a moment after it is shown."""
            return (await runs(command))["exit_code"] == 0

        await until(opened, f"`{command}` finds the window")
        await expect(tab.locator(EDITOR)).to_contain_text(text, timeout=TIMEOUT_S * 1000)


async def test_code_server_is_written_in_sleeps_and_comes_back_from_s3_in_a_browser(
    here: Here, node: Node, context: BrowserContext
) -> None:
    workspace_id, tab = await opened(here, context, "code-server", "first line\n")
    await tab.wait_for_selector(WORKBENCH)
    home = volume_of(node, here.namespace, workspace_id)
    files = await asyncio.to_thread(home)
    await tab.get_by_role("treeitem", name="notes.txt").dblclick()
    await tab.locator(EDITOR).click()
    await tab.keyboard.press("Control+Home")
    await tab.keyboard.type("written in the browser ")
    await tab.keyboard.press("Control+S")
    await until(lambda: holds(files / "notes.txt", "written in the browser"), "the edit is saved")
    await tab.keyboard.press("Control+Backquote")
    await tab.wait_for_selector(CODE_SERVER_TERMINAL)

    async def typed() -> bool:
        await tab.locator(CODE_SERVER_TERMINAL).first.click()
        await tab.keyboard.type("id -u > ~/typed.txt\n")
        await asyncio.sleep(1)  # a terminal is shown before its shell listens
        return await holds(files / "typed.txt", "1000")

    await until(typed, "the terminal runs a command in the Pod")
    await code_opens_files_from_other_shells(here, workspace_id, tab)
    await wakes_by_its_overlay(here, workspace_id, tab, WORKBENCH)
    await archived_and_opened_again(here, node, workspace_id, tab, WORKBENCH)
    await expect(tab.locator(EDITOR)).to_contain_text("by a login shell")
    restored = await asyncio.to_thread(home)
    assert (restored / "notes.txt").read_text() == "written in the browser first line\n"
    assert restored != files
    await here.ask(workspace_id, "stop", "STANDBY")


async def test_jupyterlab_computes_sleeps_and_comes_back_from_s3_in_a_browser(
    here: Here, node: Node, context: BrowserContext
) -> None:
    workspace_id, tab = await opened(here, context, "jupyterlab")
    await tab.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    put = here.client.put(f"/api/v1/workspaces/{workspace_id}/files/{WHEEL}", content=wheel("one", "run-one"))
    assert put.status_code < 300, put.text
    installing = f"%pip install --no-index -q ~/{WHEEL}\nimport one, sys; one.main(); print(sys.prefix)"
    await run_in_notebook(tab, installing, "one works\n/home/coder/.venv")
    await run_in_notebook(tab, "import os; print(open('made.txt', 'w').write('kept'), os.getuid())", "4 1000")
    await tab.keyboard.press("Control+S")
    home = volume_of(node, here.namespace, workspace_id)
    files = await asyncio.to_thread(home)
    await until(lambda: holds(files / "Untitled.ipynb", "made.txt"), "the notebook is saved")
    await stranger_is_refused(here, node, workspace_id, 8888, f"/w/{workspace_id}/api/contents", 403)
    await wakes_by_its_overlay(here, workspace_id, tab, LAB)
    await archived_and_opened_again(here, node, workspace_id, tab, LAB)
    restored = await asyncio.to_thread(home)
    assert (restored / "made.txt").read_text() == "kept"
    assert restored != files
    await run_in_notebook(tab, "print(open('made.txt').read() + ' for good')", "kept for good")
    await here.ask(workspace_id, "stop", "STANDBY")


async def test_pip_npm_git_and_shells_work_in_a_pod_as_in_a_container(here: Here) -> None:
    workspace_id = here.walk.create(here.client, "code-server")
    await asyncio.to_thread(here.walk.reach, here.client, workspace_id, "RUNNING")
    token = here.client.headers["Authorization"].removeprefix("Bearer ")
    doors = Doors(here.walk.stack, workspace_id, token)

    def restart() -> None:
        restarted = doors.codehub("ws", "restart", workspace_id, "--wait")
        assert restarted.returncode == 0, restarted.stderr

    await asyncio.to_thread(check_toolchain, doors.sh, restart)
    # The IDE's own terminals inherit its environment.
    variables = (await asyncio.to_thread(doors.sh, _ENVIRONMENT)).split("\0")
    assert any(one.startswith("PATH=/home/coder/.local/bin:/home/coder/.venv/bin:/opt/code") for one in variables)
    assert "GIT_CONFIG_SYSTEM=/tmp/.codehub/gitconfig-system" in variables
    await here.ask(workspace_id, "stop", "STANDBY")


async def stranger_is_refused(
    here: Here, node: Node, workspace_id: str, port: int, path: str, status: int
) -> httpx.Response:
    """Ask the Pod directly, without the secret of its start."""
    listed = await asyncio.to_thread(node.kubectl, "get", "pods", "-n", here.namespace, "-o", "json")
    (pod,) = [
        one
        for one in json.loads(listed)["items"]
        if one["metadata"]["labels"]["codehub.dev/workspace"] == workspace_id
        and "deletionTimestamp" not in one["metadata"]
    ]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as stranger:
        answer = await stranger.get(f"http://{pod['status']['podIP']}:{port}{path}")
    assert answer.status_code == status, answer.text
    return answer


async def test_code_server_has_its_owners_secrets_and_asks_everybody_else_for_a_password(
    here: Here, node: Node
) -> None:
    walk, client = here.walk, here.client
    assert client.put("/api/v1/secrets/API_TOKEN", json={"value": _SECRET}).status_code < 300
    workspace_id = walk.create(client, "code-server")
    await asyncio.to_thread(walk.reach, client, workspace_id, "RUNNING")
    assert "workbench" in walk.page(client, workspace_id, "/?folder=/home/coder")
    ran = client.post(f"/api/v1/workspaces/{workspace_id}/exec", json={"command": _ENVIRONMENT})
    assert f"API_TOKEN={_SECRET}" in ran.json()["stdout"].split("\0")
    answer = await stranger_is_refused(here, node, workspace_id, 8080, "/", 302)
    assert "login" in answer.headers["location"], "without the secret of this start, it asks for a password"
