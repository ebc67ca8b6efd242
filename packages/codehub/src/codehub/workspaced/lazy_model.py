"""The model of a terminal's screen, up to half a megabyte behind the output, so that heavy output stays responsive.

Lines that scroll out of a large block need not be drawn. What must be drawn is drawn in slices between other events: half a
megabyte takes 50 ms, and coloured output ten times that, for which a pressed key would have to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Callable

from .vt import Terminal as Model

_LAZY_BYTES = 512 << 10
_MOST_BYTES = 2 << 20
_SLICE_S = 0.002


class LazyModel:
    def __init__(self, cols: int, rows: int, has_room: Callable[[], None]) -> None:
        """`has_room` is called when a block has been drawn."""
        self._model = Model(cols, rows)
        self._has_room = has_room
        self._waiting: list[bytes] = []
        self._size = 0
        self._drawing: Iterator[None] | None = None  # a block that is being drawn

    @property
    def full(self) -> bool:
        """Return whether no more output should be read for now."""
        return self._size >= _MOST_BYTES

    def add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _LAZY_BYTES and self._drawing is None:
            self._drawing = self._model.feeding(self._take())
            asyncio.get_running_loop().call_soon(self._draw_slice)

    def current(self) -> Model:
        """Return the model after all output."""
        for _ in self._drawing or ():
            pass
        self._drawing = None
        self._model.feed(self._take())
        return self._model

    def _take(self) -> bytes:
        block = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        return block

    def _draw_slice(self) -> None:
        if self._drawing is None:
            return
        until = time.monotonic() + _SLICE_S
        for _ in self._drawing:
            if time.monotonic() >= until:
                break
        else:
            self._drawing = self._model.feeding(self._take()) if self._size > _LAZY_BYTES else None
            self._has_room()
        asyncio.get_running_loop().call_soon(self._draw_slice)
