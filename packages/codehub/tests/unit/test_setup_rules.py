"""The rules of a workspace's setup: what is shown of it, which secrets are kept, what git's messages mean."""

from __future__ import annotations

import base64
import ipaddress
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.addresses import is_public
from codehub.adapters.git_remote import GitRemote
from codehub.adapters.secret_box import SecretBox, key_id, open_box
from codehub.domain.errors import Conflict, Invalid
from codehub.domain.repository import parse_url
from codehub.domain.secret_keys import parse_keys
from codehub.domain.setup import (
    SetupState,
    StepState,
    may_change_repository,
    parse_setup,
    retry_label,
    setup_column,
    setup_sentence,
)
from codehub.domain.user_secrets import SecretKind, check_secret, check_token, parse_git_host
from codehub.services import git_keys
from codehub.workspaced.agent import string, take_string
from codehub.workspaced.dotfiles import link_all, script_of
from codehub.workspaced.git_access import configuration
from codehub.workspaced.git_errors import explain, explain_submodule, last_progress
from codehub.workspaced.setup_plan import command_steps, first_steps, folders_of, plain

_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["steps", "folder", "home", "ports", "ignored", "error", "running", "port_labels"]), _JSON
    )
)
def test_whatever_a_workspace_reports_is_bounded_and_kept_as_it_is_shown(raw: dict[str, object]) -> None:
    state = parse_setup(raw)
    assert parse_setup(setup_column(state)) == state
    assert len(setup_sentence(state)) < 3000


def test_the_sentence_tells_what_runs_then_what_failed() -> None:
    step = {"id": "clone", "title": "Clone app", "state": "running"}
    running = parse_setup({"steps": [{**step, "progress": {"step": "Receiving objects", "percent": 40}}]})
    assert setup_sentence(running) == "Clone app: receiving objects, 40 %"
    failed = parse_setup({"steps": [{**step, "state": "failed", "message": "No such host."}]})
    assert setup_sentence(failed) == "Clone app failed. No such host."
    assert failed.failed[0].state is StepState.FAILED
    assert setup_sentence(SetupState()) == ""


def test_the_sentence_names_what_of_devcontainer_json_has_no_effect() -> None:
    one = SetupState(ignored=(("image", "needs a container"),))
    assert setup_sentence(one) == "Of devcontainer.json, image has no effect here."
    many = SetupState(ignored=tuple((key, "") for key in ("image", "features", "mounts", "build", "init", "runArgs")))
    assert setup_sentence(many) == (
        "Of devcontainer.json, image, features, mounts, build, init and 1 more have no effect here."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("github.com", ("https", "github.com")),
        ("Git.Example.org:8443", ("https", "git.example.org:8443")),
        ("https://git.example.org/team/app.git", ("https", "git.example.org")),
        ("http://git.example.org", ("http", "git.example.org")),
    ],
)
def test_a_host_is_named_by_itself_or_by_a_repository_on_it(text: str, expected: tuple[str, str]) -> None:
    assert parse_git_host(text) == expected


@pytest.mark.parametrize("text", ["git@github.com:a/b.git", "file:///etc", "", "a b", "https://user:pw@host/x", "-x"])
def test_what_is_no_host_for_a_token_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_git_host(text)


def test_a_token_is_one_line() -> None:
    with pytest.raises(Invalid, match="token"):
        check_token("git", "a\nb")


@pytest.mark.parametrize("name", ["CODEHUB_X", "PATH", "GIT_CONFIG_COUNT", "A B", "", "1A"])
def test_names_that_would_break_a_workspace_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        check_secret(name, SecretKind.ENV, b"x")


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", ""])
def test_a_secret_file_stays_in_its_folder(name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        check_secret(name, SecretKind.FILE, b"x")


def _box(*keys: bytes) -> SecretBox:
    return SecretBox(keys)


@given(st.binary(max_size=200), st.text(max_size=30))
def test_what_is_sealed_opens_in_its_own_row_alone(value: bytes, context: str) -> None:
    box = _box(b"k" * 32)
    sealed = box.seal(value, context)
    assert box.open(sealed, context) == value
    with pytest.raises(Conflict):
        box.open(sealed, context + "x")
    with pytest.raises(Conflict):
        box.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), context)


