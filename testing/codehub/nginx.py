"""nginx as a second subject of the conformance suite: the same expectations, for features that nginx has."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testing.codehub.rawhttp import TIMEOUT_S, Peer
from testing.ports import free_port

_CONFIG = """
worker_processes 1; daemon off; master_process off; pid {place}/pid; error_log {place}/error;
events {{ worker_connections 1024; }}
http {{ access_log off; client_max_body_size 0; underscores_in_headers on;
 client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3; uwsgi_temp_path {place}/4;
 scgi_temp_path {place}/5;
 map $http_upgrade $connection_for {{ default upgrade; '' ''; }}
 upstream workspace {{ server 127.0.0.1:{upstream}; keepalive 16; }}
 server {{ listen 127.0.0.1:{port}; proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;
  proxy_set_header Connection $connection_for; proxy_set_header Upgrade $http_upgrade; proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $http_host;
  proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Prefix {prefix};
  proxy_set_header Forwarded ""; proxy_set_header X-Real-IP "";
  location {prefix}/ {{ proxy_pass http://workspace/; proxy_redirect / {prefix}/; proxy_cookie_path / {prefix}/; }}
  location / {{ return 404; }} }} }}
"""


class RunningNginx:
    """What the conformance suite needs of a subject: connections to it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> Peer:
        return Peer(socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S))


@contextmanager
def running_nginx(upstream: int, prefix: str) -> Iterator[RunningNginx]:
    place = Path(tempfile.mkdtemp(prefix="ng-", dir="/tmp"))
    place.chmod(0o755)
    port = free_port()
    (place / "conf").write_text(_CONFIG.format(place=place, upstream=upstream, port=port, prefix=prefix))
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    program = shutil.which("nginx", path=path) or "nginx"
    process = subprocess.Popen([program, "-c", str(place / "conf"), "-p", str(place)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert process.poll() is None, "nginx did not start"
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline, "nginx does not answer"
            time.sleep(0.02)
        yield RunningNginx(port)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(place, ignore_errors=True)


# Tests, or single cases of one, for which nginx lacks the feature or parses more leniently than we do.
_LENIENT = "nginx takes it"
_CHUNKS = "nginx decodes chunks and writes its own: extensions and trailers are lost"
_TIMES = "nginx's times are settings; ours is moved by the test"
_OTHERWISE = "nginx refuses it with another status or at another limit"
_OURS = "a rule of CodeHub's"
DIFFERS: dict[str, str] = {
    "test_a_head_that_trickles_is_cut_off": _TIMES,
    "test_a_later_head_that_trickles_is_cut_off_before_an_idle_connection_would_be": _TIMES,
    "test_an_idle_connection_is_closed_in_the_end": _TIMES,
    "test_a_body_that_stops_is_cut_off": _TIMES,
    "test_a_body_that_trickles_is_cut_off": _TIMES,
    "test_a_body_that_comes_fast_enough_is_not_cut_off": _TIMES,
    "test_a_connection_that_says_nothing_is_closed": _TIMES,
    "test_events_arrive_one_by_one_and_silence_between_them_is_normal": _TIMES,
    "test_silence_does_not_end_a_tunnel": _TIMES,
    "test_underscores_do_not_forge_a_header": "nginx drops all names with underscores, or none",
    "test_hop_by_hop_headers_stay_on_their_hop": "nginx drops only what its configuration names",
    "test_hop_by_hop_headers_of_an_answer_stay_on_their_hop": "nginx drops only what its configuration names",
    "test_nothing_of_ours_goes_upstream": _OURS,
    "test_a_redirect_stays_inside_the_workspace": _OURS,
    "test_a_cookie_stays_inside_the_workspace_and_is_never_ours": _OURS,
    "test_a_workspace_does_not_speak_for_its_host": _OURS,
    "test_http_2_is_never_a_tunnel": _OURS,
    "test_a_shutdown_tells_a_websocket_1001_between_two_frames": _OURS,
    "test_a_line_that_died_without_a_word_is_asked_for_by_the_kernel": "a setting of nginx's (so_keepalive)",
    "test_a_tunnel_of_which_one_half_has_ended_does_not_stay_for_ever": "nginx takes a half-close for the end",
    "test_a_client_that_takes_nothing_is_cut_off": _TIMES,
    "test_a_shutdown_tells_a_websocket_what_its_profile_says_instead": _OURS,
    "test_a_chunked_body_stays_chunked_with_its_extensions_and_trailers": _CHUNKS,
    "test_a_chunked_body_may_arrive_in_any_pieces": _CHUNKS,
    "test_chunks_extensions_and_trailers_arrive_as_they_were": _CHUNKS,
    "test_expect_100_continue_is_the_upstreams_to_answer": "nginx answers 100 by itself",
    "test_expect_100_continue_may_be_refused_before_the_body": "nginx answers 100 by itself",
    "test_a_client_that_half_closes_still_gets_its_answer": "nginx takes a half-close for the end",
    "test_a_half_close_is_passed_on_and_the_other_half_goes_on": "nginx takes a half-close for the end",
    "test_a_body_until_close_ends_with_the_connection": "nginx sends it in chunks",
    "test_early_hints_pass_before_the_answer": "Debian's nginx drops them",
    "test_a_flood_of_interim_answers_is_cut_off": "Debian's nginx does not bound them",
    "test_a_malformed_answer_is_502": _LENIENT,
    **{
        f"test_a_malformed_head_never_reaches_the_workspace[{case}]": _LENIENT
        for case in (
            "chunked with a vertical tab",
            "a bare LF between headers",
            "a bare LF in the request line",
            "a name that is no token",
            "a line without a colon",
            "a known name without a colon",
            "another host in the target",
            "two spaces",
            "an unknown expectation",
            "two Origins",
            "an upgrade with a body",
        )
    },
    **{
        f"test_a_malformed_head_never_reaches_the_workspace[{case}]": _OTHERWISE
        for case in ("HTTP/0.9", "HTTP/2", "a large head", "a large head without an end", "many headers")
    },
    **{
        f"test_a_malformed_chunk_is_refused_and_the_upstream_cut_off[{case}]": _LENIENT
        for case in (
            "a size with a space",
            "a size with a bare LF",
            "a chunk ended by LF",
            "an endless size line",
            "a trailer that is a length",
            "a trailer that frames",
            "a trailer that signs in",
            "a trailer with a bare LF",
            "a folded trailer",
            "endless trailers",
        )
    },
}


def differs(test: str, case: str | None = None) -> str | None:
    """Return why nginx is exempt from this expectation, or None if it is not."""
    return DIFFERS.get(test) or DIFFERS.get(f"{test}[{case}]")
