"""Images, Dockerfiles and features of devcontainer.json on a real engine, from a real git server.

Nothing can be pulled here, so the images of the five kinds are local ones: a tool of that kind on the tests' own base.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from testing.codehub.dev_images import (
    KINDS,
    building_repositories,
    image_step,
    open_repository,
    other_user,
    output,
    rest_and_wake,
    until_image,
)
from testing.codehub.docker import GIT_IMAGE, DockerEngine
from testing.codehub.feature_registry import FeatureRegistry, feature_registry
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.git_server import GitServer
from testing.codehub.repositories import Made, Repositories

pytestmark = [
    pytest.mark.needs(
        "docker", "docker-registry", "root", "git", "git-lfs", "nginx", "fcgiwrap", "sshd", "ip", "openssl"
    ),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def registry() -> Iterator[FeatureRegistry]:
    """With a certificate of its own authority, and a login."""
    with feature_registry(private=True) as running:
        yield running


@pytest.fixture(scope="module")
def builder_shop(
    docker_engine: DockerEngine, git_server: GitServer, registry: FeatureRegistry
) -> Iterator[Repositories]:
    with building_repositories(docker_engine, git_server, registry) as running:
        yield running


@pytest.fixture(autouse=True)
def only_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "builder_shop" in request.fixturenames:
        request.getfixturevalue("builder_shop").delete_all()


_DOCUMENTS: dict[str, dict[str, Any]] = {
    "python": {"containerEnv": {"PYTHONPATH": "${containerWorkspaceFolder}/src"}},
    "node": {"forwardPorts": [3000], "remoteUser": "node"},
    "go": {"remoteEnv": {"GOFLAGS": "-mod=vendor"}, "runArgs": ["--cap-add=SYS_PTRACE"]},
    "java": {"customizations": {"vscode": {"settings": {"java.home": "/usr/bin"}}}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_image_of_devcontainer_json_is_used_and_its_commands_run_in_it(
    builder_shop: Repositories, git_server: GitServer, kind: str
) -> None:
    document = {
        "image": f"codehub-test/{kind}:1",
        "postCreateCommand": f"{kind}-tool created >> ~/order",
        "postStartCommand": f"{kind}-tool started >> ~/order",
        **_DOCUMENTS[kind],
    }
    text = f"// {kind}\n{json.dumps(document)}"
    made = open_repository(builder_shop, git_server, f"kind-{kind}", {".devcontainer/devcontainer.json": text})
    done = until_image(made, "done")
    assert done["state"] == "done", done
    assert made.sh(f"{kind}-tool here; cat ~/order") == "here\ncreated\nstarted\n"
    assert image_step(done)["title"] == f"Use the image codehub-test/{kind}:1"
    ignored = {each["key"] for each in done["ignored"]}
    if kind == "python":
        assert made.sh("echo $PYTHONPATH") == f"/home/coder/kind-{kind}/src\n"
        # After sleep it is the same image, and nothing is done twice.
        rest_and_wake(made)
        until_image(made, "done")
        assert made.sh("python-tool again; cat ~/order") == "again\ncreated\nstarted\nstarted\n"
    elif kind == "node":
        assert (done["ports"], ignored) == ([3000], {"remoteUser"})
    elif kind == "go":
        assert (made.sh("echo $GOFLAGS"), ignored) == ("-mod=vendor\n", {"runArgs"})
    else:
        assert json.loads(made.sh("cat ~/.local/share/code-server/Machine/settings.json")) == {
            "java.home": "/usr/bin"
        }


_DOCKERFILE = f"""# syntax=docker/dockerfile:1
ARG VARIANT=1
FROM codehub-test/python:${{VARIANT}} AS base
RUN echo the base is built

FROM base AS dev
ARG WORD
COPY . /context
RUN echo "$WORD of the build" > /etc/word \\
    # and what is in the context
    && ls -a /context
