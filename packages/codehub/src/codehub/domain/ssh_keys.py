"""Parses, checks and fingerprints SSH public keys. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from datetime import datetime

from codehub.domain.errors import Invalid

_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
_LONGEST = 16 << 10


@dataclass(frozen=True, slots=True)
class PublicKey:
    type: str
    blob: str  # base64
    comment: str

    @property
    def line(self) -> str:
        """The line for `authorized_keys`, without the comment, which is arbitrary user input."""
        return f"{self.type} {self.blob}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as printed by `ssh-keygen -l`."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class SshKey:
    """One of a user's public keys."""

    id: str
    user_id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class HostKey:
    """A workspace's host key."""

    private_key: str
    public_key: str


def parse_public_key(text: str) -> PublicKey:
    """Parse one line of a `.pub` file.

    Options before the key (`command=…`) are rejected: they would have no effect here.
    """
    if "PRIVATE KEY" in text:
        raise Invalid("this is a private key: keep it secret, and add the file that ends in .pub")
    words = text.strip().split(None, 2)
    if len(text) > _LONGEST or "\n" in text.strip() or len(words) < 2 or words[0] not in _TYPES:
        raise Invalid("not an SSH public key: one line such as `ssh-ed25519 AAAA… name`")
    try:
        raw = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("not an SSH public key: its middle part is not base64") from None
    size = int.from_bytes(raw[:4], "big")
    if raw[4 : 4 + size] != words[0].encode() or len(raw) < 4 + size + 8:
        raise Invalid("not an SSH public key: it is damaged")
    comment = "".join(char for char in words[2] if char.isprintable())[:255] if len(words) > 2 else ""
    return PublicKey(words[0], base64.b64encode(raw).decode(), comment)
