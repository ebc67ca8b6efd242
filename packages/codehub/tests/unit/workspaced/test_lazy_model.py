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


def is_full(model: LazyModel) -> bool:
    """Ask again: mypy takes an attribute for what it was in the last condition."""
    return model.full


def test_other_events_happen_while_a_viewer_waits_for_the_screen() -> None:
    async def run() -> tuple[int, bytes]:
        model = LazyModel(120, 40, lambda: None)
        model.add(COLOURED * (600_000 // len(COLOURED)))
        waiting = asyncio.ensure_future(model.snapshot())
        others = 0
        while not waiting.done():
            await asyncio.sleep(0)
            others += 1
        return others, await waiting

    others, screen = asyncio.run(run())
    assert others > 5
    assert screen.count(b"some text") > 40


def test_a_few_bytes_that_change_a_large_screen_do_not_hold_up_other_events() -> None:
    async def run() -> int:
        model = LazyModel(300, 300, lambda: None)
        model.add(b"\x1b[300M" * 500)
        waiting = asyncio.ensure_future(model.snapshot())
        others = 0
        while not waiting.done():
            await asyncio.sleep(0)
            others += 1
        return others

    assert asyncio.run(run()) > 5


def test_no_output_is_read_while_the_model_is_far_behind_or_a_viewer_waits() -> None:
    async def run() -> None:
        room = asyncio.Event()
        model = LazyModel(80, 24, room.set)
        while not model.full:
            model.add(b"0" * 100_000)
        while is_full(model):
            await room.wait()
            room.clear()
        model.add(COLOURED * 100)
        waiting = asyncio.ensure_future(model.snapshot())
        await asyncio.sleep(0)
        assert model.full
        await waiting
        assert not model.full

    asyncio.run(run())


def test_coloured_output_is_drawn_in_small_blocks_and_plain_output_in_large_ones() -> None:
    async def fill(model: LazyModel, data: bytes) -> int:
        while not model.full:
            model.add(data)
        await model.snapshot()
        size = 0
        while not is_full(model):
            model.add(data)
            size += len(data)
        await model.snapshot()
        return size

    async def run() -> tuple[int, int]:
        model = LazyModel(80, 24, lambda: None)
        return await fill(model, COLOURED * 20), await fill(model, b"plain line\r\n" * 50)

    coloured, plain = asyncio.run(run())
    assert coloured * 4 < plain


def test_a_resize_takes_its_place_in_the_output() -> None:
    async def run() -> bytes:
        model = LazyModel(10, 3, lambda: None)
        model.add(b"0123456789ab")
        model.resize(20, 3)
        model.add(b"\r\nafter")
        return await model.snapshot()

    plain = Terminal(10, 3)
    plain.feed(b"0123456789ab")
    plain.resize(20, 3)
    plain.feed(b"\r\nafter")
    assert asyncio.run(run()) == plain.snapshot()


@given(st.lists(st.sampled_from([b"x" * 3_000, COLOURED * 20, b"line\r\n" * 400, "漢".encode()[:2]]), max_size=5))
def test_the_screen_is_exact_at_any_moment(pieces: list[bytes]) -> None:
    async def run() -> bytes:
        model = LazyModel(80, 24, lambda: None)
        for piece in pieces:
            model.add(piece)
            await asyncio.sleep(0)  # a slice, perhaps, and more output meanwhile
        return await model.snapshot()

    plain = Terminal(80, 24)
    for piece in pieces:
        plain.feed(piece)
    # Not the fixture: hypothesis runs this many times.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_model, "_LARGE_BLOCK", 2_000)
        assert asyncio.run(run()) == plain.snapshot()