def test_a_rotated_key_opens_the_old_and_seals_with_the_new() -> None:
    old, new = os.urandom(32), os.urandom(32)
    sealed = _box(old).seal(b"x", "c")
    assert _box(new, old).open(sealed, "c") == b"x"
    assert key_id(new) in _box(new, old).seal(b"x", "c")
    with pytest.raises(Conflict, match="CODEHUB_SECRETS_KEY"):
        _box(new).open(sealed, "c")


def test_the_key_in_the_data_directory_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = open_box("", tmp_path)
    assert open_box("", tmp_path) == first
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secrets.key"]
    assert parse_keys(base64.b64encode(bytes(32)).decode()) == (bytes(32),)
    with pytest.raises(Invalid):
        parse_keys("short")


def test_without_a_place_for_the_key_its_setting_is_named(tmp_path: Path) -> None:
    """As in a container whose root is read-only."""
    with pytest.raises(Invalid, match="set CODEHUB_SECRETS_KEY"):
        open_box("", tmp_path / "missing")


def test_a_key_signs_for_itself_alone() -> None:
    line, private = git_keys.make_key("ada@codehub")
    assert line.startswith("ssh-ed25519 ")
    signature = base64.b64decode(git_keys.sign(private, git_keys.blob_of(line), b"data"))
    kind, rest = take_string(signature)
    assert kind == b"ssh-ed25519"
    assert len(take_string(rest)[0]) == 64
    other, _ = git_keys.make_key("x")
    with pytest.raises(Exception, match="not your key"):
        git_keys.sign(private, git_keys.blob_of(other), b"data")


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_strings_of_the_agent_protocol_are_read_as_they_were_written(one: bytes, rest: bytes) -> None:
    assert take_string(string(one) + rest) == (one, rest)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "auth"),
        ("git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.", "auth"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "host"),
        ("fatal: unable to access 'https://h/': Failed to connect to h port 443: Connection refused", "host"),
        ("fatal: unable to access 'https://h/': SSL certificate problem: unable to get local issuer", "tls"),
        ("fatal: repository 'https://h/x.git/' not found", "missing"),
        (
            "warning: Could not find remote branch x to clone.\nfatal: Remote branch x not found in upstream origin",
            "ref",
        ),
        ("error: file write error: No space left on device\nfatal: unable to write", "space"),
        ("fatal: write error: Disk quota exceeded\nfatal: fetch-pack: invalid index-pack output", "space"),
        (
            "error: RPC failed; curl 18 transfer closed with outstanding read data remaining\n"
            "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF\n"
            "fatal: fetch-pack: invalid index-pack output",
            "broken",
        ),
        ("error: RPC failed; curl 56 Recv failure: Connection reset by peer\nfatal: early EOF", "broken"),
        ("Connection to h closed by remote host.\nfatal: early EOF", "broken"),
        ("error: RPC failed; HTTP 403 curl 22 The requested URL returned error: 403", "auth"),
        ("error: RPC failed; curl 28 Operation too slow. Less than 1 bytes/sec\nfatal: early EOF", "timeout"),
        ("ERROR: Repository not found.\nfatal: The remote end hung up unexpectedly", "missing"),
        ("error: index-pack died of signal 9\nfatal: fetch-pack: invalid index-pack output", "memory"),
        ("fatal: something new", "other"),
        ("", "other"),
    ],
)
def test_gits_messages_are_told_apart(said: str, kind: str) -> None:
    trouble = explain(said, "https://h/x.git", "x")
    assert trouble.kind == kind
    assert trouble.message.endswith((".", "new"))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "fatal: could not read Username for 'https://other.example'\n"
            "fatal: clone of 'https://other.example/part.git' into submodule path '/h/part' failed",
            "git-auth add other.example",
        ),
        (
            "fatal: transport 'ext' not allowed\n"
            "fatal: clone of 'ext::sh -c id' into submodule path '/h/part' failed",
            "over HTTPS, HTTP or SSH",
        ),
        ("fatal: remote error: upload-pack: not our ref 01234", "does not have the commit"),
    ],
)
def test_a_missing_submodule_is_explained_with_its_own_host(said: str, words: str) -> None:
    message = explain_submodule(said, "https://h/x.git")
    assert message.startswith("Submodules were not fetched. ")
    assert words in message


@pytest.mark.parametrize("user", ["ghp_token", "bob:ghp_token", ":ghp_token", "ghp_token:"])
def test_a_token_in_the_url_of_a_submodule_is_not_repeated(user: str) -> None:
    said = (
        f"fatal: repository 'https://{user}@other.example/part.git/' not found\n"
        f"fatal: clone of 'https://{user}@other.example/part.git' into submodule path '/h/part' failed"
    )
    message = explain_submodule(said, "https://h/x.git")
    assert "There is no repository at https://other.example/part.git" in message
    assert "ghp_token" not in message


