"""Which server takes the next request, and how many each has at once.

All of it runs in one event loop, so nothing here is locked.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

FIRST_LIMIT = 4.0
"""Requests that a server is given at once to begin with."""

DECREASE = 0.5
"""What is left of a server's limit when it is too busy: the multiplicative decrease of TCP's congestion control."""

SLOW_SECONDS = 30.0
"""An answer that takes longer than this has waited in the server's own queue, and more requests at once would only wait
as well. One that takes four times as long means that there are too many."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
"""Seconds that a failing server is left alone: the first time, and at the most after doubling. A server that is
started again is noticed within that time."""


class NoServerError(Exception):
    """No server has answered for longer than one is willing to wait."""


def backoff(failures: int) -> float:
    """Return seconds to wait after so many failures in a row: doubling, the upper half of it by chance.

    Chance keeps clients that failed together from coming back together.
    """
    pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 30))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret hangs on it


@dataclass
class Endpoint:
    """A server and how it has fared.

    The limit of requests at once grows by one for each answer at first, and by one for each round of answers after the
    first time that the server was too busy, which halves it (additive increase, multiplicative decrease).

    Attributes
    ----------
    url : str
        Its base address.
    most : int
        The limit never grows above this.
    limit : float
        Requests it is given at once.
    in_flight : int
        Requests it has now.
    failures : int
        Failures in a row; above 0, one request at a time is let through to see whether it is back.
    resume_at : float
        Loop time until which it is left alone.

    """

    url: str
    most: int
    limit: float = FIRST_LIMIT
    in_flight: int = 0
    failures: int = 0
    resume_at: float = 0.0
    _is_starting: bool = True
    _decreased_at: float = field(default=float("-inf"))

    def __post_init__(self) -> None:
        self.limit = min(self.limit, float(self.most))

    def has_room(self, now: float) -> bool:
        """Return whether it takes a request now."""
        return now >= self.resume_at and self.in_flight < (1 if self.failures else max(1, int(self.limit)))

    def answered(self, now: float, sent_at: float) -> None:
        """Note an answer to a request sent at a time."""
        self.failures = 0
        if now - sent_at > 4 * SLOW_SECONDS:
            self._decrease(now, sent_at)
        elif now - sent_at <= SLOW_SECONDS and self.in_flight >= int(self.limit):  # one not reached proves nothing
            self.limit = min(self.most, self.limit + (1.0 if self._is_starting else 1.0 / self.limit))

    def refused(self, now: float, sent_at: float, pause: float | None) -> None:
        """Note that it is too busy, for a request sent at a time, and leave it alone for a while."""
        self._decrease(now, sent_at)
        self.resume_at = max(self.resume_at, now + (backoff(1) if pause is None else pause))

    def broke(self, now: float, sent_at: float) -> None:
        """Note that the connection broke, for a request sent at a time."""
        if self._decrease(now, sent_at):
            self.failures += 1
            self.resume_at = max(self.resume_at, now + backoff(self.failures))

    def _decrease(self, now: float, sent_at: float) -> bool:
        """Halve the limit, once for all requests that were under way together; return whether this was the first."""
        if sent_at < self._decreased_at:
            return False
        self._decreased_at = now
        self._is_starting = False
        self.limit = max(1.0, self.limit * DECREASE)
        return True


class Balancer:
    """Gives out places at servers, first come first served.

    Parameters
    ----------
    urls : sequence of str
        The servers' base addresses.
    most : int
        Requests that one server is given at once, at the most.
    patience : float
        Seconds without any server after which those that wait are told so.

    Attributes
    ----------
    endpoints : tuple of Endpoint
        The servers.
    reason : str
        Why the last server that took no request did not.

    """

    def __init__(self, urls: tuple[str, ...], most: int, patience: float) -> None:
        self.endpoints = tuple(Endpoint(url, most) for url in urls)
        self._patience = patience
        self._waiting: deque[asyncio.Future[Endpoint]] = deque()
        self._dark_since: float | None = None
        self.reason = ""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, *, first: bool = False) -> Endpoint:
        """Wait for a place at a server and take it; `release` gives it back.

        Parameters
        ----------
        first : bool
            Go before all others that wait: for what has been tried before.

        Raises
        ------
        NoServerError
            No server has answered for longer than `patience`.

        """
        place: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        self._dispatch()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.release(place.result())
            raise

    def release(self, endpoint: Endpoint) -> None:
        """Give back a place."""
        endpoint.in_flight -= 1
        self._dispatch()

    def answered(self, endpoint: Endpoint, sent_at: float) -> None:
        """Note that a server answered a request sent at a time, whatever it said."""
        endpoint.answered(self._now(), sent_at)
        self._dark_since = None

    def refused(self, endpoint: Endpoint, sent_at: float, pause: float | None, reason: str) -> None:
        """Note that a server is too busy, for how many seconds if it says so, and its words."""
        endpoint.refused(self._now(), sent_at, pause)
        self._dark_since = None
        self.reason = f"{endpoint.url} {reason}"

    def broke(self, endpoint: Endpoint, sent_at: float, reason: str) -> None:
        """Note that a connection broke, and why."""
        now = self._now()
        endpoint.broke(now, sent_at)
        self.reason = f"{endpoint.url} {reason}"
        if self._dark_since is None and all(each.failures for each in self.endpoints):
            self._dark_since = now

    @property
    def is_hopeless(self) -> bool:
        """Whether no server has answered for longer than `patience`."""
        return self._dark_since is not None and self._now() - self._dark_since > self._patience

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _free(self, now: float) -> Iterator[Endpoint]:
        """Yield servers with a free place: one that may be back, else that with the smallest share of places taken."""
        while free := [each for each in self.endpoints if each.has_room(now)]:
            yield min(free, key=lambda each: (not each.failures, (each.in_flight + 1) / each.limit))

    def _dispatch(self) -> None:
        now = self._now()
        free = self._free(now)
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            endpoint = next(free, None)
            if endpoint is None:
                break
            endpoint.in_flight += 1
            self._waiting.popleft().set_result(endpoint)
        if self._waiting and self.is_hopeless and not any(each.in_flight for each in self.endpoints):
            while self._waiting:
                place = self._waiting.popleft()
                if not place.done():
                    place.set_exception(NoServerError(self.reason))
        self._wake_later(now)

    def _wake_later(self, now: float) -> None:
        """Look again when the next server is to be tried again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        paused = [each.resume_at for each in self.endpoints if each.resume_at > now]
        if self._waiting and paused:
            self._timer = asyncio.get_running_loop().call_at(min(paused), self._dispatch)
