"""devcontainer.json, rule by rule: where a value may stand, which values are refused, and what has no effect."""

from __future__ import annotations

import json

import pytest

from codehub.domain.devcontainer import Command, DevContainer, When, parse_devcontainer
from codehub.domain.devcontainer_support import Unsupported
from codehub.domain.errors import Invalid
from codehub.domain.jsonc import parse_jsonc


def read(*, containers: bool = True, **document: object) -> DevContainer:
    text = json.dumps(document)
    return parse_devcontainer(
        text, containers=containers, folder="/home/coder/app", home="/home/coder", workspace_id="ws1"
    )


def vscode(**document: object) -> DevContainer:
    return read(customizations={"vscode": document})


def test_a_dockerfile_and_its_context_may_be_named_the_old_way() -> None:
    found = read(dockerFile="Dockerfile.dev", context="..")
    assert (found.dockerfile, found.build_context) == ("Dockerfile.dev", "..")
    assert found.ignored == ()
    both = read(build={"dockerfile": "New", "context": "docker"}, dockerFile="Old", context="..")
    assert (both.dockerfile, both.build_context, both.ignored) == ("New", "docker", ())
    assert read(build={"dockerfile": "Dockerfile"}).build_context == "."


@pytest.mark.parametrize("path", ["../Dockerfile", "docker/../Dockerfile", "a/b"])
def test_a_path_may_leave_the_folder_of_the_file_once(path: str) -> None:
    assert read(build={"dockerfile": path}).dockerfile == path
    assert read(build={"dockerfile": "Dockerfile", "context": path}).build_context == path


@pytest.mark.parametrize("path", ["../../Dockerfile", "a/../../../x", "/Dockerfile", "a\\b", "../a/.."])
def test_a_path_outside_the_repository_is_refused(path: str) -> None:
    for build in ({"dockerfile": path}, {"dockerfile": "Dockerfile", "context": path}):
        with pytest.raises(Invalid, match="leaves the repository"):
            read(build=build)


def test_build_arguments_are_texts_and_know_the_folder() -> None:
    found = read(build={"dockerfile": "D", "args": {"WHERE": "${containerWorkspaceFolder}"}})
    assert found.build_args == {"WHERE": "/home/coder/app"}
    for arguments in ("x", {"A": 1}, ["A=1"]):
        with pytest.raises(Invalid, match=r"build\.args"):
            read(build={"dockerfile": "D", "args": arguments})


def test_only_a_dockerfile_or_features_need_a_build() -> None:
    assert not read(image="a").needs_build
    assert read(build={"dockerfile": "D"}).needs_build
    assert read(image="a", features={"x": {}}).needs_build


def test_the_remote_user_comes_before_the_containers_user() -> None:
    assert read(remoteUser="a", containerUser="b").user == "a"
    assert read(containerUser="b").user == "b"
    assert dict(read(remoteUser="a", containerUser="b").ignored) == {
        "remoteUser": Unsupported.OWN_USER,
        "containerUser": Unsupported.OWN_USER,
    }
    assert read(containerUser="b").ignored == (("containerUser", Unsupported.OWN_USER),)
    assert read(remoteUser="coder").ignored == ()


def test_the_remote_environment_comes_before_the_containers_and_null_unsets() -> None:
    found = read(containerEnv={"A": "1", "B": "2", "C": "3"}, remoteEnv={"B": "3", "C": None, "D": None})
    assert found.env == {"A": "1", "B": "3"}
    with pytest.raises(Invalid, match=r"remoteEnv\.A"):
        read(remoteEnv={"A": 1})


def test_variables_that_no_program_could_be_started_with_are_refused() -> None:
    for env in ({"A": "a\0b"}, {"A": "x" * (33 << 10)}, {f"A{n}": "x" * 1000 for n in range(40)}):
        with pytest.raises(Invalid, match="containerEnv"):
            read(containerEnv=env)
    # The folder's name is longer than the variable's: what counts is the value.
    with pytest.raises(Invalid, match="at most 32 KiB"):
        parse_devcontainer(
            json.dumps({"remoteEnv": {"A": "${containerWorkspaceFolder}" * 500}}),
            containers=False,
            folder="/home/coder/" + "x" * 100,
            home="/home/coder",
            workspace_id="ws1",
        )


