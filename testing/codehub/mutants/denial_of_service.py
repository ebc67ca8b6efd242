"""Planted bugs that let one workspace, user or address take what all of them need (docs/security.md)."""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.catalog import Mutant

_TESTS = "packages/codehub/tests"
_FORGED_SESSIONS = (f"{_TESTS}/integration/api/test_forged_cookies.py",)
_IDLE = (f"{_TESTS}/integration/api/test_idle_connections.py",)
_PROXY_REFUSALS = (f"{_TESTS}/integration/proxy/test_conformance_refusals.py",)
_GUARDS = (f"{_TESTS}/unit/test_control_guards.py",)
_HOSTILE_HELPER = (f"{_TESTS}/integration/test_hostile_helper.py",)
_HOSTILE_WORKSPACED = (f"{_TESTS}/integration/api/test_hostile_workspaced.py",)
_BACKGROUND = (f"{_TESTS}/unit/proxy/test_background_traffic.py",)
_PIECES = (f"{_TESTS}/integration/proxy/test_small_pieces.py",)
_FLOODS = (f"{_TESTS}/integration/api/test_websocket_floods.py",)
_SETUP_LINKS = (f"{_TESTS}/unit/test_setup_links.py",)
_FAIR = (f"{_TESTS}/unit/test_fair_slots.py",)


