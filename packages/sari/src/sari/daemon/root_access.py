"""Decides which workspace a tool call uses, and whether its client may open it.

A model writes the arguments of a call, and content that it read may have influenced them (prompt injection). A call may
therefore name only the client's own roots, directories below them, and directories that the user allowed with `sari
allow`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sari.edits.folders import is_read_only
from sari.protocol.jsonrpc import Message
from sari.registry.allowed import read_allowed
from sari.registry.layout import Layout
from sari.registry.roots import RefusedRoot, resolve_root


class RootAccess:
    """The access check of one daemon."""

    def __init__(self, layout: Layout, home: str) -> None:
        self._layout = layout
        self._home = home

    def root_of(self, arguments: Mapping[str, object], meta: Message, default: str) -> str:
        """Return the root of a call: from its `workspace` argument, the shim or the HTTP URL. Raises `RefusedRoot`."""
        own = _own_roots(meta, default)
        base = own[0] if own else ""
        named = arguments.get("workspace")
        if isinstance(named, str) and named:
            return self._allowed(os.path.join(base, named) if base else named, own)
        why = meta.get("sari/root_error")
        if isinstance(why, str):
            raise RefusedRoot(why)
        if not base:
            raise RefusedRoot("no workspace is known for this call: pass its root as `workspace`")
        return resolve_root(base, self._home)

    def check_writable(self, root: str, meta: Message, default: str) -> None:
        """Refuse an edit outside the client's own roots. Directories allowed with `sari allow` are read-only."""
        own = _own_roots(meta, default)
        if not any(_is_within(root, os.path.realpath(one)) for one in own):
            raise RefusedRoot(f"{root} is not this client's workspace, so its files are read but not changed")
        if is_read_only(os.fsencode(root).strip(b"/") + b"/"):
            raise RefusedRoot(f"{root} holds installed dependencies: their files are read but not changed")

    def _allowed(self, named: str, own: Sequence[str]) -> str:
        resolved = resolve_root(named, self._home)
        if any(_is_within(resolved, os.path.realpath(root)) for root in own):
            return resolved
        if any(_is_within(resolved, root) for root in read_allowed(self._layout)):
            return resolved
        whose = f"this client's workspace ({', '.join(own)})" if own else "this client's workspaces (it has none)"
        raise RefusedRoot(
            f"{resolved} is outside {whose}. If you want clients to open it, the user runs `sari allow {resolved}`"
        )


def _own_roots(meta: Message, default: str) -> list[str]:
    """Return the client's roots, starting with the default for its calls."""
    known, listed = meta.get("sari/root"), meta.get("sari/roots")
    base = known if isinstance(known, str) and known else default
    roots = [base, *(listed if isinstance(listed, list) else [])]
    return [root for root in roots if isinstance(root, str) and root]


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def without_sari_fields(params: Message) -> Message:
    """Return a client's params without the `_meta` fields that only a shim may send."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not any(str(key).startswith("sari/") for key in meta):
        return params
    return {**params, "_meta": {key: value for key, value in meta.items() if not str(key).startswith("sari/")}}