def test_what_codehub_sets_itself_stays_and_the_path_can_be_extended() -> None:
    found = read(
        containerEnv={"HOME": "/tmp", "PATH": "/opt/tool/bin:${containerEnv:PATH}", "LANG": "C"},
        remoteEnv={"GIT_CONFIG_COUNT": "0", "CODEHUB_SECRETS_DIR": "/tmp"},
    )
    assert found.env == {"PATH": "/opt/tool/bin:${containerEnv:PATH}", "LANG": "C"}
    assert [key for key, _ in found.ignored] == [
        "containerEnv.HOME",
        "remoteEnv.GIT_CONFIG_COUNT",
        "remoteEnv.CODEHUB_SECRETS_DIR",
    ]
    assert read(remoteEnv={"PATH": "/opt/tool/bin"}).ignored == (("remoteEnv.PATH", Unsupported.OWN_VARIABLE),)


def test_a_shell_fills_in_the_containers_variables_and_words_are_filled_in_by_the_workspace() -> None:
    found = read(
        postCreateCommand="ls ${containerEnv:HOME} ${containerEnv:TOOL:/opt}",
        postStartCommand=["ls", "${containerEnv:HOME}"],
    )
    assert found.commands[0].shell == "ls ${HOME} ${TOOL:-/opt}"
    assert found.commands[1].words == ("ls", "${containerEnv:HOME}")


def test_variables_are_filled_in_and_unknown_ones_stay() -> None:
    found = read(
        remoteEnv={
            "A": "${localWorkspaceFolderBasename}/${containerWorkspaceFolderBasename}",
            "B": "${userHome}:${containerEnv:PATH}",
            "C": "${devcontainerId} ${containerEnv}",
            "D": "${localEnv:ANY}${localEnv:ANY:default}",
        }
    )
    assert found.env == {
        "A": "app/app",
        "B": "/home/coder:${containerEnv:PATH}",
        "C": "ws1 ${containerEnv}",
        "D": "default",
    }


def test_an_empty_command_is_none_and_words_are_filled_in() -> None:
    assert (
        read(onCreateCommand="", updateContentCommand=[], postCreateCommand=None, postStartCommand={}).commands == ()
    )
    assert read(updateContentCommand=["ls", "${containerWorkspaceFolder}"]).commands == (
        Command(When.UPDATE_CONTENT, words=("ls", "/home/coder/app")),
    )


@pytest.mark.parametrize("value", [3, True, ["a", 1], {"a": []}, {"a": {"b": "c"}}])
def test_what_is_no_command_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match="postCreateCommand"):
        read(postCreateCommand=value)


def test_at_most_100_of_anything() -> None:
    assert len(read(postStartCommand={str(n): "x" for n in range(100)}).commands) == 100
    assert len(read(forwardPorts=list(range(1, 101))).ports) == 100
    for document in ({"postStartCommand": {str(n): "x" for n in range(101)}}, {"forwardPorts": list(range(1, 102))}):
        with pytest.raises(Invalid, match="at most 100"):
            read(containers=True, **document)


def test_ports_are_numbers_or_end_in_one_and_are_listed_once() -> None:
    assert read(forwardPorts=[1, 65_535, "db:5432", "3000", 3000]).ports == (1, 65_535, 5432, 3000)
    for port in (0, 65_536, -1, "x", "", "db:", "65536", "000080", "٣", 1.5, True, None, [1]):
        with pytest.raises(Invalid, match="forwardPorts"):
            read(forwardPorts=[port])
    with pytest.raises(Invalid, match="forwardPorts"):
        read(forwardPorts=3000)


def test_settings_and_extensions_of_both_ages_are_merged() -> None:
    found = read(
        customizations={"vscode": {"extensions": ["a.b"], "settings": {"x": 2}}},
        extensions=["c.d", "a.b"],
        settings={"x": 1, "y": 1},
    )
    assert found.extensions == ("a.b", "c.d")
    assert found.settings == {"x": 2, "y": 1}
    assert found.ignored == ()


def test_an_extension_has_a_version_or_is_removed_in_any_case() -> None:
    assert vscode(extensions=["a.b@1.2.3", "-C.D", "c.d", "e.f"]).extensions == ("a.b@1.2.3", "e.f")


@pytest.mark.parametrize("item", ["a", "a.b c", "x.vsix/..", "a/../../x.vsix", "/x.vsix", "c:x.vsix", "a.b;id", 3])
def test_what_is_no_extension_is_refused(item: object) -> None:
    with pytest.raises(Invalid):
        vscode(extensions=[item])


def test_a_file_below_the_clone_is_an_extension_by_its_path() -> None:
    assert vscode(extensions=["pub.name.vsix"]).extensions == ("/home/coder/app/pub.name.vsix",)


