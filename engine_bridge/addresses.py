"""Where a host name leads, and whether a stranger may make this machine go there."""

import ipaddress
import socket
from collections.abc import Callable

from engine_bridge.errors import MediaError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address in the last four bytes

Resolver = Callable[[str, int], list[str]]
"""Gives the addresses of a host and port, as text."""


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses that the system knows for a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found))


def is_public(address: str) -> bool:
    """Return whether an address is one of the public internet, also behind the forms that hide an IPv4 address.

    Loopback, private, link-local (the metadata services of clouds among them), shared, multicast and reserved ones
    are not.
    """
    return all(each.is_global and not each.is_multicast for each in _meant(ipaddress.ip_address(address)))


def _meant(address: Address) -> list[Address]:
    """Return an address and the IPv4 addresses in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    hidden: list[Address] = [] if address.sixtofour is None else [address.sixtofour]
    if address.teredo is not None:
        hidden += address.teredo
    if address in _NAT64:
        return [ipaddress.IPv4Address(address.packed[-4:])]
    return [address, *hidden]


def choose_address(host: str, port: int, *, allow_private: bool, resolver: Resolver = resolve) -> str:
    """Return the address to connect to for a host; connecting to it by itself leaves nothing to resolve anew.

    Parameters
    ----------
    host : str
        A name, or an address in any form that the system understands.
    port : int
        The port.
    allow_private : bool
        Whether addresses that are not public will do.
    resolver : callable
        Gives the addresses of a host.

    Raises
    ------
    MediaError
        There is no such host, or one of its addresses is not public. No message tells an address.

    """
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise MediaError(f"the host {host!r} is not known: check the address") from error
    if not addresses:
        raise MediaError(f"the host {host!r} is not known: check the address")
    if not allow_private and not all(is_public(address) for address in addresses):
        raise MediaError(
            f"the host {host!r} is not on the public internet: name a public address, or upload the recording itself"
        )
    return addresses[0]