FROM {GIT_IMAGE}
RUN echo never built
"""
_FEATURE = {
    "id": "greeting",
    "version": "1.0.0",
    "options": {"text": {"type": "string", "default": "hello"}},
    "containerEnv": {"GREETING_HOME": "/opt/greeting"},
}
_INSTALL = '#!/bin/sh\nset -e\nmkdir -p /opt/greeting\necho "$TEXT for $_REMOTE_USER" > /opt/greeting/text\n'
_BUILT = {
    "build": {
        "dockerfile": "Dockerfile",
        "context": "..",
        "args": {"WORD": "argument"},
        "target": "dev",
        "options": ["--privileged"],
    },
    "features": {"./greeting": {"text": "good day"}},
    "postCreateCommand": "cp /etc/word ~/word",
}


def _built_files() -> dict[str, str]:
    return {
        ".devcontainer/devcontainer.json": json.dumps(_BUILT),
        ".devcontainer/Dockerfile": _DOCKERFILE,
        ".devcontainer/greeting/devcontainer-feature.json": json.dumps(_FEATURE),
        ".devcontainer/greeting/install.sh": _INSTALL,
        ".dockerignore": "secret*\n.git\n",
        "secret.txt": "not for the image",
        "app.py": "print(1)\n",
    }


def test_a_dockerfile_with_features_is_built_once_and_rebuilt_when_its_owner_asks(
    builder_shop: Repositories, git_server: GitServer
) -> None:
    made = open_repository(builder_shop, git_server, "built", _built_files())
    done = until_image(made, "done")
    assert done["state"] == "done", done
    assert made.sh("cat /etc/word ~/word $GREETING_HOME/text; ls /context; python-tool too").splitlines() == [
        "argument of the build",
        "argument of the build",
        "good day for coder",
        "app.py",
        "too",
    ]
    assert {each["key"] for each in done["ignored"]} == {"build.options"}
    said = output(made)
    assert "the base is built" in said
    assert "never built" not in said
    # Never built at wake, and a change waits for its owner.
    made.sh("sed -i 's/of the build/of the second build/' ~/built/.devcontainer/Dockerfile")
    rest_and_wake(made)
    offered = until_image(made, "skipped")
    assert (offered["state"], offered["retry"]) == ("done", "Apply the image")
    assert "has changed" in offered["text"]
    assert made.sh("cat /etc/word") == "argument of the build\n"
    builder_shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    until_image(made, "done")
    assert made.sh("cat /etc/word ~/word") == "argument of the second build\nargument of the build\n"


def test_features_of_a_registry_are_installed_in_order_with_their_options_and_pinned_by_the_lock_file(
    builder_shop: Repositories, git_server: GitServer, registry: FeatureRegistry
) -> None:
    team = f"{registry.address}/team"
    append = "#!/bin/sh\nset -e\necho {} >> /etc/features\n"
    registry.push("team/common", {"id": "common", "privileged": True}, append.format("common"))
    options = {"version": {"type": "string", "enum": ["latest", "3.12"], "default": "latest"}}
    python = {"id": "python", "options": options, "dependsOn": {f"{team}/common:1": {}}}
    pinned = registry.push("team/python", python, append.format("python $VERSION"))
    # A newer one under the same tag: the lock file keeps the old one.
    registry.push("team/python", python, append.format("newer"))
    lock = {f"{team}/python:1": {"version": "1.0.0", "resolved": f"{team}/python@{pinned}", "integrity": pinned}}
    document = {"image": "codehub-test/python:1", "features": {f"{team}/python:1": "3.12", "./local": {}}}
    files = {
        ".devcontainer/devcontainer.json": json.dumps(document),
        ".devcontainer/devcontainer-lock.json": json.dumps({"features": lock}),
        ".devcontainer/local/devcontainer-feature.json": json.dumps({"id": "local", "installsAfter": ["python"]}),
        ".devcontainer/local/install.sh": append.format("local"),
    }
    made = open_repository(builder_shop, git_server, "featured", files)
    done = until_image(made, "done")
    assert made.sh("cat /etc/features") == "common\npython 3.12\nlocal\n"
    assert f"{team}/common:1 privileged" in {each["key"] for each in done["ignored"]}
    assert f"Fetch the feature {team}/python:1@{pinned}" in output(made)
    rest_and_wake(made)
    assert until_image(made, "done")["state"] == "done"
    assert output(made).count("Fetch the feature") == 2
    # Without the lock file, and with an option that it does not have: said where it can be fixed.
    # With its quotes: the registry's address may hold the same digits.
    change = 'sed -i \'s/"3[.]12"/"3.13"/\' devcontainer.json'
    made.sh(f"cd ~/featured/.devcontainer && rm devcontainer-lock.json && {change}")
    builder_shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    assert "is one of latest, 3.12" in until_image(made, "failed")["text"]
    assert made.sh("echo usable") == "usable\n"


def test_another_users_build_of_the_same_dockerfile_replaces_no_image(
    builder_shop: Repositories, git_server: GitServer, docker_engine: DockerEngine
) -> None:
    """Images were once named by the Dockerfile alone: whoever built it last decided what everybody's next start ran."""
    files = {
        ".devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        "Dockerfile": "FROM codehub-test/go:1\nCOPY tool.sh /usr/bin/tool\n",
    }

    def build(shop: Repositories, folder: str, word: str) -> Made:
        git_server.make(f"public/{folder}/app", {**files, "tool.sh": f"#!/bin/sh\necho {word}\n"})
        made = shop.create(folder, repo={"url": git_server.url(f"public/{folder}/app")})
        until_image(made, "done")
        assert made.sh("tool") == f"{word}\n"
        return made

    victim = build(builder_shop, "victim", "mine")
    attacker = build(other_user(builder_shop), "attacker", "evil")
    with docker_engine.client() as client:
        listed = client.get("http://docker/images/json").json()
    names = [name for item in listed for name in item["RepoTags"] or [] if name.startswith("localhost/codehub-dev-")]
    digests = [name.rpartition("-")[0] for name in names]
    assert any(digests.count(each) == 2 for each in digests), "both are built from the same Dockerfile"
    for made, word in ((victim, "mine"), (attacker, "evil")):
        rest_and_wake(made)
        until_image(made, "done")
        assert made.sh("tool") == f"{word}\n"


