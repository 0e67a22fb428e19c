"""How many chunks may be under way at once, in one recording or shared by many."""

import threading


class Room:
    """Room for a number of chunks, which the recordings that are transcribed at the same time share.

    Each has a few places to itself, as many as it cannot do without: a chunk may have to wait for those after it. So no
    recording waits for another to make room, and there may be a few chunks more under way than the room has places.

    Parameters
    ----------
    places : int
        How many chunks are under way before recordings are held to the places of their own.

    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        """How many chunks are under way."""
        with self._changed:
            return self._taken

    def wait(self) -> bool:
        """Wait until there is a free place, so that another recording may be begun; False when the room is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._taken < self._places)
            return not self._closed

    def share(self, own: int) -> "Share":
        """Return a recording's part in the room.

        Parameters
        ----------
        own : int
            How many places it has to itself, at least 1.

        """
        return Share(self, own)

    def close(self) -> None:
        """Let no more chunks in; whoever waits for a place is told so."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _enter(self, share: "Share") -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or share.closed or share.held < share.own or self._taken < self._places
            )
            if self._closed or share.closed:
                return False
            share.held += 1
            self._taken += 1
            return True

    def _leave(self, share: "Share", count: int | None) -> None:
        with self._changed:
            leaving = share.held if count is None else min(count, share.held)
            share.held -= leaving
            share.closed = share.closed or count is None
            self._taken -= leaving
            self._changed.notify_all()


class Share:
    """A recording's part in a `Room`.

    Attributes
    ----------
    own : int
        How many places it has to itself.
    held : int
        How many places it has taken.
    closed : bool
        Whether it is over.

    """

    def __init__(self, room: Room, own: int) -> None:
        self._room = room
        self.own = own
        self.held = 0
        self.closed = False

    def enter(self) -> bool:
        """Take a place for a chunk, waiting for one; False when the share or the room is closed."""
        return self._room._enter(self)  # noqa: SLF001 - the room's own part

    def leave(self) -> None:
        """Give a place back."""
        self._room._leave(self, 1)  # noqa: SLF001 - the room's own part

    def close(self) -> None:
        """Give back all places. It may be called more than once."""
        self._room._leave(self, None)  # noqa: SLF001 - the room's own part
