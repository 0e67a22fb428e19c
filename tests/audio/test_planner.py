"""The cut planner as a specification: numbers in, indices out, no sound anywhere."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.errors import SplitError
from audio.planner import CutPlanner, plan_cuts

SHORT_END = 1e9  # more than any sum of costs here


def price_of(cuts, costs, least, most, piece_price):
    """What a plan costs, or infinity where it breaks a limit; a short last piece is allowed at a great price."""
    edges = [0, *cuts, len(costs)]
    lengths = [stop - start for start, stop in itertools.pairwise(edges)]
    if any(length > most for length in lengths) or any(length < least for length in lengths[:-1]):
        return math.inf
    total = sum(costs[cut] + piece_price for cut in cuts)
    return total + (SHORT_END if lengths[-1] < least else 0)


def cheapest(costs, least, most, piece_price):
    """The price of the best of all plans, found by trying each."""
    places = range(1, len(costs))
    plans = (plan for size in range(len(costs)) for plan in itertools.combinations(places, size))
    return min(price_of(plan, costs, least, most, piece_price) for plan in plans)


costs_lists = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=11)


@given(costs_lists, st.integers(1, 4), st.integers(0, 4), st.integers(0, 10))
def test_no_plan_is_cheaper(costs, least, spread, piece_price):
    most = least + spread
    best = cheapest(costs, least, most, piece_price)
    if best == math.inf:
        with pytest.raises(SplitError, match="no candidate allows"):
            plan_cuts(costs, least, most, piece_price=piece_price)
    else:
        cuts = plan_cuts(costs, least, most, piece_price=piece_price)
        assert price_of(cuts, costs, least, most, piece_price) == best


@given(
    st.lists(st.one_of(st.integers(0, 9).map(float), st.just(math.inf)), min_size=1, max_size=11),
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_a_forbidden_cut_is_never_made(costs, least, spread):
    most = least + spread
    if cheapest(costs, least, most, 1.0) < math.inf:
        assert all(costs[cut] < math.inf for cut in plan_cuts(costs, least, most, piece_price=1.0))


@given(st.data())
def test_a_stream_gets_the_cuts_of_the_whole(data):
    costs = [float(cost) for cost in data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=120))]
    least = data.draw(st.integers(1, 5))
    most = data.draw(st.integers(2 * least, 20))
    piece_price = data.draw(st.integers(0, 10))
    planner = CutPlanner(least, most, piece_price=piece_price)
    cuts, at = [], 1
    while at < len(costs):
        size = data.draw(st.integers(1, 40))
        part = range(at, min(at + size, len(costs)))
        cuts += planner.feed(part, costs[part.start : part.stop], part.stop)
        at = part.stop
    cuts += planner.finish(len(costs))
    assert [cut + 1 for cut in cuts] == plan_cuts(costs, least, most, piece_price=piece_price)


@given(
    st.lists(st.integers(0, 30).map(float), min_size=1, max_size=80),
    st.lists(st.integers(0, 30).map(float), max_size=60),
    st.lists(st.integers(0, 30).map(float), max_size=60),
)
def test_a_cut_that_is_final_holds_whatever_follows(known, one_future, other_future):
    planner = CutPlanner(2, 9, piece_price=3.0)
    final = [cut + 1 for cut in planner.feed(range(1, len(known)), known[1:], len(known))]
    for future in (one_future, other_future):
        assert plan_cuts(known + future, 2, 9, piece_price=3.0)[: len(final)] == final


@given(st.lists(st.integers(0, 30).map(float), min_size=1, max_size=300), st.integers(1, 5), st.integers(0, 9))
def test_with_bounded_look_ahead_both_limits_still_hold(costs, least, spread):
    most = 2 * least + spread
    edges = [0, *plan_cuts(costs, least, most, piece_price=5.0, look_ahead=2 * most), len(costs)]
    lengths = [stop - start for start, stop in itertools.pairwise(edges)]
    assert all(least <= length <= most for length in lengths[:-1])
    assert 1 <= lengths[-1] <= most


def test_look_ahead_that_suffices_gives_the_cuts_of_the_whole():
    draw = random.Random(5)
    costs = [50 * draw.random() for _ in range(3000)]
    for pause in range(150, 3000, 150):  # every plan cuts here, so that nothing before matters to what comes after
        costs[pause] = 0.0
    whole = plan_cuts(costs, 10, 60, piece_price=4.0)
    assert plan_cuts(costs, 10, 60, piece_price=4.0, look_ahead=360) == whole


def test_bounded_look_ahead_decides_even_where_the_plans_never_agree():
    # Every plan is as good as every other one, so that nothing but the bound can end the wait.
    planner = CutPlanner(1, 10, look_ahead=40)
    cuts = []
    for start in range(1, 10_001, 20):
        cuts += planner.feed(range(start, start + 20), [0.0] * 20, start + 20)
        assert start + 20 - (cuts[-1] + 1 if cuts else 0) <= 40
        assert len(planner._positions) < 2100


def test_all_cuts_are_chosen_together():
    # The cheapest first cut (frame 5) would leave only dear ones for the second.
    costs = [9.0] * 15
    costs[5], costs[6], costs[10] = 0.0, 1.0, 0.0
    assert plan_cuts(costs, 3, 6) == [5, 10]
    costs[10], costs[12] = 9.0, 0.0
    assert plan_cuts(costs, 3, 6) == [6, 12]  # 5 is cheaper by itself, but 12 is out of its reach


def test_least_and_greatest_length_are_honoured_at_once():
    # Tempting places lie too close together and too far apart.
    costs = [50.0] * 40
    for tempting in (1, 2, 3, 20, 21, 39):
        costs[tempting] = 0.0
    edges = [0, *plan_cuts(costs, 5, 10), 40]
    assert all(5 <= stop - start <= 10 for start, stop in itertools.pairwise(edges))


def test_the_price_of_a_piece_makes_pieces_full():
    costs = [1.0] * 100
    assert len(plan_cuts(costs, 1, 30, piece_price=1.0)) == 3
    costs[25] = costs[50] = costs[75] = 0.0
    assert plan_cuts(costs, 1, 30, piece_price=1.0) == [25, 50, 75]


def test_a_piece_is_worth_a_better_cut_only_at_a_low_price():
    costs = [10.0] * 40
    costs[15], costs[20], costs[30] = 0.0, 4.0, 0.0
    assert plan_cuts(costs, 1, 20, piece_price=1.0) == [15, 30]
    assert plan_cuts(costs, 1, 20, piece_price=5.0) == [20]


def test_a_short_last_piece_is_avoided_where_another_plan_exists():
    costs = [0.0 if frame == 10 else 5.0 + frame for frame in range(12)]
    assert plan_cuts(costs, 4, 10) == [4]  # frame 10 is free, but would leave a piece of 2


def test_a_short_last_piece_is_taken_where_nothing_else_is_possible():
    costs = [float(20 - frame) for frame in range(11)]
    assert plan_cuts(costs, 6, 10) == [10]


@pytest.mark.parametrize("length", [0, 1, 9, 10])
def test_what_fits_in_one_piece_is_not_cut(length):
    assert plan_cuts([0.0] * length, 3, 10, piece_price=1.0) == []


def test_candidates_may_share_a_position():
    # As where silence between them is left out: both cuts cost the same length, and the cheaper one is taken.
    planner = CutPlanner(1, 10)
    assert planner.feed([8, 8, 8], [3.0, 1.0, 2.0], 8) == []
    assert planner.finish(15) == [1]


@pytest.mark.parametrize(
    ("least", "most", "options", "reason"),
    [
        (0, 5, {}, "at least 1"),
        (6, 5, {}, "at most the greatest"),
        (1, 5, {"look_ahead": 9}, "at least twice the greatest length, 10"),
        (1, 5, {"piece_price": -1.0}, "price of a piece"),
        (1, 5, {"piece_price": math.nan}, "price of a piece"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(least, most, options, reason):
    with pytest.raises(SplitError, match=reason):
        CutPlanner(least, most, **options)


def test_descending_candidates_are_refused():
    planner = CutPlanner(1, 5)
    with pytest.raises(SplitError, match="must not descend"):
        planner.feed([3, 2], [0.0, 0.0], 3)
    with pytest.raises(SplitError, match="begin at 1"):
        CutPlanner(1, 5).feed([0], [0.0], 1)


def test_candidates_too_far_apart_are_reported():
    planner = CutPlanner(1, 5)
    with pytest.raises(SplitError, match="offer candidates closer together"):
        planner.feed([4, 12], [0.0, 0.0], 12)
