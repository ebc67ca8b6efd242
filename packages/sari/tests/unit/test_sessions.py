"""Sessions as leases."""

from sari.daemon.sessions import Sessions


def test_a_lease_that_ran_out_counts_no_more_until_the_next_request() -> None:
    sessions = Sessions(10.0)
    session = sessions.take("a", "codex", 0.0)
    sessions.connect(session)
    session.roots.add("/r")
    assert sessions.count("/r", 9.0) == 1
    sessions.expire(10.0)
    assert sessions.count("/r", 10.0) == 0
    assert sessions.connected() == 1
    session.last_request = 11.0
    session.roots.add("/r")
    assert sessions.count("/r", 12.0) == 1


def test_a_running_call_keeps_the_lease() -> None:
    sessions = Sessions(10.0)
    session = sessions.take("a", "", 0.0)
    session.roots.add("/r")
    session.running = 1
    sessions.expire(100.0)
    assert sessions.count("/r", 100.0) == 1


def test_a_session_ends_with_its_last_connection() -> None:
    sessions = Sessions(10.0)
    session = sessions.take("a", "", 0.0)
    sessions.connect(session)
    sessions.connect(session)
    sessions.disconnect(session)
    assert len(sessions) == 1
    sessions.disconnect(session)
    assert len(sessions) == 0


def test_an_http_session_lives_by_its_lease_alone() -> None:
    sessions = Sessions(10.0)
    sessions.take("web", "browser", 0.0, http=True)
    sessions.expire(9.0)
    assert len(sessions) == 1
    sessions.expire(10.0)
    assert len(sessions) == 0
