"""A start waits until git and secrets are configured, and for nothing that will not come. A workspace that floods its link
takes little from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from codehub.adapters.setup_channel import _Stream
from codehub.control.heartbeat import Heartbeat
from codehub.control.metrics import Metrics
from codehub.control.setup_links import SetupLinks
from codehub.domain.errors import UpstreamUnavailable
from codehub.domain.setup import SetupState
from codehub.ports.fence import no_fence
from codehub.ports.instances import InstanceStatus, Upstream
from codehub.ports.setup import Linkable, Message
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual

WORKSPACE = "w"


@dataclass
class Workspaced:
    """One workspace with its helper; also the desk, the links and the backend, as far as these tests use them."""

    refused_connections: int = 0
    may_have_secrets: bool = True
    helper_is_too_old: bool = False
    to_run: bool = True
    identity: str = "start-1"
    revision: int = 0
    reading_s: float = 0.0
    trouble: str = ""
    reports: list[Message] = field(default_factory=list)
    noted: list[SetupState] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    async def linkable(self) -> Sequence[Linkable]:
        found = [Linkable(WORKSPACE, "process", "alice", (self.revision, 0))] if self.to_run else []
        await asyncio.sleep(self.reading_s)
        return found

    async def bind(self, epoch: int, workspace_id: str, instance: str, owner_user_id: str) -> bool:
        return self.may_have_secrets

    async def note(self, epoch: int, workspace_id: str, state: SetupState) -> None:
        self.noted.append(state)

    async def message(self, workspace_id: str, owner_user_id: str) -> Message:
        await asyncio.sleep(0.3)  # the database takes its time
        return {"git": {}, "trouble": self.trouble}

    async def status(self, workspace_id: str) -> InstanceStatus:
        return InstanceStatus(True, True, self.identity, workspaced=Upstream(self.identity))

    @asynccontextmanager
    async def open(self, upstream: Upstream) -> AsyncIterator[Any]:
        if self.refused_connections:
            self.refused_connections -= 1
            raise UpstreamUnavailable("connection refused")
        yield None if self.helper_is_too_old else self

    async def send(self, message: Message) -> None:
        self.sent.append(self.identity)

    async def messages(self) -> AsyncIterator[Message]:
        of = self.identity
        for report in self.reports:
            yield report
        while of == self.identity:
            await asyncio.sleep(0.1)


def waited(world: Workspaced, *, then_restart: bool = False) -> float:
    """Return how long a start waits for its configuration."""
    loop = VirtualLoop()

    async def main() -> float:
        heartbeat = Heartbeat("setup_links", VirtualClock(loop), Metrics(), no_fence)
        links = SetupLinks(1, cast(Any, world), cast(Any, world), {"process": cast(Any, world)}, heartbeat)
        running = asyncio.create_task(links.run())
        links.started(WORKSPACE)
        begin = loop.time()
        await links.configured(WORKSPACE, world.identity)
        if then_restart:
            world.identity = "start-2"
            links.started(WORKSPACE)
            begin = loop.time()
            await links.configured(WORKSPACE, world.identity)
            assert "start-2" in world.sent
        took = loop.time() - begin
        running.cancel()
        await asyncio.wait([running])
        return took

    return run_virtual(main(), loop)


def test_a_start_waits_until_its_helper_was_sent_the_configuration() -> None:
    world = Workspaced()
    assert waited(world) < 1
    assert world.sent == ["start-1"]


def test_a_helper_that_is_not_up_yet_is_tried_again_soon() -> None:
    world = Workspaced(refused_connections=3)
    assert waited(world) < 1
    assert world.sent == ["start-1"]


@pytest.mark.parametrize("after_s", [0.0, 0.35])
def test_a_changed_secret_is_sent_at_once_also_when_it_changes_during_a_tick(after_s: float) -> None:
    world, loop = Workspaced(reading_s=0.1), VirtualLoop()

    async def main() -> float:
        heartbeat = Heartbeat("setup_links", VirtualClock(loop), Metrics(), no_fence)
        links = SetupLinks(1, cast(Any, world), cast(Any, world), {"process": cast(Any, world)}, heartbeat)
        running = asyncio.create_task(links.run())
        await links.configured(WORKSPACE, world.identity)
        links.started(WORKSPACE)  # a tick begins
        await asyncio.sleep(0.05 + after_s)
        world.revision = 1
        links.user_setup_changed()
        begin = loop.time()
        while len(world.sent) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        return loop.time() - begin

    # A tick may have to end, the next reads the rows, and the message takes 0.3 s; the next tick by itself is 1 s away.
    assert run_virtual(main(), loop) < 0.55


def test_what_could_not_be_sent_is_shown_until_it_can() -> None:
    report: Message = {"event": "setup", "setup": {"folder": "api"}}
    world, loop = Workspaced(trouble="a secret is lost", reports=[report]), VirtualLoop()

    async def until(state: SetupState) -> None:
        while world.noted[-1:] != [state]:
            await asyncio.sleep(0.1)

    async def main() -> None:
        heartbeat = Heartbeat("setup_links", VirtualClock(loop), Metrics(), no_fence)
        links = SetupLinks(1, cast(Any, world), cast(Any, world), {"process": cast(Any, world)}, heartbeat)
        running = asyncio.create_task(links.run())
        async with asyncio.timeout(60):
            await until(SetupState(folder="api", error="a secret is lost"))
            world.trouble, world.revision = "", 1
            await until(SetupState(folder="api"))
        running.cancel()
        await asyncio.wait([running])

    run_virtual(main(), loop)


def test_the_next_start_waits_for_a_configuration_of_its_own() -> None:
    assert waited(Workspaced(), then_restart=True) < 3


def test_a_start_does_not_wait_for_a_configuration_that_it_may_not_have() -> None:
    for world in (Workspaced(may_have_secrets=False), Workspaced(helper_is_too_old=True), Workspaced(to_run=False)):
        assert waited(world) < 3
        assert world.sent == []


def test_a_workspace_whose_helper_never_answers_runs_all_the_same() -> None:
    assert waited(Workspaced(refused_connections=10_000)) < 30


@dataclass
class Flood(Workspaced):
    """Reports its setup and asks questions as fast as it is listened to."""

    notes: int = 0
    questions: int = 0
    at_once: int = 0
    most_at_once: int = 0

    async def note(self, epoch: int, workspace_id: str, state: SetupState) -> None:
        self.notes += 1

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> object:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.1)  # the database takes its time
        self.at_once -= 1
        return None

    async def messages(self) -> AsyncIterator[Message]:
        while True:
            await asyncio.sleep(0.001)
            self.questions += 1
            yield {"event": "setup", "setup": {"steps": [{"id": str(self.questions), "state": "running"}]}}
            yield {"id": self.questions, "question": "credential"}


def run_for(seconds: float, world: Workspaced) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        heartbeat = Heartbeat("setup_links", VirtualClock(loop), Metrics(), no_fence)
        links = SetupLinks(1, cast(Any, world), cast(Any, world), {"process": cast(Any, world)}, heartbeat)
        running = asyncio.create_task(links.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait([running])

    run_virtual(main(), loop)


def test_a_flood_of_reports_is_written_once_a_second_and_of_questions_eight_are_answered_at_once() -> None:
    world = Flood()
    run_for(30, world)
    assert 20 <= world.notes <= 32
    assert world.most_at_once == 8
    assert world.questions <= 30 * 8 / 0.1 + 16, "it is not listened to faster than it is answered"


@dataclass
class Odd(Workspaced):
    """Asks one question that CodeHub cannot answer, then others."""

    answers: list[Message] = field(default_factory=list)

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> Message:
        # As a name of a host with a lone surrogate does when it is to be looked up.
        return {"looked up": str(question["host"]).encode().decode()}

    async def send(self, message: Message) -> None:
        self.sent.append(self.identity)
        if "answer" in message:
            self.answers.append(message)


def test_a_question_that_cannot_be_answered_leaves_the_link_and_other_answers_alone() -> None:
    world = Odd(reports=[{"id": 1, "ask": "x", "host": "\ud800"}, {"id": 2, "ask": "x", "host": "a"}])
    run_for(10, world)
    assert [answer["answer"] for answer in world.answers] == [2, 1]
    assert world.answers[0]["value"] == {"looked up": "a"}
    assert world.answers[1]["error"] == "CodeHub cannot answer this"
    assert len(world.sent) == 3, "it was linked once"


class Crowd(Flood):
    """Ten workspaces of one owner that ask as fast as they can, and one of another owner that asks once a second."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text
        self.answered: dict[str, int] = {"mallory": 0, "bob": 0}

    async def linkable(self) -> Sequence[Linkable]:
        owners = {f"w{number}": "mallory" for number in range(10)} | {"other": "bob"}
        return [Linkable(each, "process", owner, (0, 0)) for each, owner in owners.items()]

    async def status(self, workspace_id: str) -> InstanceStatus:
        return InstanceStatus(True, True, workspace_id, workspaced=Upstream(workspace_id))

    @asynccontextmanager
    async def open(self, upstream: Upstream) -> AsyncIterator[Any]:
        yield Asking(self, upstream.identity)

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> object:
        self.answered[owner_user_id] += 1
        return {}


