"""Credentials that last: git in a workspace asks CodeHub each time, and nothing secret is ever in a home or an archive."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from testing.codehub.doors import token_of_another_user
from testing.codehub.git_server import TOKEN, USER, GitServer, git
from testing.codehub.repositories import Made, Repositories

pytestmark = [
    pytest.mark.xdist_group("repos"),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]
_COMMIT = (
    "git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m {name} && git push -q origin HEAD"
)


def holds(place: Path, secret: str) -> list[str]:
    """Every file below, by its bytes and by its name, that holds the secret; archives are unpacked first."""
    found = [
        str(path)
        for path in place.rglob("*")
        if secret in path.name or (path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes())
    ]
    for archive in place.rglob("*.tar.zst"):
        unpacked = subprocess.run(["zstd", "-dc", str(archive)], capture_output=True, check=True).stdout
        assert unpacked, archive
        if secret.encode() in unpacked:
            found.append(str(archive))
    return found


def push(made: Made, name: str) -> None:
    made.sh(f"cd ~/{made.view()['name']} && " + _COMMIT.format(name=name))


@pytest.fixture
def credential(shop: Repositories, git_server: GitServer) -> str:
    added = shop.codehub("git-auth", "add", git_server.address, "--username", USER, stdin=TOKEN.encode() + b"\n")
    assert TOKEN not in added
    (item,) = shop.ask("GET", "git-credentials")["items"]
    assert (item["host"], item["username"]) == (git_server.address, USER)
    assert TOKEN not in str(item)
    return str(item["id"])


def test_push_works_after_sleep_archive_and_restore_and_the_token_is_nowhere(
    shop: Repositories, git_server: GitServer, credential: str
) -> None:
    bare = git_server.make("private/pushed", {"README.md": "x\n"})
    made = shop.create("pushed", repo={"url": git_server.url("private/pushed")})
    assert made.settled()["state"] == "done", made.setup()
    # A helper that would write what it is given into the home is not asked for this host.
    made.sh("git config --global credential.helper store")
    push(made, "one")
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    push(made, "two")
    home = made.files()
    assert holds(home, TOKEN) == []
    assert (home / "pushed/README.md").exists()
    made.put("ARCHIVED", "ARCHIVED")
    assert any(shop.stack.data_dir.rglob("*.tar.zst")), "there is an archive to look into"
    assert holds(shop.stack.data_dir / "archives", TOKEN) == []
    assert holds(shop.stack.data_dir / "homes", TOKEN) == []
    made.put("RUNNING", "RUNNING")
    push(made, "three")
    assert git(bare, "log", "--format=%s", "main").split() == ["three", "two", "one", "First"]
    # Nor in what programs print, in their arguments, or in CodeHub's own output.
    looked = "cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '; git -C ~/pushed config -l"
    assert TOKEN not in made.sh(looked)
    assert TOKEN not in shop.stack.output()
    assert TOKEN not in made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()


def test_a_url_with_the_default_port_uses_the_credential_of_its_host(
    shop: Repositories, git_server: GitServer, credential: str
) -> None:
    git_server.make("private/port", {"README.md": "x\n"})
    url = f"https://{git_server.address}:443/private/port.git"
    made = shop.create("port", repo={"url": url})
    assert made.settled()["state"] == "done", made.setup()
    assert "HEAD" in made.sh(f"git ls-remote {url}")


def test_a_removed_credential_ends_access_at_once(shop: Repositories, git_server: GitServer, credential: str) -> None:
    git_server.make("private/ended", {"README.md": "x\n"})
    made = shop.create("ended", repo={"url": git_server.url("private/ended")})
    assert made.settled()["state"] == "done", made.setup()
    push(made, "before")
    shop.codehub("git-auth", "rm", git_server.address)
    with made.client() as client:
        refused = client.post(
            made.api + "/exec",
            json={"command": "cd ~/ended && GIT_TERMINAL_PROMPT=0 git push origin HEAD:refs/heads/after"},
        ).json()
    assert refused["exit_code"] != 0
    host = git_server.address
    hint = f"codehub: no credential for {host}. Add one with `codehub git-auth add {host}` or on your account page."
    assert refused["stderr"].splitlines()[0] == hint


def test_a_refused_credential_is_said_to_be_replaced(shop: Repositories, git_server: GitServer) -> None:
    git_server.make("private/refused", {"README.md": "x\n"})
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": "old"})
    made = shop.create("refused", repo={"url": git_server.url("private/refused")})
    assert made.settled()["state"] == "failed"
    step = made.step("clone")
    assert step["kind"] == "auth", step
    assert step["message"].startswith(f"{git_server.address} refused your credential. Replace it with"), step
    log = made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    assert f"codehub: {git_server.address} refused the credential. Replace it with" in log, log


def test_the_generated_key_clones_and_pushes_over_ssh_and_never_enters_the_workspace(
    shop: Repositories, git_server: GitServer
) -> None:
    bare = git_server.make("private/keyed", {"README.md": "x\n"})
    made = shop.create("keyed", repo={"url": git_server.ssh_url("private/keyed")})
    assert made.settled()["state"] == "failed"
    assert made.step("clone")["kind"] == "auth", made.step("clone")
    public = shop.codehub("git-auth", "key").strip()
    git_server.authorize(public)
    assert made.codehub("ws", "retry-setup", made.workspace_id).returncode == 0
    push(made, "signed")
    assert git(bare, "log", "-1", "--format=%s", "main").strip() == "signed"
    shown = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=public, capture_output=True, text=True, check=True
    ).stdout
    assert shown.split()[1] in made.sh("ssh-add -l"), "the agent has it"
    # -xdev: the machine's programs, some with test keys, may be mounted below /tmp.
    search = "find ~ /tmp /run /dev/shm -xdev -type f -exec grep -lsa 'PRIVATE[ ]KEY' {} + || true"
    control = "~/control /tmp/control"
    found = made.sh(f"printf 'PRIVATE%sKEY' ' ' | tee {control} > /dev/null; {search}; rm {control}")
    assert found.split() == ["/home/coder/control", "/tmp/control"]
    shop.codehub("git-auth", "key", "--remove")
    with made.client() as client:
        refused = client.post(made.api + "/exec", json={"command": "cd ~/keyed && git push origin HEAD:x"}).json()
    assert refused["exit_code"] != 0
    assert "Permission denied" in refused["stderr"]


def test_credentials_are_withheld_from_others_also_after_a_transfer(
    shop: Repositories, git_server: GitServer, credential: str
) -> None:
    """A workspace is given away when nothing runs in it: neither owner's secrets are there for the other."""
    git_server.make("private/given", {"README.md": "x\n"})
    made = shop.create("given", repo={"url": git_server.url("private/given")})
    assert made.settled()["state"] == "done", made.setup()
    with shop.stack.client() as client:
        made_user = client.post("/api/v1/users", json={"username": "bob", "password": "bob-bob-bob"})
        assert made_user.status_code == 201, made_user.text
        assert client.post(f"{made.api}:transfer", json={"username": "bob"}).status_code == 409, "it runs"
        made.until("STANDBY")
        moved = client.post(f"{made.api}:transfer", json={"username": "bob"})
        assert moved.status_code == 202, moved.text
    with httpx.Client(base_url=shop.stack.url, timeout=60, trust_env=False) as client:
        key = client.post("/api/v1/login", json={"username": "bob", "password": "bob-bob-bob"}).json()["session_key"]
        token = client.post("/api/v1/tokens", json={"name": "t"}, headers={"X-CodeHub-Session-Key": key}).json()[
            "token"
        ]
    bobs = Made(shop.stack, made.workspace_id, token)
    assert bobs.view()["owner"] == "bob"
    bobs.until("STANDBY")
    bobs.put("RUNNING", "RUNNING")
    with bobs.client() as client:
        fetched = client.post(
            bobs.api + "/exec", json={"command": "cd ~/given && GIT_TERMINAL_PROMPT=0 git fetch origin"}
        ).json()
        assert fetched["exit_code"] != 0, "the first owner's credential is not the second's"
        assert f"no credential for {git_server.address}" in fetched["stderr"]
        assert client.get("/api/v1/git-credentials").json()["items"] == []


