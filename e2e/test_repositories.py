"""From a repository to a workspace in the dashboard, with a real git server: link, dialog, progress and a failed clone."""

from __future__ import annotations

import asyncio
import io
import json
import re
import zipfile
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from e2e.pages import card, open_workspace, press, run_inside, sign_in, submit_credentials, until_is
from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.git_server import TOKEN, USER, GitServer, git, running_git_server
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.codehub.repositories import open_repositories

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]
_TEMPLATE = """[templates.service]
description = "A service"
setup = ["echo prepared > ~/prepared"]

[templates.service.parameters.level]
choices = ["low", "high"]
default = "low"
"""


@pytest.fixture(scope="module")
def git_server() -> Iterator[GitServer]:
    with running_git_server() as server:
        yield server


@pytest.fixture(scope="module")
def stack(git_server: GitServer) -> Iterator[Stack]:
    installed_code_server()
    with fresh_stack() as made:
        (made.data_dir / "ide").symlink_to(IDE_DIR)
        made.with_tiny_ide()
        made.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_INSTANCE_NETWORKS": git_server.network,
            "CODEHUB_GIT_CA_FILE": str(git_server.ca_file),
            "LIMITS_MAX_RUNNING_PER_USER": "20",
        }
        made.up()
        with made.client() as client:
            pushed = client.post("/api/v1/templates", json={"source": _TEMPLATE})
            assert pushed.status_code < 300, pushed.text
        yield made


# An extension that shows, in the status bar, that it runs and which settings it finds.
_EXTENSION_MAIN = """
const vscode = require("vscode");
exports.activate = () => {
  const item = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Left, 1000);
  item.text = "hello, tabs of " + vscode.workspace.getConfiguration("editor").get("tabSize");
  item.show();
};
"""
_DEVCONTAINER = {
    "image": "mcr.example/devcontainers/javascript-node:22",
    "forwardPorts": [8123, 9229],
    "portsAttributes": {"8123": {"label": "The site"}, "9229": {"label": "Debugger"}},
    "onCreateCommand": "echo said by onCreate; echo once >> ~/ran",
    "postStartCommand": "echo each >> ~/ran; nohup python3 -m http.server 8123 > /dev/null 2>&1 &",
    "customizations": {
        "vscode": {"extensions": ["./tools/hello.vsix"], "settings": {"editor.tabSize": 3}},
    },
}


def vsix() -> bytes:
    package = {
        "name": "hello",
        "publisher": "codehub-test",
        "version": "1.0.0",
        "engines": {"vscode": "^1.60.0"},
        "main": "./main.js",
        "activationEvents": ["onStartupFinished"],
    }
    manifest = (
        '<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011"><Metadata>'
        '<Identity Id="hello" Version="1.0.0" Publisher="codehub-test" Language="en-US"/></Metadata></PackageManifest>'
    )
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as packed:
        packed.writestr("extension.vsixmanifest", manifest)
        packed.writestr("extension/package.json", json.dumps(package))
        packed.writestr("extension/main.js", _EXTENSION_MAIN)
    return written.getvalue()


def names(stack: Stack) -> list[str]:
    with stack.client() as client:
        return [item["name"] for item in client.get("/api/v1/workspaces").json()["items"]]


async def test_a_link_signs_in_first_then_fills_in_the_dialog_and_creates_nothing_without_a_click(
    stack: Stack, git_server: GitServer, page: Page
) -> None:
    bare = git_server.make("public/linked", {"README.md": "linked\n"})
    git(bare, "branch", "develop")
    url = git_server.url("public/linked")
    link = f"{stack.url}/new?repo={quote(url, safe='')}&ref=develop&template=service"
    await page.goto(link)
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await submit_credentials(page)
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Repository")).to_have_value(url)
    await expect(dialog.get_by_label("Branch, tag or commit")).to_have_value("develop")
    await expect(dialog.get_by_label("Name")).to_have_value("linked")
    await expect(dialog.get_by_label("Template")).to_have_value("service")
    await expect(dialog.get_by_role("status")).to_have_text("2 branches.")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_be_hidden()
    assert await asyncio.to_thread(names, stack) == []
    # Whoever reloads the page is not asked again.
    await page.reload()
    await expect(page.get_by_role("heading", name="No workspaces yet")).to_be_visible()
    await expect(dialog).to_be_hidden()

    await page.goto(link.replace("template=service", "template=nothing"))
    await expect(dialog.get_by_role("alert")).to_contain_text("There is no template named “nothing” for you.")
    await page.goto(link)
    await dialog.get_by_label("level").select_option("high")
    await dialog.get_by_role("button", name="Create").click()
    await until_is(card(page, "linked"), "Running")
    inside = await open_workspace(page, "linked")
    wait = "until test -e ~/prepared; do sleep 0.1; done; "
    said = await run_inside(
        inside, wait + "git -C ~/linked rev-parse --abbrev-ref HEAD; cat ~/linked/README.md ~/prepared"
    )
    assert said == "develop\nlinked\nprepared\n"
    await inside.close()


