"""Running operations over a row of frames: pages with context, means, extremes and spread of masks."""

from collections.abc import Callable
from types import MethodType
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

CELL_FRAMES = 50
"""Frames in a cell of half a second, in which the extremes of the level are looked for."""

_NO_SIGNAL_DB = -110.0  # digital silence says nothing about the background of the sound around it


class PagedFilter:
    """Runs a function over a stream of rows in pages of fixed size, with context on both sides.

    As the pages lie at fixed positions and the function always sees arrays of one shape, what comes out does not
    depend on how the rows arrive.

    Parameters
    ----------
    page : int
        Rows worked on at a time.
    context : int
        Rows shown before and after the page.
    fill : ndarray, shape (columns,), float32
        The row that stands before the beginning and after the end.
    function : callable
        Takes ``(context + page + context, columns)`` and returns one row for each row of the page. The object of a
        bound method has to be kept by others.

    """

    def __init__(self, page: int, context: int, fill: FloatArray, function: Callable[[FloatArray], FloatArray]) -> None:
        self._page = page
        self._context = context
        self._fill = fill
        # A bound method would tie its owner to this filter and back, and both would keep a recording's last audio, some
        # megabytes, until Python next looks for such circles.
        self._function = WeakMethod(function) if isinstance(function, MethodType) else lambda: function
        self._rows = [np.tile(fill, (context, 1))]
        self._count = context

    def feed(self, rows: FloatArray) -> list[FloatArray]:
        """Take rows, shape (n, columns), and return the results of the pages they complete."""
        self._rows.append(rows)
        self._count += len(rows)
        need = self._page + 2 * self._context
        if self._count < need:
            return []
        function = self._function()
        if function is None:
            raise ReferenceError("the object whose method this filter runs is gone: keep it as long as the filter")
        joined = np.concatenate(self._rows)
        results = []
        while len(joined) >= need:
            results.append(function(joined[:need]))
            joined = joined[self._page :]
        self._rows = [joined.copy()]
        self._count = len(joined)
        return results

    def finish(self) -> list[FloatArray]:
        """Return the results of the rows that are left."""
        left = self._count - self._context
        if left <= 0:
            return []
        padding = -left % self._page + self._context
        results = self.feed(np.tile(self._fill, (padding, 1)))
        surplus = padding - self._context
        if surplus:
            results[-1] = results[-1][:-surplus]
        return results


def window_means(levels: FloatArray) -> FloatArray:
    """Return the mean level over each frame and two frames on either side; the edge frames stand for those beyond."""
    padded = np.concatenate([levels[:1], levels[:1], levels, levels[-1:], levels[-1:]])
    total: FloatArray = padded[:-4] + padded[1:-3] + padded[2:-2] + padded[3:-1] + padded[4:]
    total *= np.float32(0.2)
    return total


def dilate(mask: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """Return where the mask is true within `before` positions later or `after` positions earlier.

    In other words, each true run is made longer by `before` at its start and by `after` at its end.
    """
    sums = np.zeros(len(mask) + before + after + 1, np.int32)
    np.cumsum(mask, out=sums[after + 1 : after + 1 + len(mask)])
    sums[after + 1 + len(mask) :] = sums[after + len(mask)]
    return sums[before + after + 1 :] > sums[: len(mask)]


def erode(mask: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """Return the mask with each true run made shorter by `before` at its start and by `after` at its end."""
    return ~dilate(~mask, after, before)


def rolling_extreme(values: FloatArray, reach: int, *, lowest: bool) -> FloatArray:
    """Return the least or greatest of each value and `reach` neighbours on both sides; the ends have none beyond."""
    edge = np.full(reach, np.inf if lowest else -np.inf, np.float32)
    best = np.concatenate([edge, values, edge])
    pick = np.minimum if lowest else np.maximum
    width, have = 2 * reach + 1, 1
    while have < width:  # two windows of what there is, apart by no more than their width, make a longer one
        step = min(have, width - have)
        best = pick(best[:-step], best[step:])
        have += step
    return best


def cell_ranks(smooth: FloatArray, *ranks: int) -> list[FloatArray]:
    """Return for each half second the level that so many of its 50 frames stay below, for one rank after the other."""
    ordered = np.partition(smooth.reshape(-1, CELL_FRAMES), ranks, axis=1)
    return [ordered[:, rank] for rank in ranks]


def lowest_nearby(levels: FloatArray, reach: int) -> FloatArray:
    """Return the least level of each cell and its neighbours, disregarding digital silence; infinite if all is that."""
    return rolling_extreme(np.where(levels < _NO_SIGNAL_DB, np.float32(np.inf), levels), reach, lowest=True)


def true_runs(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the half-open index ranges where the mask is true, shape (runs, 2), ascending."""
    edges = np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)