def test_a_clone_without_all_its_files_is_shown_and_may_be_tried_again() -> None:
    step = {"id": "clone", "title": "Clone app", "state": "done", "kind": "incomplete", "notes": ["No part.", "Big."]}
    state = parse_setup({"steps": [step]})
    assert (setup_sentence(state), retry_label(state)) == ("No part.", "Try again")
    assert not may_change_repository(state)
    fine = parse_setup({"steps": [{**step, "kind": ""}]})
    assert (setup_sentence(fine), retry_label(fine)) == ("", "")


def test_progress_is_the_newest_line() -> None:
    said = "Receiving objects:  10% (1/10), 1.00 MiB | 1 MiB/s\rReceiving objects:  50% (5/10), 5.50 MiB | 1 MiB/s"
    found = last_progress(said)
    assert found is not None
    assert (found.percent, found.received) == (50, int(5.5 * (1 << 20)))
    assert plain("one\rtwo\nthree") == "two\nthree"


def test_the_configuration_replaces_other_helpers_for_known_hosts_alone() -> None:
    text = configuration("!helper", ["https://git.example.org", 'https://evil"\n[core]'], "")
    assert text == (
        '[credential]\n\thelper = "!helper hint"\n'
        '[credential "https://git.example.org"]\n\thelper =\n\thelper = "!helper"\n'
    )


def test_steps_come_in_order_and_only_whole_commands_count() -> None:
    message = {
        "repo": {"url": "https://h/app.git", "name": "app", "path": "src"},
        "dotfiles": {"url": "https://h/d.git"},
    }
    assert [step.kind for step in first_steps(dict(message))] == ["clone", "dotfiles"]
    assert folders_of(message["repo"]) == ("app/src", "app")
    steps = command_steps(
        [{"shell": "make"}, {"shell": ""}, {"words": ["a", "b"], "when": "start"}, 3], "t", "", needs_clone=False
    )
    assert [(step.title, step.once) for step in steps] == [("make", True), ("a b", False)]


def test_dotfiles_are_linked_and_what_is_in_the_way_is_kept(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "home/.dotfiles"
    (folder / ".config/tool").mkdir(parents=True)
    (folder / ".config/tool/rc").write_text("new")
    (folder / ".bashrc").write_text("new")
    (folder / "README.md").write_text("no")
    (home / ".config").mkdir()
    (home / ".config/other").write_text("mine")
    (home / ".bashrc").write_text("mine")
    assert link_all(str(folder), str(home)) == []
    assert (home / ".bashrc").read_text() == "new"
    assert (home / ".bashrc.bak").read_text() == "mine"
    assert (home / ".config/tool/rc").read_text() == "new"
    assert (home / ".config/other").read_text() == "mine"
    assert not (home / "README.md").exists()
    assert link_all(str(folder), str(home)) == [], "doing it again changes nothing"
    assert script_of(str(folder)) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.1.1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "0.0.0.0",
        "fd00::1",
        "100.64.0.1",
        "224.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fe80::1%eth0",
        "168.63.129.16",
        "192.0.0.192",
    ],
)
def test_addresses_that_only_this_machine_should_reach_are_never_asked_for_a_user(address: str) -> None:
    assert not is_public(address, set())


def test_a_private_network_that_workspaces_reach_is_asked_but_never_this_machine_itself() -> None:
    allowed = [ipaddress.ip_network("10.20.0.0/16")]
    assert is_public("10.20.1.1", set(), allowed)
    assert not is_public("10.21.1.1", set(), allowed)
    assert not is_public("10.20.1.1", {"10.20.1.1"}, allowed)
    assert is_public("93.184.216.34", set(), allowed)


async def test_branches_over_ssh_are_typed() -> None:
    with pytest.raises(Invalid, match="type the branch"):
        await GitRemote().branches(parse_url("git@h:a/b.git"), "", "")


def test_nothing_of_a_secret_is_in_what_is_shown() -> None:
    from codehub.domain.user_secrets import UserSecret

    assert "value" not in UserSecret.__dataclass_fields__
    assert UserSecret("A", SecretKind.ENV, 1, datetime.now(UTC)).bytes == 1
