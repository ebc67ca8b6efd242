"""Repositories and git servers that mean harm: nothing of the machine is read, and no credential goes to another host."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testing.codehub.git_server import TOKEN, USER, GitServer, git
from testing.codehub.repositories import Repositories

pytestmark = [
    pytest.mark.xdist_group("repos"),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]


def with_submodule(server: GitServer, name: str, url: str, files: Mapping[str, str | bytes]) -> str:
    """Make a repository with a submodule at any address, and return its own."""
    bare = server.make(f"public/{name}", {"README.md": "x\n", **files})
    work = server.place / f"{name}-work"
    git("/", "clone", "-q", str(bare), str(work))
    (work / ".gitmodules").write_text(f'[submodule "part"]\n\tpath = part\n\turl = {url}\n')
    git(work, "add", "-A")
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{git(work, 'rev-parse', 'HEAD').strip()},part")
    git(work, "commit", "-q", "-m", "Add part")
    git(work, "push", "-q", "origin", "HEAD")
    return server.url(f"public/{name}")


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("local", "file:///etc"),
        ("command", "ext::sh -c touch% /tmp/ran"),
        ("option", "-u./payload"),
        ("password", "https://bob:hunter2@{address}/public/not-there.git"),
    ],
)
def test_a_submodule_reads_no_files_runs_no_programs_and_its_password_is_not_repeated(
    shop: Repositories, git_server: GitServer, name: str, url: str
) -> None:
    made = shop.create(
        f"module {name}",
        repo={"url": with_submodule(git_server, f"module-{name}", url.format(address=git_server.address), {})},
    )
    done = made.settled()
    assert done["folder"] == f"module-{name}", done
    assert "hunter2" not in str(done)
    assert made.sh(f"ls ~/module-{name}/part; ls /tmp/ran 2>/dev/null || true") == ""


def test_hooks_and_settings_in_a_repository_are_only_files(shop: Repositories, git_server: GitServer) -> None:
    hook = "#!/bin/sh\ntouch ~/ran\n"
    names = ("hooks/post-checkout", ".githooks/post-checkout", ".git-templates/hooks/post-checkout")
    git_server.make(
        "public/hooks",
        {**dict.fromkeys(names, hook), ".gitconfig": "[core]\n\thooksPath = .githooks\n\tsshCommand = touch ~/ran\n"},
    )
    made = shop.create("hooks", repo={"url": git_server.url("public/hooks")})
    assert made.settled()["state"] == "done"
    assert made.sh("cd ~/hooks && git checkout -q -b other; ls ~/ran 2>/dev/null || true") == ""


def test_a_credential_stays_with_its_host_through_redirects_rewrites_and_large_files(
    shop: Repositories, git_server: GitServer
) -> None:
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    other = f"https://{git_server.address}:8443"
    moved = shop.create("moved", repo={"url": git_server.url("moved/repo")})
    assert moved.settled()["state"] == "failed"
    assert moved.step("clone")["kind"] == "auth"
    with shop.doors().client() as client:
        listed = client.post("/api/v1/repositories/branches", json={"url": git_server.url("moved/repo")})
    assert (listed.status_code, "has moved" in listed.text) == (400, True), listed.text
    moved.sh(f'git config --global url."{other}/".insteadOf https://{git_server.address}/')
    assert "could not read Username" in moved.sh(f"git ls-remote {git_server.url('private/rewritten')} 2>&1; true")
    files = {
        ".lfsconfig": f"[lfs]\n\turl = {other}/lfs\n",
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        "large.bin": f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n",
    }
    git_server.make("private/elsewhere", files)
    large = shop.create("elsewhere", repo={"url": git_server.url("private/elsewhere")})
    done = large.settled()
    assert "Large files (Git LFS) were not fetched." in done["text"]
    seen = git_server.elsewhere_log()
    assert all(path in seen for path in ("/moved/repo", "/private/rewritten", "/lfs")), seen
    asked = [line for line in seen.splitlines() if not line.startswith("/other/")]  # which has its own credential
    assert all(line.endswith(('"-"', '""')) for line in asked), "no credential was sent there"
