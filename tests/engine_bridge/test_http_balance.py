"""How many requests a server is given at once, told with made-up times."""

import asyncio

import pytest

from engine_bridge.engines.http_balance import SLOW_SECONDS, Balancer, Endpoint, NoServerError, backoff


def answer(endpoint, count, seconds, *, at=100.0):
    for _ in range(count):
        endpoint.in_flight = int(endpoint.limit)
        endpoint.answered(at, at - seconds)


def test_the_limit_grows_by_one_an_answer_at_first_up_to_the_most():
    endpoint = Endpoint("a", 16)
    answer(endpoint, 4, 1.0)
    assert endpoint.limit == 8
    answer(endpoint, 100, 1.0)
    assert endpoint.limit == 16


def test_a_limit_that_is_not_reached_does_not_grow():
    endpoint = Endpoint("a", 16)
    endpoint.in_flight = 1
    endpoint.answered(100.0, 99.0)
    assert endpoint.limit == 4


def test_a_busy_server_halves_it_once_for_all_that_were_under_way_and_then_it_grows_slowly():
    endpoint = Endpoint("a", 64)
    answer(endpoint, 12, 1.0)
    assert endpoint.limit == 16
    for _ in range(5):
        endpoint.refused(101.0, 100.0, None)
    assert endpoint.limit == 8
    answer(endpoint, 8, 1.0, at=110.0)
    assert endpoint.limit == pytest.approx(9, abs=0.2)
    endpoint.refused(120.0, 119.0, 2.0)
    assert endpoint.limit == pytest.approx(4.5, abs=0.1)
    assert not endpoint.has_room(121.0)


def test_answers_that_waited_in_the_servers_queue_stop_the_growth_and_very_late_ones_halve_it():
    endpoint = Endpoint("a", 64)
    answer(endpoint, 4, 1.0)
    answer(endpoint, 20, SLOW_SECONDS + 1)
    assert endpoint.limit == 8
    answer(endpoint, 1, 5 * SLOW_SECONDS, at=500.0)
    assert endpoint.limit == 4


def test_it_never_falls_below_one():
    endpoint = Endpoint("a", 64)
    for number in range(10):
        endpoint.refused(100.0 + number, 100.0 + number, 0.0)
    assert endpoint.limit == 1


def test_a_broken_server_is_let_one_request_to_see_whether_it_is_back():
    endpoint = Endpoint("a", 64)
    endpoint.broke(100.0, 99.0)
    endpoint.broke(100.0, 99.5)  # of the same break
    assert endpoint.failures == 1
    assert not endpoint.has_room(100.1)
    assert endpoint.has_room(101.0)
    endpoint.in_flight = 1
    assert not endpoint.has_room(101.0)
    endpoint.answered(101.5, 101.0)
    assert endpoint.has_room(101.5)


def test_pauses_double_up_to_a_bound_with_chance_in_them():
    assert all(0.25 <= backoff(1) <= 0.5 for _ in range(50))
    assert all(1.0 <= backoff(3) <= 2.0 for _ in range(50))
    assert all(7.5 <= backoff(100) <= 15.0 for _ in range(50))
    assert len({backoff(3) for _ in range(20)}) > 1


def test_places_go_to_the_server_with_the_most_room_and_to_who_came_first():
    async def run():
        balancer = Balancer(("a", "b"), 4, 10.0)
        taken = [(await balancer.acquire()).url for _ in range(4)]
        assert sorted(taken) == ["a", "a", "b", "b"]
        rest = [await balancer.acquire() for _ in range(4)]
        waiting = [asyncio.ensure_future(balancer.acquire()) for _ in range(2)]
        urgent = asyncio.ensure_future(balancer.acquire(first=True))
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        balancer.release(rest[0])
        await asyncio.sleep(0)
        assert urgent.done()
        assert not waiting[1].done()
        balancer.release(rest[1])
        await asyncio.sleep(0)
        assert waiting[1].done()

    asyncio.run(run())


def test_who_waits_is_told_when_there_has_been_no_server_for_too_long(monkeypatch):
    monkeypatch.setattr("engine_bridge.engines.http_balance.FIRST_PAUSE", 0.01)

    async def run():
        balancer = Balancer(("a",), 4, 0.05)
        place = await balancer.acquire()
        balancer.broke(place, asyncio.get_running_loop().time(), "is out of reach")
        balancer.release(place)
        waiting = [asyncio.ensure_future(balancer.acquire()) for _ in range(3)]
        place = await waiting[0]
        await asyncio.sleep(0.06)
        balancer.broke(place, asyncio.get_running_loop().time(), "is out of reach")
        balancer.release(place)
        for each in waiting[1:]:
            with pytest.raises(NoServerError, match="a is out of reach"):
                await each

    asyncio.run(run())
