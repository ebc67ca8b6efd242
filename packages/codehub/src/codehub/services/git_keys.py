"""A user's key for git over SSH: created here, stored encrypted, and used to sign. The private key never leaves CodeHub."""

from __future__ import annotations

import base64
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from codehub.domain.errors import Denied

_KIND = b"ssh-ed25519"


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def make_key(comment: str) -> tuple[str, bytes]:
    """Return (public line, private key's 32 bytes)."""
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return f"{public_line(private)} {comment}", private


def public_line(private: bytes) -> str:
    key = Ed25519PrivateKey.from_private_bytes(private).public_key()
    blob = _string(_KIND) + _string(key.public_bytes(Encoding.Raw, PublicFormat.Raw))
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def blob_of(line: str) -> str:
    return line.split()[1]


def sign(private: bytes, blob: str, data: bytes) -> str:
    """Return an SSH signature by this key if it is the requested one."""
    if blob_of(public_line(private)) != blob:
        raise Denied("this is not your key at CodeHub any more")
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(data)
    return base64.b64encode(_string(_KIND) + _string(signature)).decode()
