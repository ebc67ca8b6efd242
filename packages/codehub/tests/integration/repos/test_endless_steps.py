"""Setup steps that do not end: the workspace is usable meanwhile, and its owner goes on without them."""

from __future__ import annotations

import pytest

from testing.codehub.git_server import GitServer
from testing.codehub.repositories import Made, Repositories

pytestmark = [
    pytest.mark.xdist_group("repos"),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]
_DEVCONTAINER = '{"postCreateCommand": "echo created > ~/created"}'


def until_running(made: Made, step: str) -> dict[str, object]:
    made.until_setup(lambda now: any(each["id"].startswith(step) and each["may_skip"] for each in now["steps"]))
    return made.step(step)


def test_an_install_script_that_never_ends_is_named_and_skipped_and_the_rest_follows(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/endless", {"install.sh": "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"})
    git_server.make("public/after", {".devcontainer.json": _DEVCONTAINER})
    shop.codehub("dotfiles", git_server.url("public/endless"))
    try:
        made = shop.create("endless", repo={"url": git_server.url("public/after")})
        step = until_running(made, "dotfiles")
        made.until_setup(lambda now: now["text"] == "Dotfiles: running .dotfiles/install.sh")
        assert step["stops_at"] > step["started_at"]  # type: ignore[operator]
        made.until("RUNNING")
        assert (
            made.sh("ls ~/after/.devcontainer.json; ls ~/created || true") == "/home/coder/after/.devcontainer.json\n"
        )
        done = made.codehub("ws", "skip-setup", made.workspace_id)
        assert "stopped: Dotfiles" in done.stdout.decode(), done.stderr
        made.until_setup(lambda now: any(each["id"].startswith("devcontainer") for each in now["steps"]))
        settled = made.settled()
        assert settled["state"] == "done", settled
        assert made.step("dotfiles")["state"] == "skipped"
        assert made.sh("cat ~/created; pgrep -f '[i]nstall.sh' | wc -l") == "created\n0\n"
        again = made.codehub("ws", "skip-setup", made.workspace_id)
        assert (again.returncode, "no step of the setup" in again.stderr.decode()) == (6, True)
    finally:
        shop.codehub("dotfiles", "--none")


def test_a_clone_is_stopped_with_all_of_git_and_cloned_again_on_request(
    shop: Repositories, git_server: GitServer
) -> None:
    held = git_server.make_held("halted")
    made = shop.create("halted", repo={"url": held.url})
    until_running(made, "clone")
    made.until_setup(lambda now: (now["percent"] or 0) > 0)
    shop.ask("POST", f"workspaces/{made.workspace_id}:skip-setup", {"step": "clone"})
    failed = made.settled()
    assert failed["text"] == "Clone halted failed. It was stopped on request."
    assert failed["may_change_repo"]
    assert (
        made.sh("pgrep git | wc -l; find ~/.local/state/codehub/setup/clone-staging -mindepth 1 | wc -l") == "0\n0\n"
    )
    held.release()
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and bool(now["folder"]))


def test_only_a_step_that_runs_is_skipped_and_only_by_those_who_may_work_in_the_workspace(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/finished", {"README.md": "text\n"})
    made = shop.create("finished", repo={"url": git_server.url("public/finished")})
    made.settled()
    with made.client() as client:
        for step, status in (("clone", 409), ("nothing", 409), ("", 400), ("x" * 101, 400)):
            assert client.post(f"{made.api}:skip-setup", json={"step": step}).status_code == status, step
    with shop.stack.client() as admin:
        admin.post("/api/v1/users", json={"username": "mallory", "password": "mallory-has-one"})
    with shop.stack.client("mallory", "mallory-has-one") as other:
        assert other.post(f"{made.api}:skip-setup", json={"step": "clone"}).status_code == 403