@pytest.mark.parametrize(
    "document",
    [
        {"customizations": []},
        {"customizations": {"vscode": []}},
        {"customizations": {"vscode": {"settings": []}}},
        {"customizations": {"vscode": {"extensions": "a.b"}}},
        {"customizations": {"vscode": {"extensions": [3]}}},
        {"features": []},
        {"remoteUser": 3},
        {"build": "."},
        {"build": {"dockerfile": 3}},
        {"settings": []},
    ],
)
def test_a_value_of_another_type_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="is a"):
        read(containers=True, **document)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("runArgs", Unsupported.NOT_ALLOWED),
        ("capAdd", Unsupported.NOT_ALLOWED),
        ("securityOpt", Unsupported.NOT_ALLOWED),
        ("initializeCommand", Unsupported.HOST_SIDE),
        ("dockerComposeFile", Unsupported.COMPOSE),
        ("service", Unsupported.COMPOSE),
        ("runServices", Unsupported.COMPOSE),
        ("colour", Unsupported.UNKNOWN),
    ],
)
def test_what_has_no_effect_is_named_with_its_reason_and_the_rest_is_read(key: str, reason: Unsupported) -> None:
    found = read(containers=True, **{"name": "app", key: ["x"], "init": True, "colour": 1, "image": "a"})
    assert dict(found.ignored) == {key: reason, "colour": Unsupported.UNKNOWN}
    assert found.image == "a"


# Every property of the reference that changes nothing here. What is absent is applied, or only names the file.
_REFERENCE: dict[str, object] = {
    "waitFor": "postCreateCommand",
    "shutdownAction": "none",
    "userEnvProbe": "loginShell",
    "updateRemoteUserUID": True,
    "overrideCommand": False,
    "otherPortsAttributes": {"onAutoForward": "ignore"},
    "secrets": {"API_KEY": {"description": "x"}},
    "hostRequirements": {"cpus": 4},
    "appPort": 3000,
    "workspaceMount": "x",
    "workspaceFolder": "/workspace",
    "mounts": ["x"],
    "runArgs": ["x"],
    "privileged": True,
    "capAdd": ["x"],
    "securityOpt": ["x"],
    "initializeCommand": "x",
    "postAttachCommand": "x",
    "dockerComposeFile": "x",
    "service": "x",
    "runServices": ["x"],
}


@pytest.mark.parametrize("key", _REFERENCE)
def test_every_property_of_the_reference_without_effect_is_named(key: str) -> None:
    found = read(containers=True, **{key: _REFERENCE[key]})
    if key == "secrets":
        assert found.secrets == ("API_KEY",)  # named unless their owner has them
    else:
        ((name, reason),) = found.ignored
        assert name.split(".")[0] == key
        assert reason is not Unsupported.UNKNOWN


def test_what_another_tool_reads_and_unknown_keys_inside_objects_are_named() -> None:
    found = read(
        customizations={"jetbrains": {"plugins": ["x"]}, "codespaces": {}, "vscode": {"devPort": 1}},
        build={"dockerfile": "D", "options": ["--network=host"], "squash": True},
    )
    assert dict(found.ignored) == {
        "build.options": Unsupported.NOT_ALLOWED,
        "build.squash": Unsupported.UNKNOWN,
        "customizations.jetbrains": Unsupported.OTHER_TOOL,
        "customizations.vscode.devPort": Unsupported.UNKNOWN,
    }


def test_ports_have_labels_and_their_other_attributes_are_named_once() -> None:
    web: dict[str, object] = {"label": "Web", "onAutoForward": "openBrowser", "requireLocalPort": True}
    found = read(
        portsAttributes={
            "3000": web,
            "db:5432": {"label": "Database", "onAutoForward": "silent", "protocol": "http", "elevateIfNeeded": False},
            "8443": {"protocol": "https", "onAutoForward": "ignore", "colour": 1},
            "4000-4100": {"label": "Workers"},
            ".+/server.js": {"onAutoForward": "notify"},
        }
    )
    assert found.port_labels == {3000: "Web", 5432: "Database"}
    assert dict(found.ignored) == {
        "portsAttributes.onAutoForward": Unsupported.EVERY_PORT,
        "portsAttributes.requireLocalPort": Unsupported.LOCAL_PORT,
        "portsAttributes.protocol": Unsupported.HTTP,
        "portsAttributes.colour": Unsupported.UNKNOWN,
        "portsAttributes.4000-4100": Unsupported.PORT_PATTERN,
    }
    for wrong in ({"3000": "Web"}, {"3000": {"label": 3}}):
        with pytest.raises(Invalid, match=r"portsAttributes\.3000"):
            read(portsAttributes=wrong)


