"""A cache in two halves: keys where audio is prepared, values where it is used.

Both ends see the same row of packets and keep and evict by the same rule, so that the sender knows without asking what
the receiver holds, and sends the key alone.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from engine_bridge.cache import CacheCounters, CacheValue, InputCache, SizedLru
from engine_bridge.errors import CacheMissError


@dataclass(frozen=True, eq=False)
class Packet:
    """What goes from the sender to the receiver.

    Attributes
    ----------
    key : bytes
        What it is found by, 32 bytes.
    value : CacheValue or None
        The value, or None where the receiver has it.

    """

    key: bytes
    value: CacheValue | None


class MirroredSender:
    """The end that prepares: it keeps keys and sizes only. Not thread-safe: packets have an order.

    Parameters
    ----------
    capacity : int
        Bytes that the receiver may hold; the same at both ends.

    """

    def __init__(self, capacity: int) -> None:
        self._keys: SizedLru[bytes] = SizedLru(capacity)

    def short_packet(self, key: bytes) -> Packet | None:
        """Return the packet for what the receiver holds, or None where it has to be sent whole."""
        return Packet(key, None) if self._keys.get(key) is not None else None

    def whole_packet(self, key: bytes, value: CacheValue) -> Packet:
        """Return the packet for what the receiver does not hold."""
        self._keys.put(key, key, value.size)
        return Packet(key, value)

    def counters(self) -> CacheCounters:
        """Return what the receiver holds, and how often it did."""
        return self._keys.counters

    def forget(self) -> None:
        """Start again, as with a receiver that has been restarted."""
        self._keys.clear()


class MirroredReceiver:
    """The end that uses: it keeps the values. Not thread-safe: packets have an order.

    Parameters
    ----------
    capacity : int
        Bytes that it may hold; the same at both ends.

    """

    def __init__(self, capacity: int) -> None:
        self._values: SizedLru[CacheValue] = SizedLru(capacity)

    def unpack(self, packet: Packet) -> CacheValue:
        """Return the value that a packet stands for.

        Raises
        ------
        CacheMissError
            The packet holds the key alone and there is no value for it: the two ends are out of step.

        """
        if packet.value is not None:
            self._values.put(packet.key, packet.value, packet.value.size)
            return packet.value
        value = self._values.get(packet.key)
        if value is None:
            raise CacheMissError("this end holds no value for the key that was sent alone: send the input whole")
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()


class MirroredCache(InputCache):
    """Both ends as one cache.

    Parameters
    ----------
    capacity : int
        Bytes that the receiver may hold.
    send : callable, optional
        Takes a `Packet` to the receiver and returns what `MirroredReceiver.unpack` made of it there, or raises what it
        raised; packets arrive in the order of the calls, which never overlap. The receiver is in this process unless
        this is given.

    """

    kind = "lru"

    def __init__(self, capacity: int, send: Callable[[Packet], CacheValue] | None = None) -> None:
        self._sender = MirroredSender(capacity)
        self._receiver = MirroredReceiver(capacity)
        self._send = send if send is not None else self._receiver.unpack
        self._lock = threading.Lock()

    def get(self, key: bytes) -> CacheValue | None:
        """Return what the receiver holds under a key, sending the key alone, or None."""
        with self._lock:
            packet = self._sender.short_packet(key)
            if packet is None:
                return None
            try:
                return self._send(packet)
            except CacheMissError:  # the receiver has been restarted
                self._sender.forget()
                return None

    def put(self, key: bytes, value: CacheValue) -> None:
        """Send a value for the receiver to keep."""
        with self._lock:
            self._send(self._sender.whole_packet(key, value))

    def counters(self) -> CacheCounters:
        """Return what the receiver holds, and how often it did."""
        with self._lock:
            return self._sender.counters()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._sender.forget()
            self._receiver.clear()