def test_a_build_that_fails_is_explained_and_the_workspace_goes_on_without_it(
    builder_shop: Repositories, git_server: GitServer
) -> None:
    files = {
        ".devcontainer.json": json.dumps(
            {"build": {"dockerfile": "Dockerfile"}, "postCreateCommand": "echo ran > ~/ran"}
        ),
        "Dockerfile": "FROM codehub-test/node:1\nRUN echo the reason && exit 5\n",
    }
    made = open_repository(builder_shop, git_server, "failing", files)
    failed = until_image(made, "failed")
    assert "non-zero code: 5" in failed["text"]
    assert "goes on with the image of its template" in failed["text"]
    assert "the reason" in output(made)
    assert made.sh("cat ~/ran; echo usable") == "ran\nusable\n"
    # It is not built again at the next start, but when its owner has fixed it.
    rest_and_wake(made)
    assert until_image(made, "failed")["retry"] == "Try again"
    made.sh("printf 'FROM codehub-test/node:1\\nRUN echo fixed > /fixed\\n' > ~/failing/Dockerfile")
    builder_shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    until_image(made, "done")
    assert made.sh("cat /fixed") == "fixed\n"


@pytest.mark.parametrize(
    ("name", "files", "key", "why"),
    [
        ("denied", {".devcontainer.json": '{"image": "evil.example/image:1"}'}, "image", "CODEHUB_ALLOWED_IMAGES"),
        (
            "denied-base",
            {
                ".devcontainer.json": '{"build": {"dockerfile": "Dockerfile"}}',
                "Dockerfile": "FROM codehub-test/node:1\nCOPY --from=evil.example/x:1 / /\n",
            },
            "build",
            "CODEHUB_ALLOWED_IMAGES",
        ),
        (
            "fetching",
            {
                ".devcontainer.json": '{"build": {"dockerfile": "Dockerfile"}}',
                "Dockerfile": "FROM codehub-test/node:1\nADD http://169.254.169.254/latest /x\n",
            },
            "build",
            "line 2: ADD takes files",
        ),
        (
            "absent",
            {".devcontainer.json": '{"build": {"dockerfile": "Dockerfile"}}'},
            "build",
            "not in the repository",
        ),
        (
            "remote",
            {".devcontainer.json": '{"image": "codehub-test/go:1", "features": {"ghcr.example/go:1": {}}}'},
            "features",
            "CODEHUB_ALLOWED_FEATURES",
        ),
    ],
)
def test_what_is_not_allowed_is_said_and_the_workspace_runs(
    builder_shop: Repositories, git_server: GitServer, name: str, files: dict[str, str], key: str, why: str
) -> None:
    made = open_repository(builder_shop, git_server, name, files)
    done = made.until_setup(lambda now: bool(now.get("ignored")) and now["state"] == "done")
    reasons = {each["key"]: each["reason"] for each in done["ignored"]}
    assert why in reasons[key], reasons
    assert f"{key} " in done["text"] or key in done["text"]
    assert made.sh("echo usable") == "usable\n"


