"""Workspaces from a repository of a real git server: cloned in the workspace, explained when it fails, tried again."""

from __future__ import annotations

import base64
import os

import pytest

from testing.codehub.git_server import OTHER_TOKEN, OTHER_USER, TOKEN, USER, GitServer, git
from testing.codehub.repositories import Repositories

pytestmark = [
    pytest.mark.xdist_group("repos"),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]


def test_a_public_repository_is_cloned_and_the_ide_opens_there(shop: Repositories, git_server: GitServer) -> None:
    git_server.make("public/hello", {"README.md": "hello\n", "docs/guide.md": "guide\n"})
    made = shop.create("hello", repo={"url": git_server.url("public/hello"), "path": "docs"})
    done = made.settled()
    assert done["state"] == "done", done
    assert made.sh("cat ~/hello/README.md") == "hello\n"
    assert made.sh("git -C ~/hello status --porcelain") == ""
    assert done["folder"] == "hello/docs"
    assert made.view()["repo"] == {"url": git_server.url("public/hello"), "ref": "", "path": "docs"}


def test_the_command_line_creates_from_a_branch_and_duplicates_with_the_files(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/by-command", {"README.md": "of the branch\n"}, branch="develop")
    url = git_server.url("public/by-command")
    shop.codehub("ws", "create", "by-command", "--repo", url, "--ref", "develop", "--wait")
    (item,) = shop.ask("GET", "workspaces")["items"]
    made = shop.doors(item["id"])
    assert made.settled()["state"] == "done", made.setup()
    made.sh("echo mine > ~/by-command/notes")
    shop.codehub("ws", "stop", "by-command", "--wait")
    before = made.view()
    shop.codehub("ws", "duplicate", "by-command", "its copy", "--wait")
    (copy,) = [each for each in shop.ask("GET", "workspaces")["items"] if each["name"] == "its copy"]
    there = shop.doors(copy["id"])
    assert there.sh("cat ~/by-command/README.md ~/by-command/notes") == "of the branch\nmine\n"
    assert there.sh("git -C ~/by-command branch --show-current") == "develop\n"
    # The copy changes, and the original stays as it was.
    there.sh("echo changed > ~/by-command/notes")
    after = made.view()
    assert {name: after[name] for name in ("phase", "archive_key", "name")} == {
        name: before[name] for name in ("phase", "archive_key", "name")
    }
    assert (made.files() / "by-command/notes").read_text() == "mine\n"


def test_a_private_repository_needs_a_credential_and_a_button_tries_again(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("private/app", {"README.md": "private\n"})
    made = shop.create("app", repo={"url": git_server.url("private/app")})
    failed = made.settled()
    assert failed["state"] == "failed"
    assert "codehub git-auth add" in failed["text"]
    assert made.step("clone")["kind"] == "auth"
    log = made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    assert log.count(made.step("clone")["message"]) == 1, log
    made.until("RUNNING")  # the IDE runs all the same
    shop.ask("POST", "git-credentials", {"host": git_server.url("private/app"), "username": USER, "token": TOKEN})
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and now["folder"] == "app")
    assert made.sh("cat ~/app/README.md") == "private\n"


_WRONG = [
    ("https://{address}/public/nothing.git", "", "missing", "no repository"),
    ("https://{address}/public/bad.git", "no-such-branch", "ref", "no-such-branch"),
    ("https://no-such-host.invalid/app.git", "", "host", "no-such-host.invalid"),
    ("https://10.99.99.99/app.git", "", "host", "CODEHUB_INSTANCE_NETWORKS"),
    ("https://127.0.0.1/app.git", "", "host", "cannot be reached"),
]


def test_what_went_wrong_is_said_in_words_and_the_workspace_is_usable(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/bad", {"README.md": "x"})
    opened = [
        shop.create(f"bad {number}", repo={"url": url.format(address=git_server.address), "ref": ref})
        for number, (url, ref, _, _) in enumerate(_WRONG)
    ]
    for made, (url, _, kind, words) in zip(opened, _WRONG, strict=True):
        failed = made.settled()
        step = made.step("clone")
        assert (failed["state"], step["kind"]) == ("failed", kind), (url, step)
        assert words in step["message"]
        assert made.sh("test ! -e ~/app; echo usable") == "usable\n"


@pytest.mark.parametrize(
    "url", ["file:///etc", "ext::sh -c id", "/etc/passwd", "https://a:b@host/x.git", "--upload-pack=x"]
)
def test_an_address_that_is_no_remote_repository_is_refused_where_it_was_typed(shop: Repositories, url: str) -> None:
    with shop.doors().client() as client:
        answer = client.post("/api/v1/workspaces", json={"name": "x", "repo": {"url": url}})
    assert answer.status_code == 400, answer.text


def test_a_branch_a_tag_or_a_commit_is_checked_out(shop: Repositories, git_server: GitServer) -> None:
    bare = git_server.make("public/refs", {"a.txt": "one\n"})
    commit = git(bare, "rev-parse", "main").strip()
    git(bare, "tag", "v1")
    git(bare, "branch", "feature/x")
    wanted = (("branch", "feature/x", "feature/x"), ("tag", "v1", "HEAD"), ("commit", commit, "HEAD"))
    url = git_server.url("public/refs")
    opened = [(shop.create(f"refs-{name}", repo={"url": url, "ref": ref}), shown) for name, ref, shown in wanted]
    for made, shown in opened:
        assert made.settled()["state"] == "done"
        assert made.sh("git -C ~/refs rev-parse --abbrev-ref HEAD").strip() == shown
        assert made.sh("git -C ~/refs rev-parse HEAD").strip() == commit


def test_a_pull_request_is_checked_out(shop: Repositories, git_server: GitServer) -> None:
    bare = git_server.make("public/asked", {"a.txt": "one\n"})
    commit = git(bare, "commit-tree", "-p", "main", "-m", "Pull me", "main^{tree}").strip()
    git(bare, "update-ref", "refs/pull/7/head", commit)
    url = git_server.url("public/asked")
    for made in [
        shop.create(f"pull {ref}", repo={"url": url, "ref": ref}) for ref in ("pull/7/head", "refs/pull/7/head")
    ]:
        assert made.settled()["state"] == "done", made.setup()
        assert made.sh("git -C ~/asked rev-parse HEAD").strip() == commit


def test_a_repository_without_its_default_branch_is_not_called_empty(
    shop: Repositories, git_server: GitServer
) -> None:
    bare = git_server.make("public/renamed", {"a.txt": "one\n"}, branch="main")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/master")
    git(git_server.place, "init", "-q", "--bare", "repos/public/nothing-yet.git")
    made = shop.create("renamed", repo={"url": git_server.url("public/renamed")})
    empty = shop.create("empty", repo={"url": git_server.url("public/nothing-yet")})
    assert made.settled()["state"] == "done", made.setup()
    assert made.sh("git -C ~/renamed branch --show-current; cat ~/renamed/a.txt") == "main\none\n"
    assert "does not exist" in made.step("clone")["notes"][0]
    assert empty.settled()["state"] == "done", empty.setup()
    assert empty.step("clone")["notes"] == ["The repository is empty."]


def test_an_unusual_name_makes_an_ordinary_folder_and_a_missing_path_is_named(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/.ssh", {"authorized_keys": "x\n", ".devcontainer.json": '{"postCreateCommand": "pwd"}'})
    made = shop.create("odd", repo={"url": git_server.url("public/.ssh"), "path": "no/such"})
    made.until_setup(lambda now: len(now["steps"]) == 2)
    done = made.settled()
    assert (done["state"], done["folder"]) == ("done", "ssh"), done
    assert "no folder “no/such”" in made.step("clone")["notes"][0]
    assert made.sh("ls ~/ssh; ls -d ~/.ssh 2>/dev/null || true") == "authorized_keys\n"
    git_server.make("public/my repo", {"README.md": "x\n"})
    spaced = shop.create("spaced", repo={"url": git_server.url("public/my%20repo")})
    assert spaced.settled()["folder"] == "my-repo"


def test_submodules_that_need_a_credential_are_named_on_the_card_and_fetched_on_request(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("private/part", {"part.txt": "part\n"})
    git_server.make_with_submodule("public/half", "private/part", git_server.url("private/part"))
    made = shop.create("half", repo={"url": git_server.url("public/half")})
    done = made.settled()
    assert (done["state"], done["folder"], done["retry"]) == ("done", "half", "Try again"), done
    assert done["text"].startswith("Submodules were not fetched.")
    assert f"git-auth add {git_server.address}" in done["text"]
    made.sh("echo mine > ~/half/mine")
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and not now["retry"])
    assert made.sh("cat ~/half/part/part.txt ~/half/mine") == "part\nmine\n"


def test_submodules_come_along(shop: Repositories, git_server: GitServer) -> None:
    git_server.make("public/part", {"part.txt": "part\n"})
    git_server.make_with_submodule("public/whole", "public/part", "../part.git")
    made = shop.create("whole", repo={"url": git_server.url("public/whole")})
    assert made.settled()["state"] == "done", made.setup()
    assert made.sh("cat ~/whole/part/part.txt") == "part\n"


def test_large_files_of_a_submodule_come_along(shop: Repositories, git_server: GitServer) -> None:
    content = os.urandom(1 << 20)
    git_server.make_large("private/footage", "film.bin", content)
    git_server.make_with_submodule("private/cinema", "private/footage", "../footage.git")
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    made = shop.create("cinema", repo={"url": git_server.url("private/cinema")})
    assert made.settled()["state"] == "done", made.setup()
    assert made.step("clone")["notes"] == []
    assert (made.files() / "cinema/part/film.bin").read_bytes() == content
    assert made.sh("git -C ~/cinema status --porcelain; git -C ~/cinema/part status --porcelain") == ""


def test_a_submodule_on_another_host_gets_the_credential_of_that_host_alone(
    shop: Repositories, git_server: GitServer
) -> None:
    part = git_server.make("other/part", {"part.txt": "part\n"})
    git_server.make_with_submodule("private/two-hosts", "other/part", git_server.other_url("other/part"))
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    made = shop.create("two hosts", repo={"url": git_server.url("private/two-hosts")})
    done = made.settled()
    assert (done["state"], done["folder"], done["retry"]) == ("done", "two-hosts", "Try again"), done
    assert f"git-auth add {git_server.address}:8443" in done["text"]
    shop.codehub(
        *("git-auth", "add", git_server.other_url("other/part"), "--username", OTHER_USER, "--token-stdin"),
        stdin=OTHER_TOKEN.encode(),
    )
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and not now["retry"])
    assert made.sh("cat ~/two-hosts/part/part.txt") == "part\n"
    made.sh("cd ~/two-hosts/part && git commit -q --allow-empty -m Both && git push -q origin HEAD:main")
    assert git(part, "log", "-1", "--format=%s", "main").strip() == "Both"
    first = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
    assert first not in git_server.elsewhere_log(), "the first host's credential never reaches the second"


def test_a_large_repository_is_cloned_without_old_contents(shop: Repositories, git_server: GitServer) -> None:
    """The installation of these tests calls 4 MB large; the soak test takes 500 MB.

    The server sends 2 MB/s: a download that ends before git shows its size is not interrupted.
    """
    bare = git_server.make("slow/large", {"data.bin": os.urandom(3 << 20)})
    work = git_server.place / "large-work"
    git("/", "clone", "-q", str(bare), str(work))
    for number in range(8):
        (work / "data.bin").write_bytes(os.urandom(3 << 20))
        git(work, "commit", "-q", "-a", "-m", f"Version {number}")
    git(work, "push", "-q", "origin", "HEAD")
    made = shop.create("large", repo={"url": git_server.url("slow/large")})
    assert made.settled()["state"] == "done", made.setup()
    assert any("Partial clone" in note for note in made.step("clone")["notes"])
    assert made.sh("git -C ~/large config remote.origin.partialclonefilter").strip() == "blob:none"
    # An old version is there when it is asked for.
    assert made.sh("git -C ~/large show HEAD~3:data.bin | wc -c").strip() == str(3 << 20)


def test_a_folder_of_the_users_is_never_replaced(shop: Repositories, git_server: GitServer) -> None:
    git_server.make("public/mine", {"README.md": "theirs\n"})
    made = shop.create("mine", repo={"url": git_server.url("public/missing-first").replace("missing-first", "mine2")})
    assert made.settled()["state"] == "failed"
    made.sh("mkdir ~/mine2 && echo precious > ~/mine2/notes.txt")
    git_server.make("public/mine2", {"README.md": "theirs\n"})
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: "is not empty" in now["text"])
    assert made.sh("cat ~/mine2/notes.txt; ls ~/mine2") == "precious\nnotes.txt\n"


def test_what_the_clone_printed_can_be_read(shop: Repositories, git_server: GitServer) -> None:
    git_server.make("public/log", {"README.md": "x"})
    made = shop.create("log", repo={"url": git_server.url("public/log")})
    made.settled()
    assert "Receiving objects: 100%" in made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()


def test_large_files_come_from_lfs_with_the_same_credential(shop: Repositories, git_server: GitServer) -> None:
    content = os.urandom(1 << 20)
    git_server.make_large("private/media", "film.bin", content)
    shop.ask("POST", "git-credentials", {"host": git_server.address, "username": USER, "token": TOKEN})
    made = shop.create("media", repo={"url": git_server.url("private/media")})
    assert made.settled()["state"] == "done", made.setup()
    assert made.step("clone")["notes"] == []
    assert (made.files() / "media/film.bin").read_bytes() == content
    assert made.sh("git -C ~/media status --porcelain") == ""


def test_large_files_of_an_ssh_repository_come_from_the_lfs_server_that_its_host_names(
    shop: Repositories, git_server: GitServer
) -> None:
    """git-lfs runs `git-lfs-authenticate` over SSH with the user's key: no credential for HTTPS is needed."""
    content = os.urandom(1 << 20)
    git_server.make_large("private/films", "film.bin", content, names_server=False)
    git_server.authorize(shop.codehub("git-auth", "key").strip())
    made = shop.create("films", repo={"url": git_server.ssh_url("private/films")})
    assert made.settled()["state"] == "done", made.setup()
    assert made.step("clone")["notes"] == [], made.codehub("ws", "setup-log", made.workspace_id).stdout
    assert (made.files() / "films/film.bin").read_bytes() == content
    assert made.sh("git -C ~/films status --porcelain") == ""
    assert git_server.lfs_authenticated().split() == [f"{git_server.place}/repos/private/films.git", "download"]


def test_a_clone_outlives_a_killed_workspaced(shop: Repositories, git_server: GitServer) -> None:
    held = git_server.make_held("killed")
    made = shop.create("killed", repo={"url": held.url})
    made.until_setup(lambda now: now.get("percent") is not None)
    made.kill_helper(made.helper())
    held.release()
    made.until_setup(lambda now: now["state"] == "done" and now["folder"] == "killed")
    assert made.sh("git -C ~/killed status --porcelain; ls ~/killed | wc -l") == "400\n"
    assert held.clones() == 1, "it went on where it was"


def test_a_clone_that_was_killed_says_so_and_is_repeated_by_the_button(
    shop: Repositories, git_server: GitServer
) -> None:
    held = git_server.make_held("broken-off")
    made = shop.create("broken-off", repo={"url": held.url})
    made.until_setup(lambda now: now.get("percent") is not None)
    made.sh("pkill -KILL -f '[c]lone[.]py'; pkill -KILL git; true")
    failed = made.until_setup(lambda now: now["state"] == "failed")
    assert "interrupted" in failed["text"], failed
    assert made.sh("ls ~/broken-off 2>/dev/null | wc -l") == "0\n", "half a clone is never shown as a whole one"
    held.release()
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and now["folder"] == "broken-off")
    assert made.sh("git -C ~/broken-off fsck 2>&1 | grep -c error; ls ~/broken-off | wc -l").split() == ["0", "400"]


