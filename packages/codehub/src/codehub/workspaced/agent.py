"""An SSH agent that lists the owner's public key and lets CodeHub sign with the private one.

The private key never enters the workspace. Implements only the parts of the agent protocol (draft-miller-ssh-agent) that
OpenSSH needs.
"""

from __future__ import annotations

import asyncio
import base64
import struct

from .link import Link, LinkError

_FAILURE = 5
_REQUEST_IDENTITIES, _IDENTITIES = 11, 12
_SIGN_REQUEST, _SIGNED = 13, 14
_LONGEST_MESSAGE = 256 << 10
_LIST_TIMEOUT_S = 5.0  # every `ssh` requests the list, even if it needs none of our keys


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def take_string(data: bytes) -> tuple[bytes, bytes]:
    """Split off the first string and return it with the rest. Raises ValueError if it is truncated."""
    if len(data) < 4:
        raise ValueError("cut off")
    (size,) = struct.unpack_from(">I", data)
    if len(data) < 4 + size:
        raise ValueError("cut off")
    return data[4 : 4 + size], data[4 + size :]


async def answer(link: Link, message: bytes) -> bytes:
    """Return the reply to one message, without its length."""
    try:
        if message[:1] == bytes([_REQUEST_IDENTITIES]):
            return await _identities(link)
        if message[:1] == bytes([_SIGN_REQUEST]):
            blob, rest = take_string(message[1:])
            data, _ = take_string(rest)
            return await _sign(link, blob, data)
    except (LinkError, ValueError):
        pass
    return bytes([_FAILURE])


async def _identities(link: Link) -> bytes:
    found = await link.ask("ssh-identities", timeout_s=_LIST_TIMEOUT_S)
    keys = found.get("keys")
    reply, count = b"", 0
    for key in keys if isinstance(keys, list) else []:
        if isinstance(key, dict):
            reply += string(base64.b64decode(str(key.get("blob", "")))) + string(str(key.get("comment", "")).encode())
            count += 1
    return bytes([_IDENTITIES]) + struct.pack(">I", count) + reply


async def _sign(link: Link, blob: bytes, data: bytes) -> bytes:
    encoded: dict[str, object] = {"blob": base64.b64encode(blob).decode(), "data": base64.b64encode(data).decode()}
    found = await link.ask("ssh-sign", encoded)
    signature = base64.b64decode(str(found.get("signature", "")))
    return bytes([_SIGNED]) + string(signature) if signature else bytes([_FAILURE])


async def serve_client(link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (size,) = struct.unpack(">I", await reader.readexactly(4))
            if not 1 <= size <= _LONGEST_MESSAGE:
                return
            reply = await answer(link, await reader.readexactly(size))
            writer.write(string(reply))
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
