"""Heavy output and the model of the screen: drawn in slices, and exact when somebody looks."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.workspaced import lazy_model
from codehub.workspaced.lazy_model import LazyModel
from codehub.workspaced.vt import Terminal

COLOURED = b"\x1b[32mok\x1b[0m some text \x1b[1mbold\x1b[0m\r\n"


def test_other_events_happen_while_much_is_drawn() -> None:
    async def run() -> tuple[int, int]:
        drawn = asyncio.Event()
        model = LazyModel(120, 40, drawn.set)
        model.add(COLOURED * (600_000 // len(COLOURED)))
        others = 0
        while not drawn.is_set():
            await asyncio.sleep(0)
            others += 1
        return others, len(model.current().screen.scrollback)

    others, scrolled = asyncio.run(run())
    assert others > 5
    assert scrolled > 0


def test_output_is_held_up_while_the_model_is_far_behind() -> None:
    async def run() -> None:
        room = asyncio.Event()
        model = LazyModel(80, 24, room.set)
        while not model.full:
            model.add(b"0" * 100_000)
        while model.full:
            await room.wait()
            room.clear()

    asyncio.run(run())


@given(st.lists(st.sampled_from([b"x" * 3_000, COLOURED * 20, b"line\r\n" * 400, "漢".encode()[:2]]), max_size=5))
def test_the_screen_is_exact_at_any_moment(pieces: list[bytes]) -> None:
    async def run() -> bytes:
        model = LazyModel(80, 24, lambda: None)
        for piece in pieces:
            model.add(piece)
            await asyncio.sleep(0)  # a slice, perhaps, and more output meanwhile
        return model.current().snapshot()

    plain = Terminal(80, 24)
    for piece in pieces:
        plain.feed(piece)
    # Not the fixture: hypothesis runs this many times.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_model, "_LAZY_BYTES", 2_000)
        assert asyncio.run(run()) == plain.snapshot()