def test_a_disabled_users_running_workspace_loses_credentials_key_and_secrets_at_once(
    shop: Repositories, git_server: GitServer, tmp_path: Path
) -> None:
    git_server.make("private/left", {"README.md": "x\n"})
    hers = Repositories(shop.stack, token_of_another_user(shop.doors(), "carol"))
    hers.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    (tmp_path / "left").write_text("hidden")
    hers.codehub("secrets", "set", "left", "--file", str(tmp_path / "left"))
    hers.codehub("git-auth", "key")
    made = hers.create("left", repo={"url": git_server.url("private/left")})
    assert made.settled()["state"] == "done", made.setup()
    # A program that began before goes on: it cannot be started afterwards.
    loop = (
        "cd ~/left; export GIT_TERMINAL_PROMPT=0; while :; do git fetch -q 2> /dev/null && echo git > ~/next || : > ~/next;"
        " ssh-add -l > /dev/null && echo key >> ~/next; cat $CODEHUB_SECRETS_DIR/left >> ~/next; mv ~/next ~/now;"
        " sleep 0.2; done"
    )
    with made.client() as client:
        assert client.post(made.api + "/processes", json={"command": loop}).status_code == 201
    now = made.files() / "now"
    shop.stack.wait(lambda: now.exists() and now.read_text() == "git\nkey\nhidden")
    with shop.stack.client() as admin:
        (account,) = [each for each in admin.get("/api/v1/users").json()["items"] if each["username"] == "carol"]
        admin.patch(f"/api/v1/users/{account['id']}", json={"disabled": True}).raise_for_status()
        shop.stack.wait(lambda: now.read_text() == "")
        admin.patch(f"/api/v1/users/{account['id']}", json={"disabled": False}).raise_for_status()
        shop.stack.wait(lambda: now.read_text() == "git\nkey\nhidden")
        admin.delete(made.api, params={"force": "true"}).raise_for_status()


def test_a_token_of_one_workspace_reads_and_changes_no_credentials(shop: Repositories, credential: str) -> None:
    made = shop.create("limited", start=False)
    with shop.stack.client() as client:
        answer = client.post("/api/v1/tokens", json={"name": "limited", "workspace_id": made.workspace_id})
        limited = answer.json()["token"]
    with made.client(limited) as client:
        assert client.get("/api/v1/git-credentials").status_code == 403
        assert client.get("/api/v1/secrets").status_code == 403
        assert client.put("/api/v1/secrets/X", json={"value": "x"}).status_code == 403
