"""Terminals through the API's WebSocket: the exact screen again, floods, resizing, several viewers, restarts underneath."""

from __future__ import annotations

import struct
import time
from contextlib import suppress

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from testing.codehub.doors import Doors, token_of_another_user
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.terminals import Viewer, attached, opened


def test_a_shell_answers_and_its_screen_is_there_for_the_next_viewer(doors: Doors) -> None:
    terminal = opened(doors, ["bash", "--norc"])
    with attached(doors, terminal) as viewer:
        viewer.type("printf '\\033[31m%s%s 漢字\\033[0m\\n' re d\n")
        viewer.until("red 漢字")
        viewer.until("$", times=2)  # the prompt is back
        before, at = viewer.lines, viewer.next
    with attached(doors, terminal) as again:
        assert again.take() == b"S"
        assert again.lines == before
        assert again.next >= at
    with attached(doors, terminal, after=at) as resumed:
        resumed.next = at
        resumed.type('echo m""ore\n')
        resumed.until("more")
    with doors.client() as client:
        assert client.delete(f"{doors.api}/terminals/{terminal}").status_code == 204


def test_two_viewers_see_the_same_and_a_new_size_reaches_both(doors: Doors) -> None:
    terminal = opened(doors, ["bash", "--norc"])
    with attached(doors, terminal) as one, attached(doors, terminal) as two:
        one.take(), two.take()
        one.resize(100, 30)
        one.type('stty size; echo d""one\n')
        one.until("done")
        two.until("done")
        assert any(line == "30 100" for line in one.lines)
        assert one.lines == two.lines
        with doors.client() as client:
            (found,) = [t for t in client.get(doors.api + "/terminals").json()["items"] if t["id"] == terminal]
        assert (found["cols"], found["rows"], found["viewers"]) == (100, 30, 2)
        one.type("exit 3\n")
        while one.exit is None:
            one.take()
        assert one.exit == 3


def test_what_was_typed_before_a_viewer_left_arrives(doors: Doors) -> None:
    """Each key is answered, so the connection breaks while more of them wait."""
    terminal = opened(doors, "for n in $(seq 100000); do read -r line || exit; echo got-$n-$line; done")
    for n in range(20):
        with attached(doors, terminal) as viewer:
            viewer.take()
            for key in range(50):
                viewer.type(f"{50 * n + key + 1}\n")
    with attached(doors, terminal) as viewer:
        viewer.until("got-1000-1000")
    with doors.client() as client:
        assert client.delete(f"{doors.api}/terminals/{terminal}").status_code == 204


def test_a_flood_is_seen_to_the_last_byte(doors: Doors) -> None:
    terminal = opened(doors, "stty -onlcr; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo THE END; sleep 1")
    with attached(doors, terminal) as viewer:
        viewer.take()
        begun = viewer.next
        while viewer.exit is None:
            message = viewer.socket.recv(timeout=TIMEOUT_S)
            assert isinstance(message, bytes)
            if message[:1] == b"O":
                (begin,) = struct.unpack(">Q", message[1:9])
                assert begin == viewer.next
                viewer.next += len(message) - 9
                with suppress(ConnectionClosed):  # a terminal that has ended needs no acknowledgement
                    viewer.socket.send(b"A" + struct.pack(">Q", viewer.next))
            elif message[:1] == b"X":
                viewer.exit = 0
        assert viewer.next == 20_000_000 + len("\nTHE END\n") or begun > 0


def test_a_viewer_that_never_acknowledges_does_not_hold_up_the_program(doors: Doors) -> None:
    terminal = opened(doors, "head -c 5000000 /dev/zero | tr '\\0' x > /dev/tty; touch ~/flood-is-over; sleep 600")
    with attached(doors, terminal):
        deadline = time.monotonic() + TIMEOUT_S
        while "flood-is-over" not in doors.sh("ls"):
            assert time.monotonic() < deadline
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{terminal}")