@dataclass
class Asking:
    crowd: Crowd
    workspace_id: str

    async def send(self, message: Message) -> None:
        pass

    async def messages(self) -> AsyncIterator[Message]:
        while True:
            await asyncio.sleep(1 if self.workspace_id == "other" else 0.001)
            yield {"id": 1, "ask": "devcontainer", "text": self.crowd.text}


def test_the_questions_of_all_workspaces_of_an_owner_share_a_budget_that_others_do_not_notice() -> None:
    short = Crowd()
    run_for(60, short)
    assert 2_500 < short.answered["mallory"] <= 200 + 60 * 50, "fifty a second, and what was saved up"
    assert short.answered["bob"] >= 58
    long = Crowd("/**/" * 30_000)  # takes 90 ms
    run_for(60, long)
    assert 50 < long.answered["mallory"] <= 80
    assert long.answered["bob"] >= 55


@dataclass
class Bytes:
    """A connection that always has this to read."""

    piece: bytes
    reads: int = 0

    async def read(self) -> bytes:
        self.reads += 1
        return self.piece


def heard_within(seconds: float, stream: Bytes) -> int:
    """Return how many messages were heard, until the link was given up or the time was over."""
    loop = VirtualLoop()
    heard = 0

    async def listen() -> None:
        nonlocal heard
        async for _ in _Stream(cast(Any, stream)).messages():
            heard += 1

    async def main() -> None:
        try:
            await asyncio.wait_for(listen(), seconds)
        except TimeoutError:
            pass

    run_virtual(main(), loop)
    return heard


def test_a_flood_of_lines_is_read_at_the_pace_of_a_few_hundred_a_second() -> None:
    for line in (b"{}\n", b"\n", b"[1]\n"):
        stream = Bytes(line * 1000)
        heard = heard_within(60, stream)
        assert stream.reads <= 32, "a thousand lines every two seconds"
        assert heard == (1000 * stream.reads if line == b"{}\n" else 0)


def test_a_line_without_an_end_is_given_up() -> None:
    stream = Bytes(b"x" * 65_536)
    assert heard_within(3600, stream) == 0
    assert stream.reads <= (1 << 20) // 65_536 + 2


def test_long_lines_are_read_at_256_kilobytes_a_second() -> None:
    """A megabyte of empty lists takes a tenth of a second to parse, in which the coordinator does nothing else."""
    line = b'{"a": [' + b"[]," * 65_536 + b"0]}\n"
    stream = Bytes(line)
    assert heard_within(10, stream) == stream.reads
    assert stream.reads <= 10 * (256 << 10) // len(line) + 1


def test_a_line_that_comes_at_once_and_is_too_long_ends_the_link() -> None:
    assert heard_within(60, Bytes(b"{" + b" " * (2 << 20) + b"}\n")) == 0