async def test_the_dialog_offers_the_branches_and_the_card_shows_how_far_the_clone_is(
    stack: Stack, git_server: GitServer, page: Page
) -> None:
    held = git_server.make_held("watched")
    git(held.file.parent, "branch", "feature/x")
    await sign_in(page, stack)
    await press(page, "New workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Repository").fill(held.url)
    await expect(dialog.get_by_role("status")).to_have_text("2 branches.")
    offered = dialog.locator("datalist option")
    assert sorted([await each.get_attribute("value") or "" for each in await offered.all()]) == ["feature/x", "main"]
    await dialog.get_by_label("Branch, tag or commit").fill("feature/x")
    await expect(dialog.get_by_label("Name")).to_have_value("watched")  # until somebody chooses a name
    await dialog.get_by_role("button", name="Create").click()
    mine = card(page, "watched")
    await expect(mine).to_contain_text(re.compile(r"receiving objects, \d+ %"))
    await expect(mine.get_by_label("Progress of the setup")).to_be_visible()
    inside = await open_workspace(page, "watched")  # the IDE opens all the same
    assert await run_inside(inside, "ls ~/watched 2>/dev/null | wc -l") == "0\n"
    held.release()
    await expect(mine.get_by_label("Progress of the setup")).to_be_hidden()
    assert await run_inside(inside, "ls ~/watched | wc -l") == "400\n"
    await inside.close()


async def test_a_failed_clone_is_explained_on_the_card_and_repeated_by_its_button(
    stack: Stack, git_server: GitServer, page: Page, page_faults: list[str]
) -> None:
    git_server.make("private/locked", {"README.md": "locked\n"})
    url = git_server.url("private/locked")
    await sign_in(page, stack)
    await press(page, "New workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Repository").fill(url)
    await expect(dialog.get_by_role("status")).to_contain_text(git_server.address)
    page_faults.clear()  # the browser logs that the branches were refused
    await dialog.get_by_label("Name").fill("locked")
    await dialog.get_by_role("button", name="Create").click()
    mine = card(page, "locked")
    await expect(mine).to_contain_text(f"{git_server.address} refused access.")
    inside = await open_workspace(page, "locked")
    assert await run_inside(inside, "echo usable") == "usable\n"

    await page.get_by_role("link", name="Account", exact=True).click()
    await press(page, "Add credential")
    await dialog.get_by_label("Host").fill(url)
    await dialog.get_by_label("User name").fill(USER)
    await dialog.get_by_label("Token").fill(TOKEN)
    await dialog.get_by_role("button", name="Add credential").click()
    await expect(page.get_by_role("region", name="Git credentials")).to_contain_text(git_server.address)
    await page.get_by_role("link", name="Workspaces", exact=True).click()
    again = mine.get_by_role("button", name="Try again")
    await again.click()
    await expect(again).to_be_hidden()
    await expect(mine).not_to_contain_text("refused access")
    await page.get_by_role("link", name="locked", exact=True).click()
    await expect(page.get_by_role("listitem").filter(has_text="Clone")).to_contain_text("done")
    await press(page, "Show output")
    await expect(page.get_by_label("Output of the setup")).to_contain_text("Clon")
    assert await run_inside(inside, "cat ~/locked/README.md") == "locked\n"
    await inside.close()


async def test_a_wrong_branch_is_corrected_where_its_failure_is_said(
    stack: Stack, git_server: GitServer, page: Page
) -> None:
    bare = git_server.make("public/misspelt", {"README.md": "x\n"})
    git(bare, "branch", "develop")
    shop = open_repositories(stack)
    repo = {"url": git_server.url("public/misspelt"), "ref": "developp"}
    made = await asyncio.to_thread(shop.create, "misspelt", repo=repo)
    await sign_in(page, stack)
    mine = card(page, "misspelt")
    await expect(mine).to_contain_text("no branch, tag or commit named “developp”")
    await mine.get_by_role("button", name="Change repository").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("status")).to_have_text("2 branches.")
    await dialog.get_by_label("Branch, tag or commit").fill("develop")
    await dialog.get_by_role("button", name="Clone").click()
    await expect(mine).not_to_contain_text("failed")
    await asyncio.to_thread(made.settled)
    assert await asyncio.to_thread(made.sh, "git -C misspelt branch --show-current") == "develop\n"
    # What is cloned is not replaced.
    refused = await asyncio.to_thread(made.codehub, "ws", "retry-setup", "misspelt", "--ref", "main")
    assert b"only a repository that could not be cloned is replaced" in refused.stderr