def test_variables_are_filled_in_anywhere_that_has_an_effect() -> None:
    found = read(
        build={"dockerfile": "${localWorkspaceFolderBasename}.docker", "target": "${devcontainerId}"},
        features={"./x": {"where": "${containerWorkspaceFolder}"}},
        customizations={"vscode": {"settings": {"a": ["${containerWorkspaceFolder}/.venv", 1], "b": "${env:HOME}"}}},
    )
    assert (found.dockerfile, found.build_target) == ("app.docker", "ws1")
    assert found.features == {"./x": {"where": "/home/coder/app"}}
    assert found.settings == {"a": ["/home/coder/app/.venv", 1], "b": "${env:HOME}"}
    nested: object = "x"
    for _ in range(300):
        nested = [nested]
    with pytest.raises(Invalid, match="nested too deeply"):
        vscode(settings={"a": nested})


def test_processes_name_each_part_that_needs_a_container() -> None:
    found = read(containers=False, build={"dockerfile": "D"}, features={"x": {}}, remoteUser="a")
    assert [key for key, _ in found.ignored] == ["build", "features", "remoteUser"]
    assert not found.needs_build
    assert read(containers=False, name="x").ignored == ()


def test_a_file_of_128_kibibytes_is_read_and_a_larger_one_is_refused() -> None:
    text = '{"name": "x"}'
    assert parse_jsonc(text.ljust(128 << 10)) == {"name": "x"}
    with pytest.raises(Invalid, match="128 KiB"):
        parse_jsonc(text.ljust((128 << 10) + 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["/* ", '\\"', '"', "/*", ", ", "/", "\\", ' "\\', ",\n", "/*/"])
@pytest.mark.parametrize("before", ["", '"', "/*", "{", "//"])
def test_no_text_takes_longer_than_its_length_explains(before: str, piece: str) -> None:
    """Each took minutes to hours when a search began again at every character of what was never closed."""
    with pytest.raises(Invalid):
        parse_jsonc(before + piece * (100_000 // len(piece)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["${a:", "${a:b:", "${", "${a", "$"])
def test_variables_that_are_never_closed_are_kept_and_take_no_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    assert read(postCreateCommand=text).commands[0].shell == text


def test_what_is_never_closed_is_reported_where_it_begins() -> None:
    for text in ('{"a": /* 1}', '{"a": /*/', '{"a": "1}'):
        with pytest.raises(Invalid, match="line 1, column 7"):
            parse_jsonc(text)
    assert parse_jsonc('{"a": /**/ 1, /*/ 2 */ "b": "/* \\" //", // c\n}') == {"a": 1, "b": '/* " //'}


def test_a_mistake_is_reported_at_its_place_in_the_file_with_its_comments() -> None:
    with pytest.raises(Invalid, match="line 3, column 10"):
        parse_jsonc('{ // one\n /* two\n */ "a": ?}')
    with pytest.raises(Invalid, match="nested too deeply"):
        parse_jsonc("[" * 60_000 + "]" * 60_000)


def test_text_that_looks_like_a_comment_or_ends_in_a_comma_is_kept_inside_a_string() -> None:
    assert parse_jsonc('\ufeff{"a": "// no /* no */ ,]", "b": "\\"//", /* yes, */ "c": [1, 2,], }') == {
        "a": "// no /* no */ ,]",
        "b": '"//',
        "c": [1, 2],
    }


def test_folders_that_the_workspace_names_do_not_fill_the_memory() -> None:
    settings = {"customizations": {"vscode": {"settings": {"x": "${userHome}" * 10_000}}}}

    def read_with(home: str) -> DevContainer:
        return parse_devcontainer(
            json.dumps(settings), containers=True, folder="/home/coder/app", home=home, workspace_id="ws1"
        )

    assert read_with("/home/coder").settings == {"x": "/home/coder" * 10_000}
    with pytest.raises(Invalid, match="expand to more than 256 KiB"):
        read_with("/" + "x" * 100)
    with pytest.raises(Invalid, match="more than 4096 characters"):
        read_with("/" + "x" * 800_000)


def test_a_number_of_thousands_of_digits_is_an_error_of_the_file() -> None:
    with pytest.raises(Invalid, match="number"):
        parse_jsonc('{"forwardPorts": [' + "7" * 5000 + "]}")
