"""Secrets and git credentials: which names and values are stored. The bounds are those of the kernel and of git."""

from __future__ import annotations

import pytest

from codehub.domain.errors import Invalid
from codehub.domain.user_secrets import (
    ALL_ENV_BYTES,
    ALL_FILE_BYTES,
    ENV_BYTES,
    FILE_BYTES,
    SecretKind,
    check_secret,
    check_token,
    parse_git_host,
)

# The kernel refuses one variable of more than 128 KiB, and all arguments and variables of more than 2 MiB.
_KERNELS_LONGEST_VARIABLE = 128 << 10
_KERNELS_LONGEST_ENVIRONMENT = 2 << 20


@pytest.mark.parametrize(("kind", "most"), [(SecretKind.ENV, 8 << 10), (SecretKind.FILE, 64 << 10)])
def test_a_value_may_be_as_long_as_documented_and_no_longer(kind: SecretKind, most: int) -> None:
    check_secret("TOKEN", kind, b"x" * most)
    with pytest.raises(Invalid, match=rf"at most {most >> 10} KiB, and this has {most + 1} bytes"):
        check_secret("TOKEN", kind, b"x" * (most + 1))


def test_a_value_too_long_for_a_variable_may_be_kept_as_a_file_and_the_message_says_so() -> None:
    with pytest.raises(Invalid, match="as a file it may have 64 KiB"):
        check_secret("TOKEN", SecretKind.ENV, b"x" * (ENV_BYTES + 1))
    with pytest.raises(Invalid) as caught:
        check_secret("TOKEN", SecretKind.FILE, b"x" * (FILE_BYTES + 1))
    assert "as a file" not in str(caught.value)


def test_all_secrets_of_a_user_fit_into_an_environment_and_into_a_small_memory_disk() -> None:
    assert ENV_BYTES <= ALL_ENV_BYTES <= _KERNELS_LONGEST_VARIABLE
    assert ALL_ENV_BYTES * 8 <= _KERNELS_LONGEST_ENVIRONMENT
    assert (ALL_ENV_BYTES, ALL_FILE_BYTES) == (32 * 1024, 1024 * 1024)
    assert FILE_BYTES <= ALL_FILE_BYTES


def test_binary_data_and_nul_are_for_files() -> None:
    for value in (b"\xff\xfe", b"a\0b"):
        check_secret("key.bin", SecretKind.FILE, value)
        with pytest.raises(Invalid, match="file"):
            check_secret("KEY", SecretKind.ENV, value)
    check_secret("KEY", SecretKind.ENV, "zwölf".encode())


@pytest.mark.parametrize("kind", list(SecretKind))
def test_an_empty_value_is_refused(kind: SecretKind) -> None:
    with pytest.raises(Invalid, match="must not be empty"):
        check_secret("TOKEN", kind, b"")


@pytest.mark.parametrize("name", ["HOME", "PATH", "LD_AUDIT", "SSH_AUTH_SOCK", "CODEHUB_ANY", "GIT_CONFIG_KEY_0"])
def test_a_variable_that_codehub_sets_is_refused_but_a_file_may_have_that_name(name: str) -> None:
    with pytest.raises(Invalid, match=r"set by CodeHub|every program"):
        check_secret(name, SecretKind.ENV, b"x")
    check_secret(name, SecretKind.FILE, b"x")


def test_names_follow_the_rule_of_their_kind() -> None:
    check_secret("_a1", SecretKind.ENV, b"x")
    check_secret("id_ed25519.pub", SecretKind.FILE, b"x")
    check_secret("1password", SecretKind.FILE, b"x")
    for name in ("1A", "a-b", "a.b"):
        with pytest.raises(Invalid, match="does not begin with a digit"):
            check_secret(name, SecretKind.ENV, b"x")
    for kind in SecretKind:
        check_secret("a" * 128, kind, b"x")
        with pytest.raises(Invalid, match="name"):
            check_secret("a" * 129, kind, b"x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("github.com/", ("https", "github.com")),
        ("https://github.com/", ("https", "github.com")),
        ("https://github.com//", ("https", "github.com")),
        ("https://github.com/app", ("https", "github.com")),
        ("http://127.0.0.1:3000", ("http", "127.0.0.1:3000")),
    ],
)
def test_a_host_may_end_with_a_slash_or_name_a_repository(text: str, expected: tuple[str, str]) -> None:
    assert parse_git_host(text) == expected


def test_a_host_reached_by_ssh_has_a_key_and_no_token() -> None:
    with pytest.raises(Invalid, match="SSH uses your key"):
        parse_git_host("ssh://git@example.org/team/app.git")


def test_git_gets_each_part_of_a_credential_on_one_line() -> None:
    check_token("u" * 255, "t" * 8192)
    check_token("Zoë", "a b~")
    for username, token in (("", "t"), ("u", ""), ("u" * 256, "t"), ("u", "t" * 8193)):
        with pytest.raises(Invalid, match="username" if token == "t" else "token"):
            check_token(username, token)
    for char in ("\0", "\n", "\r", "\x1f", "\x7f"):
        with pytest.raises(Invalid, match="control"):
            check_token("u", f"a{char}")
        with pytest.raises(Invalid, match="control"):
            check_token(f"a{char}", "t")
