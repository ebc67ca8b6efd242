"""Dotfiles, secrets and devcontainer.json in a real workspace, from a real git server."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.git_server import TOKEN, USER, GitServer, git
from testing.codehub.repositories import Made, Repositories

pytestmark = [
    pytest.mark.xdist_group("repos"),
    pytest.mark.needs("root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl", "bwrap", "slirp4netns"),
]
_SECRET = "s3cret-which-must-never-be-in-a-home"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() + "  -\n"


def until_prints(made: Made, command: str, wanted: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (said := made.sh(command)) != wanted:
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


def test_dotfiles_of_a_private_repository_are_installed_and_a_failing_script_leaves_it_usable(
    shop: Repositories, git_server: GitServer
) -> None:
    shop.codehub("git-auth", "add", git_server.address, "--username", USER, stdin=TOKEN.encode())
    git_server.make(
        "private/dotfiles", {"install.sh": "#!/bin/sh\necho installing; cp shellrc ~/.shellrc\n", "shellrc": "A=1\n"}
    )
    shop.codehub("dotfiles", git_server.url("private/dotfiles"))
    made = shop.create("dots")
    assert made.settled()["state"] == "done", made.setup()
    assert made.sh("cat ~/.shellrc") == "A=1\n"
    assert "installing" in made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    git_server.make("public/links", {".vimrc": "set number\n", ".config/tool/rc": "x\n", "README.md": "no dotfile\n"})
    shop.codehub("dotfiles", git_server.url("public/links"))
    linked = shop.create("links")
    assert linked.settled()["state"] == "done", linked.setup()
    assert linked.sh("cat ~/.vimrc; ls -a ~ | grep -c README || true") == "set number\n0\n"
    git_server.make("public/broken", {"install.sh": "#!/bin/sh\necho oh no; exit 3\n"})
    shop.codehub("dotfiles", git_server.url("public/broken"))
    broken = shop.create("broken")
    failed = broken.settled()
    assert "exit code 3" in failed["text"]
    assert broken.sh("echo usable") == "usable\n"
    shop.codehub("dotfiles", "--none")


def test_secrets_are_in_the_environment_and_in_memory_and_never_in_the_home(shop: Repositories) -> None:
    shop.codehub("secrets", "set", "API_TOKEN", stdin=_SECRET.encode() + b"\n")
    made = shop.create("secrets")
    made.until("RUNNING")
    # The IDE itself was started with it, and so is what it starts.
    ide = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^[^ ]*python3 -u -c'"
        " && tr '\\0' '\\n' < $p/environ | grep ^API_TOKEN | sha256sum; done; true"
    )
    # By its digest: what a command prints is kept in the home.
    until_prints(made, ide, _digest(f"API_TOKEN={_SECRET}\n"))
    until_prints(made, "printenv API_TOKEN | sha256sum", _digest(f"{_SECRET}\n"))
    # Changed while it runs: files at once, the environment of new commands at once.
    shop.ask("PUT", "secrets/cert.pem", {"kind": "file", "value": _SECRET})
    until_prints(made, 'cat "$CODEHUB_SECRETS_DIR/cert.pem" 2>/dev/null | sha256sum', _digest(_SECRET))
    assert made.sh('stat -f -c %T "$CODEHUB_SECRETS_DIR"; stat -c %a "$CODEHUB_SECRETS_DIR"') == "tmpfs\n700\n"
    shop.codehub("secrets", "rm", "API_TOKEN")
    until_prints(made, "printenv API_TOKEN | sha256sum", _digest(""))
    shop.codehub("secrets", "rm", "cert.pem")
    until_prints(made, 'ls "$CODEHUB_SECRETS_DIR"', "")
    assert shop.ask("GET", "secrets")["items"] == []
    home = made.files()
    held = [p for p in home.rglob("*") if p.is_file() and not p.is_symlink() and _SECRET.encode() in p.read_bytes()]
    assert held == []
    assert _SECRET not in shop.stack.output()


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("BIG", {"value": "x" * 9000}, "8 KiB"),
        ("BIG", {"kind": "file", "value": "x" * 70_000}, "64 KiB"),
        ("PATH", {"value": "x"}, "set by CodeHub"),
        ("1NAME", {"value": "x"}, "does not begin with a digit"),
        ("EMPTY", {"value": ""}, "must not be empty"),
    ],
)
def test_a_secret_that_cannot_be_kept_is_refused_with_a_reason(
    shop: Repositories, name: str, body: dict[str, object], words: str
) -> None:
    with shop.doors().client() as client:
        answer = client.put(f"/api/v1/secrets/{name}", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


_ON_THE_HOST = Path(f"/tmp/{uuid.uuid4()}")
_PYTHON = {
    "name": "Python",
    "image": "mcr.example/devcontainers/python:3",
    "features": {"ghcr.example/features/node:1": {}},
    "containerEnv": {"APP_MODE": "development", "ROOT": "${containerWorkspaceFolder}"},
    "remoteEnv": {"THIS": "${devcontainerId}", "HERS": "${localEnv:HERS}"},
    "forwardPorts": [8000, "db:5432"],
    "portsAttributes": {"8000": {"label": "Web", "onAutoForward": "openBrowser"}},
    "secrets": {"API_KEY": {"description": "For the service"}, "OWNED": {}},
    "onCreateCommand": "echo created >> ~/order",
    "postCreateCommand": {"one": "echo one >> ~/parallel", "two": ["sh", "-c", "echo two >> ~/parallel"]},
    "postStartCommand": "echo started >> ~/order",
    "initializeCommand": f"touch {_ON_THE_HOST}",
    "mounts": ["source=/,target=/host,type=bind"],
    "customizations": {"vscode": {"settings": {"editor.tabSize": 3}, "extensions": ["ms-python.python"]}},
}


def test_devcontainer_json_runs_its_commands_sets_its_environment_and_says_what_has_no_effect(
    shop: Repositories, git_server: GitServer
) -> None:
    text = "// written by hand\n" + json.dumps(_PYTHON, indent=1)
    git_server.make("public/python", {".devcontainer/devcontainer.json": text, "app.py": "print(1)\n"})
    shop.codehub("secrets", "set", "OWNED", stdin=b"x")
    made = shop.create("python", repo={"url": git_server.url("public/python")})
    made.until_setup(lambda now: any(step["id"].startswith("devcontainer") for step in now["steps"]))
    done = made.settled()
    assert done["state"] == "done", done
    assert made.sh("cat ~/order; sort ~/parallel") == "created\nstarted\none\ntwo\n"
    assert made.sh("echo $APP_MODE $ROOT") == "development /home/coder/python\n"
    assert made.sh("echo $THIS$HERS") == f"{made.workspace_id}\n"
    assert (done["ports"], done["port_labels"]) == ([8000, 5432], {"8000": "Web"})
    ignored = {each["key"]: each["reason"] for each in done["ignored"]}
    in_others, elsewhere = {"image", "features", "extensions"}, {"initializeCommand", "mounts", "${localEnv:HERS}"}
    assert set(ignored) == in_others | elsewhere | {"portsAttributes.onAutoForward", "secrets.API_KEY"}
    assert "needs a container" in ignored["image"]
    assert not _ON_THE_HOST.exists()
    assert made.sh("ls -d /host 2>/dev/null || true") == ""
    assert json.loads(made.sh("cat ~/.local/share/code-server/Machine/settings.json"))["editor.tabSize"] == 3
    # Once per home, or at each start.
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    until_prints(made, "cat ~/order", "created\nstarted\nstarted\n")
    assert made.sh("sort ~/parallel") == "one\ntwo\n"


def test_the_repositorys_variables_are_the_same_after_a_restart_and_leave_the_workspace_usable(
    shop: Repositories, git_server: GitServer
) -> None:
    document = {
        "containerEnv": {"TOOLS": "${containerEnv:HOME}/tools", "LANG": "C", "HOME": "/tmp", "SSH_AUTH_SOCK": "/x"},
        "remoteEnv": {"PATH": "${containerEnv:PATH}:${containerEnv:TOOLS}/bin"},
        "postStartCommand": ["sh", "-c", "echo $0 >> ~/words", "${containerEnv:TOOLS}"],
    }
    git_server.make("public/variables", {".devcontainer.json": json.dumps(document)})
    made = shop.create("variables", repo={"url": git_server.url("public/variables")})
    made.until_setup(lambda now: len(now["steps"]) == 2)
    done = made.settled()
    assert {each["key"] for each in done["ignored"]} == {"containerEnv.HOME", "containerEnv.SSH_AUTH_SOCK"}
    ask = "echo $HOME $LANG $TOOLS ${PATH##*:}; command -v sort; test -S $SSH_AUTH_SOCK && echo agent"
    before = made.sh(ask)
    assert before == "/home/coder C /home/coder/tools /home/coder/tools/bin\n/usr/bin/sort\nagent\n"
    path = made.sh("echo $PATH")
    # An older CodeHub saved what it read; a program in the workspace can too.
    saved = '{"NUL": "a\\u0000b", "PATH": "${PATH}:/opt", "HOME": "/tmp"}'
    made.sh(f"printf %s '{saved}' > ~/.local/state/codehub/setup/environment.json")
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    until_prints(made, "cat ~/words", "/home/coder/tools\n/home/coder/tools\n")
    assert made.sh(ask) == before
    assert made.sh("echo $PATH") == path, "it grows by no start"
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    assert made.sh(ask) == before


def test_setup_commands_of_a_later_version_of_the_template_are_for_new_homes(shop: Repositories) -> None:
    def push(commands: str) -> None:
        shop.ask("POST", "templates", {"source": f"[templates.grown]\nsetup = [{commands}]\n"})

    push('"echo one >> ~/ran"')
    made = shop.create("grown", template="grown")
    made.until_setup(lambda now: bool(now["steps"]))
    made.settled()
    push('"echo one >> ~/ran", "echo two >> ~/ran"')
    shop.ask("POST", f"workspaces/{made.workspace_id}:update-template", {})
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    made.until_setup(lambda now: now["state"] == "done")
    new = shop.create("grown too", template="grown")
    new.until_setup(lambda now: len(now["steps"]) == 2)
    new.settled()
    assert new.sh("cat ~/ran") == "one\ntwo\n"
    assert made.view()["template"]["version"] == 2
    assert (len(made.setup()["steps"]), made.sh("cat ~/ran")) == (1, "one\n")


def test_what_a_stop_interrupts_is_repeated_at_the_next_start(shop: Repositories, git_server: GitServer) -> None:
    held = git_server.make_held("stopped")
    command = "echo $PPID > ~/began; test -e ~/go || sleep 100000; echo ran >> ~/ran"
    git_server.make("public/stopped-too", {".devcontainer.json": json.dumps({"postCreateCommand": command})})
    cloning = shop.create("cloning", repo={"url": held.url})
    running = shop.create("running", repo={"url": git_server.url("public/stopped-too")})
    cloning.until_setup(lambda now: now.get("percent") is not None)
    until_prints(running, "test -e ~/began && echo began || true", "began\n")
    cloning.put("STANDBY", "STANDBY")
    running.put("STANDBY", "STANDBY")
    held.release()
    (running.files() / "go").touch()
    cloning.put("RUNNING", "RUNNING")
    running.put("RUNNING", "RUNNING")
    cloning.until_setup(lambda now: now["state"] == "done" and now["folder"] == "stopped")
    until_prints(running, "cat ~/ran", "ran\n")
    assert running.settled()["state"] == "done"


def test_a_retry_that_cannot_be_written_down_says_so_and_may_be_repeated(
    shop: Repositories, git_server: GitServer
) -> None:
    bare = git_server.make("public/unwritten", {"README.md": "x\n"})
    made = shop.create("unwritten", repo={"url": git_server.url("public/unwritten"), "ref": "later"})
    assert made.settled()["state"] == "failed"
    git(bare, "branch", "later")
    state = "cd ~/.local/state/codehub && "
    made.sh(state + "mv setup away && touch setup")  # as on a full disk, nothing is written there
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    said = made.until_setup(lambda now: bool(now["error"]))
    assert (said["error"], said["retry"]) == ("The state of the setup cannot be saved: Not a directory", "Try again")
    made.sh(state + "rm setup && mv away setup")
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    assert made.until_setup(lambda now: now["state"] == "done" and now["folder"] == "unwritten")["error"] == ""


def test_a_command_that_fails_and_a_file_with_an_error_leave_the_workspace_usable(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make(
        "public/failing",
        {
            ".devcontainer.json": '{"postCreateCommand": "echo why; cat ~/ready || exit 7", "postStartCommand": "true"}'
        },
    )
    made = shop.create("failing", repo={"url": git_server.url("public/failing")})
    made.until_setup(lambda now: now["state"] == "failed")
    failed = made.settled()
    assert "exit code 7" in failed["text"]
    assert [step["state"] for step in failed["steps"]] == ["done", "failed", "skipped"]
    assert failed["steps"][2]["message"] == "It was not run, because postCreateCommand failed."
    made.put("STANDBY", "STANDBY")
    made.put("RUNNING", "RUNNING")
    made.until_setup(lambda now: [step["state"] for step in now["steps"]] == ["done", "failed", "done"])
    made.sh("touch ~/ready")
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    repeated = made.until_setup(lambda now: now["state"] == "done")
    assert [step["state"] for step in repeated["steps"]] == ["done", "done", "done"]
    assert "why" in made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    git_server.make("public/wrong", {".devcontainer.json": '{"forwardPorts": ["none"]'})
    wrong = shop.create("wrong", repo={"url": git_server.url("public/wrong")})
    said = wrong.until_setup(lambda now: bool(now.get("error")))
    assert said["error"].startswith(".devcontainer.json: line 1")
    assert wrong.sh("echo usable") == "usable\n"


def test_branches_are_offered_with_ones_own_credential_and_never_from_the_machine_itself(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("private/branches", {"a": "a"}, branch="trunk")
    shop.codehub("git-auth", "add", git_server.address, "--username", USER, stdin=TOKEN.encode())
    found = shop.ask("POST", "repositories/branches", {"url": git_server.url("private/branches")})
    assert found == {"default": "trunk", "items": ["trunk"]}
    shop.codehub("git-auth", "rm", git_server.address)
    port = shop.stack.url.rpartition(":")[2]
    # Not asked at all, which is another answer than that there is no repository.
    not_asked = "cannot be reached from here"
    refused = {
        git_server.url("private/branches"): "wants a credential",
        git_server.url("public/none"): "there is no repository",
        f"http://127.0.0.1:{port}/x.git": not_asked,
        f"http://localhost:{port}/x.git": not_asked,
        "http://[::1]/x.git": not_asked,
        "http://169.254.169.254/latest/meta-data.git": not_asked,
        "http://10.213.0.1/x.git": not_asked,
        "file:///etc/x.git": "https",
    }
    with shop.doors().client() as client:
        for url, why in refused.items():
            answer = client.post("/api/v1/repositories/branches", json={"url": url})
            assert answer.status_code == 400, (url, answer.text)
            assert why in answer.json()["error"]["message"], (url, answer.text)
            assert TOKEN not in answer.text


def test_a_setup_command_of_a_template_that_fails_is_shown_and_the_others_run(
    shop: Repositories, git_server: GitServer
) -> None:
    git_server.make("public/prepared", {"README.md": "x\n"})
    source = f"""[templates.prepared]