def test_a_clone_that_its_server_breaks_off_says_so_and_leaves_nothing_behind(
    shop: Repositories, git_server: GitServer
) -> None:
    held = git_server.make_held("dropped")
    made = shop.create("dropped", repo={"url": held.url})
    made.until_setup(lambda now: now.get("percent") is not None)
    held.break_off()
    failed = made.until_setup(lambda now: now["state"] == "failed")
    step = made.step("clone")
    assert (step["kind"], failed["retry"]) == ("broken", "Try again"), step
    assert "broke off during the download" in failed["text"]
    assert "fatal:" in made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    assert made.sh("find ~ -name '*.pack' -o -name 'tmp_pack*' | wc -l") == "0\n", "half a clone takes no space"
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    made.until_setup(lambda now: now["state"] == "done" and now["folder"] == "dropped")
    assert made.sh("ls ~/dropped | wc -l") == "400\n"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_repository_of_500_megabytes_is_cloned_without_old_contents(
    shop: Repositories, git_server: GitServer
) -> None:
    work = git_server.place / "huge-work"
    # At 20 MB/s: on loopback, four fifths can be there before git says how much it is, and then git is not interrupted.
    bare = git_server.make("steady/huge", {"README.md": "x"})
    git("/", "clone", "-q", str(bare), str(work))
    # Random bytes: looking for deltas and compressing would take minutes and gain nothing.
    for repository in (bare, work):
        for name, value in (("core.compression", "0"), ("core.bigFileThreshold", "1m"), ("pack.window", "0")):
            git(repository, "config", name, value)
    for number in range(10):
        (work / "data.bin").write_bytes(os.urandom(50 << 20))
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", f"Version {number}")
    git(work, "push", "-q", "origin", "HEAD")
    made = shop.create("huge", repo={"url": git_server.url("steady/huge")})
    done = made.settled()
    assert done["state"] == "done", (done["text"], made.codehub("ws", "setup-log", made.workspace_id).stdout)
    assert any("Partial clone" in note for note in made.step("clone")["notes"])
    # The newest version alone, in the object store and checked out.
    assert int(made.sh("du -sm ~/huge | cut -f1")) < 150
