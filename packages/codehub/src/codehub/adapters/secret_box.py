"""Encrypts secrets at rest with AES-256-GCM. Each value contains its key's id, so that keys can be rotated.

A sealed value is `version (1) | key id (4) | nonce (12) | ciphertext and tag`. Its context (table, user, name) is
authenticated too: a value that is copied into another row cannot be opened there.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from codehub.domain.errors import Conflict, Invalid
from codehub.domain.secret_keys import KEY_BYTES, parse_keys

_VERSION = b"\x01"
_ID_BYTES, _NONCE_BYTES = 4, 12
FILE_NAME = "secrets.key"


@dataclass(frozen=True, slots=True)
class SecretBox:
    """Seals with the first key and opens with any of them."""

    keys: tuple[bytes, ...]

    def seal(self, plain: bytes, context: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        key = self.keys[0]
        return _VERSION + key_id(key) + nonce + AESGCM(key).encrypt(nonce, plain, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        version, found = sealed[:1], sealed[1 : 1 + _ID_BYTES]
        nonce = sealed[1 + _ID_BYTES : 1 + _ID_BYTES + _NONCE_BYTES]
        key = next((key for key in self.keys if key_id(key) == found), None)
        if version != _VERSION or key is None:
            raise Conflict(
                "a secret was encrypted with a key that is not here: set CODEHUB_SECRETS_KEY to the same value for all "
                "parts of CodeHub, or enter the secret again"
            )
        try:
            return AESGCM(key).decrypt(nonce, sealed[1 + _ID_BYTES + _NONCE_BYTES :], context.encode())
        except InvalidTag:
            raise Conflict("a secret in the database is damaged: enter it again") from None


def key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"codehub secrets key id" + key).digest()[:_ID_BYTES]


def open_box(text: str, data_dir: Path, file: Path | None = None) -> SecretBox:
    """Open the box with the setting or its file, else with the key in the data directory, which is created if missing."""
    if text:
        return SecretBox(parse_keys(text))
    if file is not None:
        try:
            return SecretBox(parse_keys(file.read_text().strip()))
        except Invalid as error:
            raise Invalid(f"CODEHUB_SECRETS_KEY_FILE: {file}: {error}") from error
        except OSError as error:
            raise Invalid(f"CODEHUB_SECRETS_KEY_FILE: {file} cannot be read: {error.strerror}") from error
    path = data_dir / FILE_NAME
    try:
        return SecretBox((_file_key(path),))
    except OSError as error:
        raise Invalid(
            f"there is no key for secrets, and {path} cannot be used ({error.strerror}): set CODEHUB_SECRETS_KEY"
        ) from error


def _file_key(path: Path) -> bytes:
    if path.exists():
        return parse_keys(path.read_text().strip())[0]
    with contextlib.suppress(FileExistsError):
        # Linked into place when complete, so that another process never reads a partial key.
        temporary = path.with_name(f".{FILE_NAME}.{os.getpid()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        finally:
            temporary.unlink()
    return parse_keys(path.read_text().strip())[0]
