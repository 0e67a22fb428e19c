"""Room that recordings share: what each has to itself, what there is for all, and how waiting ends."""

import threading

from engine_bridge.room import Room


def waits(call):
    """Run a call in a thread; return the list its result goes to, and a function that waits for the end."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(0.1)

    def end():
        thread.join(10)
        return results

    assert results == []
    return end


def test_one_recording_may_have_all_places():
    share = Room(4).share(1)
    assert [share.enter() for _ in range(4)] == [True] * 4
    ended = waits(share.enter)
    share.leave()
    assert ended() == [True]


def test_each_has_its_own_places_also_where_the_room_is_full():
    room = Room(2)
    first, second = room.share(1), room.share(3)
    assert [first.enter(), first.enter(), *(second.enter() for _ in range(3))] == [True] * 5
    assert room.taken == 5
    ended = waits(second.enter)
    second.leave()
    assert ended() == [True]


def test_places_that_one_gives_back_go_to_another():
    room = Room(2)
    first, second = room.share(1), room.share(1)
    for _ in range(2):
        first.enter()
    second.enter()
    ended = waits(second.enter)
    first.leave()
    first.leave()
    assert ended() == [True]


def test_another_recording_waits_for_a_free_place():
    room = Room(1)
    share = room.share(1)
    assert room.wait()
    share.enter()
    ended = waits(room.wait)
    share.leave()
    assert ended() == [True]


def test_a_share_that_is_closed_gives_back_what_it_had_and_lets_go_of_who_waits():
    room = Room(2)
    share = room.share(1)
    share.enter()
    share.enter()
    ended = waits(share.enter)
    share.close()
    share.close()
    assert ended() == [False]
    assert room.taken == 0
    assert not share.enter()


def test_a_room_that_is_closed_lets_go_of_all_who_wait():
    room = Room(1)
    share = room.share(1)
    share.enter()
    ends = [waits(share.enter), waits(room.wait)]
    room.close()
    assert [end() for end in ends] == [[False], [False]]
    share.leave()
    assert not room.wait()
