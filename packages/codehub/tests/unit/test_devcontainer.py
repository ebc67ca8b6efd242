"""devcontainer.json: the five kinds people write, what a process runtime leaves out, and hostile files."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.devcontainer import Command, DevContainer, When, parse_devcontainer
from codehub.domain.devcontainer_support import Unsupported
from codehub.domain.errors import Invalid
from codehub.domain.jsonc import parse_jsonc


def read(text: str, *, containers: bool = True) -> DevContainer:
    return parse_devcontainer(
        text, containers=containers, folder="/home/coder/app", home="/home/coder", workspace_id="ws1"
    )


PYTHON = """
// Python with tools
{
  "name": "Python 3",
  "image": "mcr.example/devcontainers/python:3.12", /* pinned */
  "postCreateCommand": "pip install --user -r requirements.txt",
  "customizations": {"vscode": {"extensions": ["ms-python.python", "charliermarsh.ruff"],
    "settings": {"python.defaultInterpreterPath": "/usr/local/bin/python"},},},
  "remoteEnv": {"PYTHONPATH": "${containerWorkspaceFolder}/src"},
}
"""
NODE = """
{
  "image": "node:22",
  "forwardPorts": [3000, "db:5432"],
  "onCreateCommand": ["npm", "ci"],
  "postStartCommand": {"server": "npm run dev", "watch": ["npm", "run", "watch"]},
  "remoteUser": "node"
}
"""
GO = (
    '{"image": "go:1.23", "features": {"ghcr.example/features/go:1": {}}, "containerEnv": {"GOFLAGS": "-mod=vendor"}}'
)
JAVA = (
    '{"image": "java:21", "customizations": {"vscode": {"extensions": ["vscjava.vscode-java-pack", "-a.b", "A.B"]}}}'
)
DOCKERFILE = """
{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"VARIANT": "bookworm"}},
 "features": {"./local": {"version": "1"}}, "mounts": ["source=/,target=/host,type=bind"], "privileged": true,
 "initializeCommand": "rm -rf /"}
"""


def test_python() -> None:
    found = read(PYTHON)
    assert found.image == "mcr.example/devcontainers/python:3.12"
    assert found.extensions == ("ms-python.python", "charliermarsh.ruff")
    assert found.settings == {"python.defaultInterpreterPath": "/usr/local/bin/python"}
    assert found.env == {"PYTHONPATH": "/home/coder/app/src"}
    assert found.commands == (Command(When.POST_CREATE, shell="pip install --user -r requirements.txt"),)
    assert found.ignored == ()


def test_node_commands_run_in_the_order_of_the_life_cycle() -> None:
    found = read(NODE)
    assert found.ports == (3000, 5432)
    assert found.user == "node"
    assert [(c.when, c.name, c.shell, c.words) for c in found.commands] == [
        (When.ON_CREATE, "", "", ("npm", "ci")),
        (When.POST_START, "server", "npm run dev", ()),
        (When.POST_START, "watch", "", ("npm", "run", "watch")),
    ]
    assert [command.when.once_per_home for command in found.commands] == [True, False, False]


def test_go_with_a_feature_needs_a_build() -> None:
    found = read(GO)
    assert found.needs_build
    assert dict(found.env) == {"GOFLAGS": "-mod=vendor"}


def test_java_extensions_can_be_taken_away_again() -> None:
    assert read(JAVA).extensions == ("vscjava.vscode-java-pack",)


def test_an_extension_may_be_a_file_in_the_repository() -> None:
    items = ["./tools/a.vsix", "${containerWorkspaceFolder}/b.vsix", "c.vsix"]
    found = read(json.dumps({"customizations": {"vscode": {"extensions": items}}}))
    assert found.extensions == tuple(f"/home/coder/app/{name}" for name in ("tools/a.vsix", "b.vsix", "c.vsix"))


def test_a_dockerfile_with_features_gets_no_mounts_and_no_privileges() -> None:
    found = read(DOCKERFILE)
    assert (found.dockerfile, found.build_context, found.build_args) == ("Dockerfile", "..", {"VARIANT": "bookworm"})
    assert dict(found.ignored) == {
        "mounts": Unsupported.NOT_ALLOWED,
        "privileged": Unsupported.NOT_ALLOWED,
        "initializeCommand": Unsupported.HOST_SIDE,
    }


def test_what_cannot_be_honoured_is_named_unless_it_asks_for_nothing() -> None:
    found = read(
        '{"postAttachCommand": "npm start", "hostRequirements": {"cpus": 4}, "workspaceFolder": "/workspaces/app",'
        ' "privileged": false, "mounts": [], "capAdd": null, "portsAttributes": {"3000": {"label": "app"}}}'
    )
    assert dict(found.ignored) == {
        "postAttachCommand": Unsupported.ATTACH,
        "hostRequirements": Unsupported.SIZE,
        "workspaceFolder": Unsupported.FOLDER,
    }
    same = read('{"workspaceFolder": "/home/coder/${localWorkspaceFolderBasename}"}')
    assert same.ignored == ()


def test_processes_get_everything_but_the_image_and_it_is_said() -> None:
    found = read(NODE, containers=False)
    assert (found.image, found.user) == ("", "")
    assert dict(found.ignored) == {"image": Unsupported.NEEDS_CONTAINER, "remoteUser": Unsupported.NEEDS_CONTAINER}
    assert found.ports == (3000, 5432)
    assert len(found.commands) == 3


def test_the_hosts_environment_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEHUB_SECRETS_KEY", "secret")
    found = read('{"remoteEnv": {"A": "${localEnv:CODEHUB_SECRETS_KEY}", "B": "${localEnv:X:fallback}"}}')
    assert dict(found.env) == {"A": "", "B": "fallback"}
    assert found.ignored == (("${localEnv:CODEHUB_SECRETS_KEY}", Unsupported.LOCAL_VARIABLE),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"image": 3}',
        '{"build": {"dockerfile": "../../../etc/passwd"}}',
        '{"build": {"dockerfile": "/etc/passwd"}}',
        '{"forwardPorts": [0]}',
        '{"forwardPorts": [true]}',
        '{"remoteEnv": {"A B": "x"}}',
        '{"customizations": {"vscode": {"extensions": ["--install-extension"]}}}',
        '{"customizations": {"vscode": {"extensions": ["https://evil/x.vsix"]}}}',
        '{"customizations": {"vscode": {"extensions": ["/tmp/x.vsix"]}}}',
        '{"customizations": {"vscode": {"extensions": ["../x.vsix"]}}}',
        '{"customizations": {"vscode": {"extensions": ["${localEnv:HOME:/}/x.vsix"]}}}',
        '{"postCreateCommand": {"a": {"b": "c"}}}',
        "{/* never closed",
        "[" * 100_000,
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Invalid):
        read(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    )
)
def test_plain_json_reads_as_json(value: object) -> None:
    assert parse_jsonc(json.dumps(value)) == value
    assert parse_jsonc(json.dumps(value, indent=1) + " // end") == value


@given(st.text(alphabet='{}[]",:/*\\ \nab1', max_size=60))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with contextlib.suppress(Invalid):
        read(text)