repo = "{git_server.url("public/prepared")}"
setup = ["pwd; echo the reason; exit 4", "echo level $CODEHUB_PARAM_LEVEL > ~/second"]

[templates.prepared.parameters.level]
choices = ["low", "high"]
default = "low"
"""
    shop.ask("POST", "templates", {"source": source})
    made = shop.create("prepared", template="prepared", parameters={"level": "high"})
    made.until_setup(lambda now: len(now["steps"]) == 3)
    failed = made.settled()
    assert [step["state"] for step in failed["steps"]] == ["done", "failed", "done"], failed
    assert "exit code 4" in failed["text"]
    log = made.codehub("ws", "setup-log", made.workspace_id).stdout.decode()
    assert "/home/coder/prepared\nthe reason\n" in log
    assert made.sh("cat ~/second") == "level high\n"
    # Fixed in the workspace, and repeated by the button: what is done is not done again.
    made.sh("rm ~/second")
    shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    again = made.settled()
    assert [step["state"] for step in again["steps"]] == ["done", "failed", "done"]
    made.sh("test ! -e ~/second")


def test_the_command_line_waits_for_the_setup_of_a_template_without_a_repository(shop: Repositories) -> None:
    source = '[templates.commands]\nsetup = ["until test -e ~/go; do sleep 0.1; done; exit 3"]\n\n[templates.bare]\n'
    shop.ask("POST", "templates", {"source": source})
    create = ("ws", "create", "--wait", "--template")
    assert shop.codehub(*create, "bare", "no commands").startswith("no commands: Running")
    command = shop.stack.command(*create, "commands", "commanded")
    env = {**shop.stack.environment, "CODEHUB_SERVER": shop.stack.url, "CODEHUB_TOKEN": shop.token}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        while b"until test" not in said:
            assert waiting.poll() is None, said
            said = waiting.stderr.readline()
        (shop.stack.home_of("commanded") / "go").touch()
        said = waiting.stderr.read()
    assert waiting.returncode == 1
    assert b"exit code 3" in said