async def test_the_account_page_has_git_credentials_a_key_secrets_and_dotfiles(
    stack: Stack, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, stack)
    await page.get_by_role("link", name="Account", exact=True).click()
    dialog = page.get_by_role("dialog")
    credentials = page.get_by_role("region", name="Git credentials")
    await press(page, "Add credential")
    await dialog.get_by_label("Host").fill("not a host")
    await dialog.get_by_label("Token").fill("t0ken")
    await dialog.get_by_role("button", name="Add credential").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    page_faults.clear()  # the browser logs the refusal
    await dialog.get_by_label("Host").fill("git.example.org")
    await dialog.get_by_role("button", name="Add credential").click()
    await expect(credentials).to_contain_text("https://git.example.org")
    await press(page, "Remove git.example.org")
    await dialog.get_by_role("button", name="Remove").click()
    await expect(credentials).not_to_contain_text("git.example.org")

    await press(page, "Make a key")
    await expect(page.get_by_label("Public key")).to_have_value(re.compile("^ssh-ed25519 "))

    secrets = page.get_by_role("region", name="Secrets")
    await press(page, "Set secret")
    await dialog.get_by_label("Name").fill("PATH")
    await dialog.get_by_label("Value").fill("hush")
    await dialog.get_by_role("button", name="Set secret").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("set by CodeHub")
    page_faults.clear()
    await dialog.get_by_label("Name").fill("kubeconfig")
    await dialog.get_by_label("Given as").select_option("file")
    await dialog.get_by_role("button", name="Set secret").click()
    row = secrets.get_by_role("row", name=re.compile("kubeconfig"))
    await expect(row).to_contain_text("file in $CODEHUB_SECRETS_DIR")
    await expect(row).to_contain_text("4 bytes")
    assert "hush" not in await page.content(), "a value is never shown again"
    await press(page, "Remove kubeconfig")
    await dialog.get_by_role("button", name="Remove").click()
    await expect(row).to_be_hidden()

    dotfiles = page.locator("section.card").filter(has=page.get_by_role("heading", name="Dotfiles"))
    await dotfiles.get_by_label("Repository").fill("https://git.example.org/me/dotfiles.git")
    await dotfiles.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Each workspace gets them at its next start.")).to_be_visible()
    await page.reload()
    await expect(dotfiles.get_by_label("Repository")).to_have_value("https://git.example.org/me/dotfiles.git")
    await dotfiles.get_by_label("Repository").fill("")
    await dotfiles.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Each workspace gets them at its next start.")).to_be_visible()


async def test_devcontainer_json_brings_extensions_settings_ports_and_commands_to_a_real_code_server(
    stack: Stack, git_server: GitServer, page: Page
) -> None:
    files: dict[str, str | bytes] = {
        ".devcontainer/devcontainer.json": json.dumps(_DEVCONTAINER),
        "tools/hello.vsix": vsix(),
    }
    git_server.make("public/dev", files)
    shop = open_repositories(stack)
    made = await asyncio.to_thread(
        shop.create, "dev", image_ref="code-server", repo={"url": git_server.url("public/dev")}
    )
    await asyncio.to_thread(
        made.until_setup, lambda now: any(step["id"].startswith("extensions") for step in now["steps"])
    )
    done = await asyncio.to_thread(made.settled)
    assert done["state"] == "done", (done, made.sh("cat ~/.codehub/setup/*.log"))
    await sign_in(page, stack)
    await expect(card(page, "dev")).to_contain_text("Of devcontainer.json, image has no effect here.")

    inside = await open_workspace(page, "dev")
    await expect(inside.get_by_text("hello, tabs of 3")).to_be_visible()
    await expect(inside.get_by_role("treeitem", name="tools")).to_be_visible()  # the IDE opened the clone
    await inside.close()

    await page.get_by_role("link", name="dev", exact=True).click()
    await expect(page.get_by_text("image: needs a container")).to_be_visible()
    await press(page, "Show output")
    output = page.get_by_label("Output of the setup")
    await expect(output).to_contain_text("said by onCreate")
    await expect(output).to_contain_text(re.compile(r"=== Install extensions \(done\)\s+Installing extensions\.\.\."))
    await page.goto(f"{stack.url}/#/workspaces/{made.workspace_id}/ports")
    await expect(page.get_by_role("link", name="Open port 8123 in a new tab")).to_be_visible()
    await expect(page.get_by_text("The site", exact=True)).to_be_visible()
    await expect(page.get_by_text("Port 9229 (Debugger) is expected. Nothing listens on it yet.")).to_be_visible()

    await asyncio.to_thread(made.put, "STANDBY", "STANDBY")
    await asyncio.to_thread(made.put, "RUNNING", "RUNNING")
    ran = "until test $(wc -l < ~/ran) = 3; do sleep 0.2; done; cat ~/ran"
    assert await asyncio.to_thread(made.sh, ran) == "once\neach\neach\n"
    assert await asyncio.to_thread(made.sh, "code-server --list-extensions") == "codehub-test.hello\n"