def test_a_terminal_outlives_a_killed_workspaced_with_its_screen(doors: Doors) -> None:
    terminal = opened(doors, ["bash", "--norc"])
    with attached(doors, terminal) as viewer:
        viewer.type('echo be""fore; x=kept\n')
        viewer.until("before")
    doors.kill_helper(doors.helper())
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with attached(doors, terminal) as again:
                again.until("before")
                again.type('echo $x af""ter\n')
                again.until("kept after")
                break
        except (ConnectionClosed, AssertionError):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{terminal}")


def test_strangers_and_terminals_that_are_gone_are_refused(doors: Doors) -> None:
    with attached(doors, "0011223344556677") as viewer, pytest.raises(ConnectionClosed) as closed:
        viewer.take()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4404
    address = f"{doors.stack.url.replace('http', 'ws', 1)}{doors.api}/terminals/0011223344556677/attach"
    token = {"Authorization": f"Bearer {doors.token}"}
    for query, headers, code in (
        ("", {}, 4401),
        ("", {**token, "Origin": "http://evil.example"}, 4403),
        ("?after=-1", token, 4400),
    ):
        with (
            connect(address + query, additional_headers=headers, proxy=None) as socket,
            pytest.raises(ConnectionClosed) as refused,
        ):
            socket.recv(timeout=TIMEOUT_S)
        assert refused.value.rcvd is not None
        assert refused.value.rcvd.code == code


def test_another_user_attaches_to_no_terminal(doors: Doors) -> None:
    terminal = opened(doors, ["bash", "--norc"])
    address = f"{doors.stack.url.replace('http', 'ws', 1)}{doors.api}/terminals/{terminal}/attach"
    for token, seen in ((doors.token, b"S"), (token_of_another_user(doors, "viewer"), None)):
        with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as socket:
            if seen:
                assert socket.recv(timeout=TIMEOUT_S)[:1] == seen
                continue
            with pytest.raises(ConnectionClosed) as refused:
                socket.recv(timeout=TIMEOUT_S)
        assert refused.value.rcvd is not None
        assert refused.value.rcvd.code == 4403
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{terminal}")


def test_a_browsers_session_shows_a_terminal_only_with_its_key_and_until_it_ends(doors: Doors) -> None:
    terminal = opened(doors, ["bash", "--norc"])
    address = f"{doors.stack.url.replace('http', 'ws', 1)}{doors.api}/terminals/{terminal}/attach"
    with doors.stack.client() as browser:
        cookie = {"Cookie": f"session={browser.cookies['session']}", "Origin": doors.stack.url}
        key = browser.headers["X-CodeHub-Session-Key"]
    both = [Subprotocol("codehub.terminal"), Subprotocol(f"codehub.key.{key}")]
    with connect(address, additional_headers=cookie, subprotocols=both, proxy=None) as socket:
        assert socket.subprotocol == "codehub.terminal"
        assert socket.recv(timeout=TIMEOUT_S)[:1] == b"S"
    for offered in ([both[0]], [both[0], Subprotocol("codehub.key.wrong")]):
        with (
            connect(address, additional_headers=cookie, subprotocols=offered, proxy=None) as socket,
            pytest.raises(ConnectionClosed) as refused,
        ):
            socket.recv(timeout=TIMEOUT_S)
        assert refused.value.rcvd is not None
        assert refused.value.rcvd.code == 4401
    with connect(address, additional_headers=cookie, subprotocols=both, proxy=None) as socket:
        viewer = Viewer(socket)
        assert viewer.take() == b"S"
        sent = {**cookie, "X-CodeHub-Session-Key": key}
        assert httpx.post(f"{doors.stack.url}/api/v1/logout", headers=sent, trust_env=False).status_code == 204
        with pytest.raises(ConnectionClosed) as ended:
            viewer.until("a text that is on no screen")
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 4401
    with doors.client() as client:
        client.delete(f"{doors.api}/terminals/{terminal}")
