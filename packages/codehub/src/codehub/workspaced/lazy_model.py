"""The model of a terminal's screen, a block of output behind it, so that heavy output stays responsive.

Plain lines that scroll out of a large block need not be drawn. Coloured output must be: a megabyte takes about a second. So
it is drawn in slices between other events, and in small blocks, for which a new viewer waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Callable

from .vt import Terminal as Model

_LARGE_BLOCK = 512 << 10
_SMALL_BLOCK = 64 << 10
_SLICE_S = 0.002
_Size = tuple[int, int]


class LazyModel:
    def __init__(self, cols: int, rows: int, pace: Callable[[], None]) -> None:
        """`pace` is called when `full` may have changed."""
        self._model = Model(cols, rows)
        self._pace = pace
        self._waiting: list[bytes | _Size] = []
        self._size = 0
        self._block = _LARGE_BLOCK
        self._drawing: Iterator[None] | None = None
        self._drawn = asyncio.Event()
        self._viewers = 0  # that wait for the screen

    @property
    def full(self) -> bool:
        """Return whether no more output should be read for now."""
        return self._size >= self._block or self._viewers > 0

    def add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= self._block:
            self._draw()

    def resize(self, cols: int, rows: int) -> None:
        """Resize the screen after the output so far."""
        self._waiting.append((cols, rows))
        self._draw()

    async def snapshot(self) -> bytes:
        """Return the bytes that draw the screen after all output."""
        self._viewers += 1
        try:
            self._pace()
            while self._drawing is not None or self._waiting:
                self._draw()
                await self._drawn.wait()
            return self._model.snapshot()
        finally:
            self._viewers -= 1
            self._pace()

    def _draw(self) -> None:
        if self._drawing is None:
            self._drawn.clear()
            self._drawing = self._next_block()
            asyncio.get_running_loop().call_soon(self._draw_slice)

    def _next_block(self) -> Iterator[None]:
        waiting, self._waiting, self._size = self._waiting, [], 0
        data: list[bytes] = []
        for item in [*waiting, None]:
            if isinstance(item, bytes):
                data.append(item)
                continue
            yield from self._model.feeding(b"".join(data))
            data = []
            if item is not None:
                self._model.resize(*item)

    def _draw_slice(self) -> None:
        if self._drawing is None:
            return
        until = time.monotonic() + _SLICE_S
        for _ in self._drawing:
            if time.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._draw_slice)
                return
        self._drawing = None
        self._block = _LARGE_BLOCK if self._model.skipped else _SMALL_BLOCK
        self._drawn.set()
        if self._size >= self._block:
            self._draw()
        self._pace()
