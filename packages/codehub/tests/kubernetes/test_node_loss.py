"""A node that stops answering, seen from the dashboard: its name, nothing forced, and work that goes on from an archive."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from e2e.pages import card, sign_in
from testing.browser import with_long_timeouts
from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import Stack
from testing.codehub.isolated_browser import isolated_chromium
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_stack import kubernetes_stack
from testing.codehub.objectstore import S3Server
from testing.ports import free_ports

pytestmark = [pytest.mark.needs("kubernetes", "root", "chromium", "ip"), pytest.mark.timeout(900)]


def listed(node: Node, namespace: str, kind: str, workspace_id: str) -> dict[str, Any]:
    """Its objects by uid, those that are being deleted too."""
    selector = f"codehub.dev/workspace={workspace_id}"
    items = json.loads(node.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json"))["items"]
    return {one["metadata"]["uid"]: one for one in items}


async def continue_in_the_dashboard(stack: Stack, ports: list[int], name: str) -> None:
    """Read what the card says, and press its button."""
    async with isolated_chromium(*ports) as browser:
        page = await with_long_timeouts(await browser.new_context(viewport={"width": 1280, "height": 800})).new_page()
        await sign_in(page, stack)
        await expect(card(page, name)).to_contain_text("the node node1 does not answer since")
        button = card(page, name).get_by_role("button", name=re.compile("^Continue from the last archive"))
        await button.click()
        await page.get_by_role("dialog").get_by_role("button", name="Continue", exact=True).click()
        await expect(card(page, f"{name} (continued)")).to_be_visible()


def test_work_on_a_lost_node_goes_on_from_the_last_archive_and_nothing_is_forced(
    node: Node, namespace: str, s3_server: S3Server, tmp_path: Path
) -> None:
    ports = free_ports(2)
    more = {
        "CODEHUB_ADMIN_PASSWORD": PASSWORD,
        "CODEHUB_API_BIND": f"127.0.0.1:{ports[0]}",
        "CODEHUB_PROXY_BIND": f"127.0.0.1:{ports[1]}",
    }
    with kubernetes_stack(node, namespace, s3_server, tmp_path, **more) as walk, walk.signed_in() as client:
        old = walk.create(client, "tiny")
        walk.reach(client, old, "RUNNING")
        walk.page(client, old, "/run", "POST", "echo archived > ~/note")
        walk.ask(client, old, "archive", "ARCHIVED")
        walk.ask(client, old, "start", "RUNNING")
        walk.page(client, old, "/run", "POST", "echo since then > ~/note")
        name = client.get(f"/api/v1/workspaces/{old}").json()["name"]
        pods, claims = (set(listed(node, namespace, kind, old)) for kind in ("pods", "pvc"))
        node.program("kill", "kubelet")
        try:

            def offered() -> bool:
                return "continue_from_archive" in client.get(f"/api/v1/workspaces/{old}").json()["allowed_actions"]

            walk.stack.wait(offered)
            asyncio.run(continue_in_the_dashboard(walk.stack, ports, name))
            # The Pod may still write. It may be asked to go, but nothing takes it away.
            assert set(listed(node, namespace, "pods", old)) == pods
            assert set(listed(node, namespace, "pvc", old)) == claims
        finally:
            node.program("start", "kubelet")
            node.wait_ready()
        new = continued(client, f"{name} (continued)")
        walk.reach(client, new, "RUNNING")
        assert walk.page(client, new, "/run", "POST", "cat ~/note") == "archived\n"
        # The old one was stopped when its node was back, with everything that was written there.
        walk.reach(client, old, "STANDBY")
        assert set(listed(node, namespace, "pvc", old)) == claims
        walk.ask(client, old, "start", "RUNNING")
        assert walk.page(client, old, "/run", "POST", "cat ~/note") == "since then\n"


def continued(client: httpx.Client, name: str) -> str:
    items = client.get("/api/v1/workspaces").json()["items"]
    (found,) = [str(item["id"]) for item in items if item["name"] == name]
    return found
