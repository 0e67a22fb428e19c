"""Where to cut a sequence, all cuts chosen together: takes positions and what a cut there costs, and returns indices.

Nothing here knows of sound. A plan is a path over the candidate positions in which every step is at least `min_length`
and at most `max_length`; its price is the sum of the costs of its cuts plus `piece_price` for each piece, so that
pieces are as long as the cuts are worth. Dynamic programming finds the cheapest path: the best plan up to a candidate
extends the best plan up to one of the candidates a step before it, and a queue whose costs ascend keeps the best of
those at its head (a sliding minimum), which makes the work linear in the number of candidates.

A stream is planned with bounded look-ahead. A cut is final once the best plans of all candidates that a later step can
start from agree on it; whatever comes after cannot change it. When they do not agree within the look-ahead, the
cheapest of them for what it covers decides on the first half of it.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from audio.errors import SplitError

_MOST_PASSED = 2000  # nodes that lie before the last final cut
_SHORT_END_PRICE = 1e9  # a last piece below the minimum is taken only where no other plan exists


class CutPlanner:
    """Plans the cuts of a sequence whose candidates arrive in order.

    Parameters
    ----------
    min_length, max_length : int
        The least and greatest length of a piece, ``1 <= min_length <= max_length``. The last piece is shorter than
        `min_length` only where no plan avoids it.
    piece_price : float
        What each piece costs, in the unit of the candidates' costs, at least 0.
    look_ahead : int, optional
        How far beyond the last final cut candidates are collected before the next cut is decided for good, at least
        ``2 * max_length``; without limit unless given.

    Raises
    ------
    SplitError
        The lengths contradict each other or are not positive.

    """

    def __init__(
        self, min_length: int, max_length: int, *, piece_price: float = 0.0, look_ahead: int | None = None
    ) -> None:
        if not 1 <= min_length <= max_length:
            raise SplitError(
                f"a piece of {min_length} to {max_length} is impossible: "
                "the least length must be at least 1 and at most the greatest."
            )
        if look_ahead is not None and look_ahead < 2 * max_length:
            raise SplitError(
                f"a look-ahead of {look_ahead} is too short: give at least twice the greatest length, {2 * max_length}."
            )
        if not piece_price >= 0:
            raise SplitError(f"the price of a piece must be at least 0, not {piece_price}.")
        self._min = min_length
        self._max = max_length
        self._price = piece_price
        self._look_ahead = look_ahead
        # The nodes are the beginning, or a final cut, and the candidates after it.
        self._positions = [0]
        self._costs = [0.0]
        self._totals = [0.0]
        self._parents = [0]
        self._root = 0  # the last final cut
        self._first = -1  # the candidate number of node 0
        self._waiting = 0  # the next node that is not yet a whole min_length back
        self._queue: deque[int] = deque()
        self._reach = 0

    def feed(self, positions: Sequence[int], costs: Sequence[float], reach: int) -> list[int]:
        """Take further candidates and return the cuts that have become final.

        Parameters
        ----------
        positions : sequence of int
            Where a cut may fall: above 0, not descending, here and over all calls.
        costs : sequence of float
            What a cut there costs; infinite forbids it.
        reach : int
            How far the sequence is known: later candidates lie at `reach` or beyond.

        Returns
        -------
        list of int
            The numbers of candidates, counted from 0 over all calls, ascending.

        Raises
        ------
        SplitError
            The positions descend, or no candidate lies in reach of the ones before.

        """
        self._extend(positions, costs)
        self._reach = max(reach, self._positions[-1])
        cuts = self._settle(self._agreed(self._open_nodes(self._reach)))
        while self._exhausted():
            cuts += self._settle(self._cheapest(self._open_nodes(self._reach)))
            self._replan()  # without the plans that are given up by this
            cuts += self._settle(self._agreed(self._open_nodes(self._reach)))
        if self._root > _MOST_PASSED:
            self._replan()
        return cuts

    def finish(self, length: int) -> list[int]:
        """Return the remaining cuts of a sequence of this length; the planner is used up.

        Parameters
        ----------
        length : int
            Where the sequence ends, not before the last candidate.

        """
        best, best_total = 0, math.inf
        for node in self._open_nodes(length):
            rest = length - self._positions[node]
            total = self._totals[node] + (0.0 if rest >= self._min else _SHORT_END_PRICE)
            if rest > 0 and total < best_total:
                best, best_total = node, total
        if best_total == math.inf:
            if length == self._positions[self._root]:
                return []
            raise self._dead_end(length)
        return [self._first + node for node in self._chain(best)]

    def _extend(self, more_positions: Sequence[int], more_costs: Sequence[float]) -> None:
        """Add a node for each candidate, linked to the best node a step before it."""
        queue, positions, totals, parents = self._queue, self._positions, self._totals, self._parents
        least, most, price, waiting = self._min, self._max, self._price, self._waiting
        previous = positions[-1]
        for position, cost in zip(more_positions, more_costs, strict=True):
            if position < previous or position < 1:
                raise SplitError(f"candidates must not descend, and begin at 1, but {position} follows {previous}.")
            previous = position
            while waiting < len(positions) and positions[waiting] <= position - least:
                total = totals[waiting]
                if total < math.inf:
                    while queue and totals[queue[-1]] >= total:
                        queue.pop()
                    queue.append(waiting)
                waiting += 1
            while queue and positions[queue[0]] < position - most:
                queue.popleft()
            parent = queue[0] if queue else 0
            totals.append(totals[parent] + cost + price if queue else math.inf)
            positions.append(position)
            parents.append(parent)
        self._costs += more_costs
        self._waiting = waiting

    def _open_nodes(self, reach: int) -> list[int]:
        """Return the nodes that a step to `reach` or beyond can start from, descending."""
        nodes = []
        for node in range(len(self._positions) - 1, -1, -1):
            if self._positions[node] < reach - self._max:
                break
            if self._totals[node] < math.inf:
                nodes.append(node)
        if not nodes:
            raise self._dead_end(reach)
        return nodes

    def _dead_end(self, reach: int) -> SplitError:
        return SplitError(
            f"no candidate allows a piece of {self._min} to {self._max} that gets past {reach}: "
            "offer candidates closer together."
        )

    def _chain(self, node: int) -> list[int]:
        """Return the nodes of the plan that ends at a node, ascending, after the last final one."""
        chain = []
        while node != self._root:
            chain.append(node)
            node = self._parents[node]
        return chain[::-1]

    def _agreed(self, open_nodes: list[int]) -> list[int]:
        """Return the cuts that the plans of all open nodes, given in descending order, have in common."""
        # Replace the last node by the one before it in its plan until one is left: their common ancestor.
        front = list(reversed(open_nodes))
        while len(front) > 1:
            parent = self._parents[front.pop()]
            place = bisect_left(front, parent)
            if place == len(front) or front[place] != parent:
                front.insert(place, parent)
        return self._chain(front[0])

    def _exhausted(self) -> bool:
        return self._look_ahead is not None and self._reach - self._positions[self._root] >= self._look_ahead

    def _cheapest(self, open_nodes: list[int]) -> list[int]:
        """Return the first cuts of the cheapest plan, those in the first half of the look-ahead.

        Later ones would rest on too little. What a plan leaves uncovered is priced by its share of a piece.
        """
        share = self._price / self._max

        def estimate(node: int) -> float:
            return self._totals[node] + share * (self._reach - self._positions[node])

        chain = self._chain(min(open_nodes, key=estimate))
        middle = (self._positions[self._root] + self._reach) / 2
        return [chain[0], *(node for node in chain[1:] if self._positions[node] <= middle)]

    def _settle(self, decided: list[int]) -> list[int]:
        """Make these nodes final, and return their numbers."""
        if decided:
            self._root = decided[-1]
        return [self._first + node for node in decided]

    def _replan(self) -> None:
        """Forget what lies before the last final cut, and plan what follows it again."""
        root = self._root
        positions, costs = self._positions[root + 1 :], self._costs[root + 1 :]
        self._first += root
        self._root = 0
        self._positions, self._costs = self._positions[root : root + 1], self._costs[root : root + 1]
        # The totals are not set back, so that they come out the same, to the last bit, wherever a stream was divided.
        self._totals = self._totals[root : root + 1]
        self._parents = [0]
        self._waiting = 0
        self._queue.clear()
        self._extend(positions, costs)


def plan_cuts(
    costs: Sequence[float],
    min_length: int,
    max_length: int,
    *,
    piece_price: float = 0.0,
    look_ahead: int | None = None,
) -> list[int]:
    """Return the cheapest cuts of a sequence of frames.

    Parameters
    ----------
    costs : sequence of float
        ``costs[i]`` is what a cut before frame ``i`` costs; infinite forbids it. A cut before the first frame is none,
        so ``costs[0]`` is not used.
    min_length, max_length : int
        The least and greatest number of frames in a piece; the last piece is shorter where no plan avoids it.
    piece_price : float
        What each piece costs on top of its cut.
    look_ahead : int, optional
        Plan as a stream that sees so many frames; see `CutPlanner`.

    Returns
    -------
    list of int
        Indices of the frames that begin a piece, ascending, without 0.

    Raises
    ------
    SplitError
        The lengths contradict each other, or the finite costs lie too far apart for them.

    """
    planner = CutPlanner(min_length, max_length, piece_price=piece_price, look_ahead=look_ahead)
    cuts = []
    for start in range(1, len(costs), max_length):
        stop = min(start + max_length, len(costs))
        cuts += planner.feed(range(start, stop), costs[start:stop], stop)
    cuts += planner.finish(len(costs))
    return [cut + 1 for cut in cuts]