def test_an_image_that_was_removed_is_made_again_and_one_that_does_not_start_is_left_out(
    builder_shop: Repositories, git_server: GitServer, docker_engine: DockerEngine
) -> None:
    files = {
        ".devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        "Dockerfile": "FROM codehub-test/go:1\nRUN echo made > /made\n",
    }
    made = open_repository(builder_shop, git_server, "removed", files)
    until_image(made, "done")
    made.put("STANDBY", "STANDBY")
    with docker_engine.client() as client:
        for item in client.get("http://docker/containers/json", params={"all": "true"}).json():
            if made.workspace_id in item["Names"][0]:
                client.delete(f"http://docker/containers/{item['Id']}", params={"force": "true"})
        for item in client.get("http://docker/images/json").json():
            for name in item["RepoTags"] or []:
                if name.startswith("localhost/codehub-dev-"):
                    client.delete(f"http://docker/images/{name}", params={"force": "true"})
    made.put("RUNNING", "RUNNING")
    until_image(made, "done")
    assert made.sh("cat /made") == "made\n"
    # One whose IDE ends at once: the next attempt starts with the template's image.
    made.sh("printf 'FROM codehub-test/go:1\\nRUN echo x > /broken\\nCMD [\"false\"]\\n' > ~/removed/Dockerfile")
    builder_shop.ask("POST", f"workspaces/{made.workspace_id}:retry-setup")
    failed = until_image(made, "failed")
    assert "did not start with this image" in failed["text"]
    assert made.sh("test ! -e /broken; echo usable") == "usable\n"
    rest_and_wake(made)
    assert made.sh("test ! -e /broken; echo usable") == "usable\n"


def test_a_coordinator_that_is_killed_while_it_builds_goes_on_after_it(
    builder_shop: Repositories, git_server: GitServer
) -> None:
    files = {
        ".devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        "Dockerfile": "FROM codehub-test/java:1\nRUN echo begun && sleep 20 && echo whole > /whole\n",
    }
    made = open_repository(builder_shop, git_server, "killed", files)
    deadline = time.monotonic() + TIMEOUT_S
    while "begun" not in (said := output(made)):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    (coordinator,) = builder_shop.stack.processes("coordinator")
    coordinator.send_signal(signal.SIGKILL)
    assert until_image(made, "done")["state"] == "done"
    assert made.sh("cat /whole") == "whole\n"
