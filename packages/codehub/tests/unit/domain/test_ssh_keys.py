"""SSH public keys: what is accepted is what `ssh-keygen` writes."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import Invalid
from codehub.domain.ssh_keys import parse_public_key

# GitHub's host key, and the fingerprint that GitHub publishes for it.
_ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
_GITHUBS_FINGERPRINT = "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


def _line(kind: str, body: bytes, *, named: str | None = None) -> str:
    name = (kind if named is None else named).encode()
    return f"{kind} {base64.b64encode(struct.pack('>I', len(name)) + name + body).decode()}"


def test_a_published_key_has_its_published_fingerprint() -> None:
    key = parse_public_key(f"{_ED25519} github.com\n")
    assert key.fingerprint == _GITHUBS_FINGERPRINT
    assert (key.type, key.comment) == ("ssh-ed25519", "github.com")
    assert key.line == _ED25519


@given(st.text(max_size=400))
def test_a_comment_is_shown_without_what_a_terminal_would_obey_and_is_no_part_of_the_line(comment: str) -> None:
    text = " ".join(comment.split())
    key = parse_public_key(f"{_ED25519} {text}")
    assert key.comment == "".join(char for char in text if char.isprintable())[:255]
    assert key.line == _ED25519


def test_a_comment_has_at_most_255_characters() -> None:
    assert len(parse_public_key(f"{_ED25519} {'c' * 300}").comment) == 255


def test_a_private_key_is_refused_with_what_to_do() -> None:
    with pytest.raises(Invalid, match=r"keep it secret.*\.pub"):
        parse_public_key("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "one line such as"),
        ("ssh-ed25519", "one line such as"),
        (f"{_ED25519}\n{_ED25519}", "one line such as"),
        (f'command="id" {_ED25519}', "one line such as"),
        (_line("ssh-dss", b"x" * 8), "one line such as"),
        (_ED25519.replace("AAAAC3", "AAAA-C3"), "not base64"),
        ("ssh-ed25519 ÄÖÜ=", "not base64"),
        ("ssh-ed25519 AAAA", "damaged"),
        (_line("ssh-ed25519", b"x" * 36, named="ssh-rsa"), "damaged"),
        (_line("ssh-ed25519", b"x" * 7), "damaged"),
    ],
)
def test_what_is_no_public_key_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        parse_public_key(text)


def test_a_key_needs_a_field_after_its_type_and_may_be_16_kib_long() -> None:
    """The shortest field is its length (4 bytes) and a few bytes; the longest key is RSA with 16384 bits."""
    assert parse_public_key(_line("ssh-ed25519", b"x" * 8)).type == "ssh-ed25519"
    assert parse_public_key(_line("ssh-rsa", b"x" * (16_384 // 8 * 2))).type == "ssh-rsa"
    longest = _line("ssh-rsa", b"x" * 9) + " "
    fits = longest + "c" * ((16 << 10) - len(longest))
    assert len(fits) == 16 << 10
    assert parse_public_key(fits).type == "ssh-rsa"
    with pytest.raises(Invalid, match="one line"):
        parse_public_key(fits + "c")