DENIAL_OF_SERVICE: Final = (
    Mutant(
        "14: no limit for the size of the API's heads",
        "api/server.py",
        "if self._head_bytes > _MAX_HEAD_BYTES and",
        "if False and",
        _FORGED_SESSIONS,
    ),
    Mutant(
        "14: endless interim responses of a workspace's helper",
        "adapters/workspaced_client.py",
        "head_left: int | None = _LONGEST_HEAD",
        "head_left: int | None = None",
        (f"{_TESTS}/integration/test_hostile_helper.py",),
    ),
    Mutant(
        "14: no limit for the API's heads",
        "api/server.py",
        "self._awaiting_head = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.abort)",
        "self._awaiting_head = self.loop.call_later(3600, self.transport.abort)",
        _IDLE,
    ),
    Mutant(
        "14: no cap for an address at the API",
        "api/server.py",
        "self._admitted = self.cap.admit(self._address)",
        "self._admitted = self.cap.admit(self._address) or True",
        _IDLE,
    ),
    Mutant(
        "14: no limit for the proxy's heads",
        "proxy/connections/client.py",
        "                self.deadline = self._server.clock.now + HEAD_TIMEOUT_S\n",
        "                pass\n",
        _PROXY_REFUSALS,
    ),
    Mutant(
        "14: tunnels that ended count against the cap for ever",
        "proxy/server.py",
        """            self.tunnels.remove(tunnel)
            self._cap.release(tunnel.peer.decode())
""",
        """            self.tunnels.remove(tunnel)
""",
        _PROXY_REFUSALS,
    ),
    Mutant(
        "14: upgraded connections escape the proxy's cap",
        "proxy/connections/client.py",
        "self._server.connections.discard(self)  # it still counts",
        "self._server.leave(self)  # it still counts",
        _PROXY_REFUSALS,
    ),
    Mutant(
        "14: WebSockets that ended count against the cap for ever",
        "api/websocket_server.py",
        """        if self.released is not None:
            self.released()
""",
        """        pass
""",
        _FLOODS,
    ),
    Mutant(
        "14: WebSocket frames are parsed without a budget",
        "api/websocket_server.py",
        "budget.charge(time.thread_time() - begun, self.loop.time())",
        "pass",
        _FLOODS,
    ),
    Mutant(
        "14: a flood of frames is parsed in one step",
        "api/websocket_server.py",
        "_SLICE: Final = 1024",
        "_SLICE: Final = 1 << 30",
        _FLOODS,
    ),
    Mutant(
        "14: endless interim responses of an IDE",
        "proxy/connections/upstream.py",
        "if self._interim > MAX_INTERIM:",
        "if False:",
        (f"{_TESTS}/integration/proxy/test_conformance_responses.py",),
    ),
    Mutant(
        "14: chunks of a byte from a helper",
        "adapters/workspaced_client.py",
        """            if len(part) < _SMALL_PART:
                await budget.charge()
""",
        "",
        _HOSTILE_HELPER,
    ),
    Mutant(
        "14: a budget for each connection to a helper",
        "adapters/workspaced_client.py",
        "return _budgets.setdefault(upstream.identity, _Budget())",
        "return _Budget()",
        _HOSTILE_HELPER,
    ),
    Mutant(
        "14: empty messages of a terminal",
        "api/terminals.py",
        """    await stream.charge(size)
""",
        "",
        _HOSTILE_WORKSPACED,
    ),
    Mutant(
        "14: any number of requests to one workspace",
        "services/doors.py",
        "if count >= (MOST_AT_ONCE if most is None else most):",
        "if False:",
        _HOSTILE_WORKSPACED,
    ),
    Mutant(
        "14: any number of event streams of one user",
        "services/event_stream.py",
        ">= MOST_STREAMS:",
        ">= 10 * MOST_STREAMS:",
        _HOSTILE_WORKSPACED,
    ),
    Mutant(
        "14: a viewer of a terminal that reads nothing stays",
        "api/terminals.py",
        "async with asyncio.timeout(SEND_TIMEOUT_S):",
        "async with asyncio.timeout(3600):",
        _HOSTILE_WORKSPACED,
    ),
    Mutant(
        "14: an answer to the activity query without an end",
        "adapters/upstream_activity.py",
        """            async with asyncio.timeout(_TIMEOUT_S):
                body""",
        """            async with asyncio.timeout(3600):
                body""",
        (f"{_TESTS}/integration/test_upstream_activity.py",),
    ),
    Mutant(
        "14: a status of 5,000 digits raises in the probe",
        "adapters/health.py",
        "_BELOW_500.fullmatch(status[1].rstrip()) is not None",
        "status[1].isdigit() and 100 < int(status[1]) < 500",
        (f"{_TESTS}/integration/test_hostile_probe.py",),
    ),
    Mutant(
        "14: a failed probe ends the term",
        "control/controller.py",
        "                except Exception:  # noqa: BLE001 - the workspace chooses",
        "                except ZeroDivisionError:  # the workspace chooses",
        _GUARDS,
    ),
    Mutant(
        "14: a failed activity query ends the term",
        "control/ttl_runner.py",
        "        except Exception:  # noqa: BLE001 - the workspace chooses",
        "        except ZeroDivisionError:  # the workspace chooses",
        _GUARDS,
    ),
    Mutant(
        "14: a failed measurement ends the term",
        "control/disk_runner.py",
        "        except Exception:  # noqa: BLE001 - the workspace chooses",
        "        except ZeroDivisionError:  # the workspace chooses",
        _GUARDS,
    ),
    Mutant(
        "14: any amount is inflated",
        "proxy/activity/buffer.py",
        "return self._inflated < INFLATED_BYTES_PER_S",
        "return True",
        _BACKGROUND,
    ),
    Mutant(
        "14: inflated on after a final block",
        "proxy/activity/websocket_frames.py",
        """ or self._inflate.eof
""",
        """
""",
        _BACKGROUND,
    ),
    Mutant(
        "14: messages inside frames cost nothing",
        "proxy/activity/websocket_frames.py",
        """                    frames += _COMPARED + length // _PIECE
""",
        "",
        _BACKGROUND,
    ),
    Mutant(
        "14: inflating costs nothing",
        "proxy/activity/websocket_frames.py",
        "            self._pieces += _INFLATED\n",
        "",
        _BACKGROUND,
    ),
    Mutant(
        "14: an owner's workspaces ask as much as they can",
        "control/setup_links.py",
        'question_units(message.get("text"))',
        "0.001",
        _SETUP_LINKS,
    ),
    Mutant(
        "14: an image keeps its slot for ever",
        "control/dev_images.py",
        ", asyncio.timeout(self._deps.timeout_s):",
        ":",
        (f"{_TESTS}/unit/test_dev_images.py",),
    ),
    Mutant(
        "14: a build waits for its files for ever",
        "adapters/build_files.py",
        "async with asyncio.timeout(_ANSWER_TIMEOUT_S):",
        "async with asyncio.timeout(3600):",
        _HOSTILE_HELPER,
    ),
    Mutant(
        "14: tiny chunks and frames cost nothing",
        "proxy/connections/pace.py",
        "if pieces > FEW_PIECES:",
        "if False:",
        _PIECES,
    ),
    Mutant(
        "14: a workspace's budget is used up without effect",
        "proxy/connections/pace.py",
        """            if wait_s <= (SMALL_READS_WAIT_S if len(data) <= SMALL_READ else 0.0):
                return False
""",
        """            return False
""",
        _PIECES,
    ),
    Mutant(
        "14: lines of a setup link are read at any pace",
        "adapters/setup_channel.py",
        "+ _PER_LINE_S * len(lines) ",
        "",
        _SETUP_LINKS,
    ),
    Mutant(
        "14: bytes of a setup link are read at any pace",
        "adapters/setup_channel.py",
        " + _PER_BYTE_S * len(data)",
        "",
        _SETUP_LINKS,
    ),
    Mutant(
        "14: first come, first served",
        "domain/turns.py",
        "key=lambda holder: (running.get(holder, 0), served.get(holder, 0))",
        "key=lambda holder: 0",
        _FAIR,
    ),
    Mutant(
        "14: builds of one user before all others",
        "control/dev_images.py",
        "self._slots.turn(row.owner_user_id)",
        'self._slots.turn("")',
        (f"{_TESTS}/unit/test_dev_images.py",),
    ),
)
