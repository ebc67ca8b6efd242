"""Each request is answered exactly once, whatever breaks in between."""

from hypothesis import given
from hypothesis import strategies as st

from sari.shim.requests import Request, Requests

STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "break", "cancel", "expire"]), st.integers(0, 5)), max_size=60
)


class Line:
    """Stands where a link stands; it is only compared."""


@given(STEPS)
def test_every_request_is_answered_or_cancelled_once_and_replayed_until_then(steps: list[tuple[str, int]]) -> None:
    requests, link, clock = Requests(), Line(), 0.0
    settled: dict[int, int] = {}
    added: dict[int, Request] = {}
    count = 0
    for what, number in steps:
        clock += 1.0
        for request in requests.unsent():
            request.link = link  # type: ignore[assignment]
        request_id = number % (count + 1)
        if what == "ask":
            count += 1
            added[count] = requests.add({"id": count}, clock + 10.0)  # type: ignore[assignment]
            assert requests.add({"id": count}, clock) is None
        elif what == "break":
            lost = requests.on(link)
            link = Line()
            for request in lost:
                request.link = None
            assert requests.unsent() == [one for one in requests if not one.settled]
        elif what == "expire":
            for request in requests.expired(clock):
                _settle(requests, request.message["id"], None, settled)
        else:
            _settle(requests, request_id, link if what == "answer" else None, settled)
    assert set(settled) <= set(added)
    assert all(times == 1 for times in settled.values())
    assert len(requests) == len(added) - len(settled)
    assert (requests.next_deadline() is None) == (len(requests) == 0)


def _settle(requests: Requests, request_id: object, link: object, settled: dict[int, int]) -> None:
    request = requests.settle(request_id, link)
    if request is not None:
        assert requests.settle(request_id) is None
        requests.forget(request)
        assert isinstance(request_id, int)
        settled[request_id] = settled.get(request_id, 0) + 1


def test_an_answer_from_a_link_that_was_left_is_nobodys() -> None:
    requests, old, new = Requests(), Line(), Line()
    request = requests.add({"id": 1}, 9.0)
    assert request is not None
    request.link = new  # type: ignore[assignment]
    assert requests.settle(1, old) is None
    assert requests.settle(1, new) is request
