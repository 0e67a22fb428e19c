"""Audio that a request names instead of carrying it: web addresses, data URLs and local files.

Whoever writes the request is a stranger. What may be read is the server's decision, taken before anything is opened and
again at each redirect; what is read ends at a limit, whatever a header says.
"""

import binascii
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from audio.source import Source
from engine_bridge.addresses import Resolver, choose_address, resolve
from engine_bridge.errors import MediaError

if TYPE_CHECKING:
    import ssl

    import httpx2

SPOOL_BYTES = 1 << 20
"""Bytes of a download that are kept in memory; more goes to an unnamed file."""

_PIECE = 1 << 20  # characters of a data URL that are decoded at once; a multiple of four
_ATTEMPTS = 3
_READ_SECONDS = 15.0
_PORTS = {"http": 80, "https": 443}
_NAME_SHOWN = 100


@dataclass(frozen=True)
class MediaPolicy:
    """What of the world requests may make this machine read.

    Attributes
    ----------
    allowed_domains : tuple of str
        The only hosts that audio is fetched from; none for any on the public internet.
    allowed_local_path : str or None
        The folder that ``file:`` addresses may point into; None for no local files.
    allow_private_addresses : bool
        Whether hosts may lie in private networks: loopback, private and link-local addresses, also those of hosts in
        `allowed_domains`.
    max_bytes : int or None
        The most bytes of one recording.
    max_redirects : int
        Redirects that are followed: to the same host, or to another one in `allowed_domains`.
    deadline_seconds : float
        Seconds that one download may take, with all its attempts.

    Raises
    ------
    ValueError
        A number makes no sense.

    """

    allowed_domains: tuple[str, ...] = ()
    allowed_local_path: str | None = None
    allow_private_addresses: bool = False
    max_bytes: int | None = 256 << 20
    max_redirects: int = 3
    deadline_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "deadline_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}: give a number above 0")

    def check_size(self, name: str, size: int) -> None:
        """Raise MediaError if a recording of so many bytes is too large."""
        if self.max_bytes is not None and size > self.max_bytes:
            raise MediaError(
                f"{name}: the recording is larger than the {self.max_bytes} bytes this server takes: send a shorter one"
            )


@contextmanager
def open_media(
    url: str, policy: MediaPolicy, *, resolver: Resolver = resolve, verify: "ssl.SSLContext | None" = None
) -> Iterator[Source]:
    """Open the audio that an address names; the source is good within the ``with`` block.

    Parameters
    ----------
    url : str
        ``http:`` or ``https:``, ``data:`` with base64, or ``file:``.
    policy : MediaPolicy
        What may be read.
    resolver : callable
        Gives the addresses of a host.
    verify : ssl.SSLContext, optional
        Decides which certificates are trusted; the system's store by default.

    Raises
    ------
    MediaError
        The policy forbids it, or it cannot be had.
    AudioError
        There is nothing in it.

    """
    kind = url[:64].partition(":")[0].strip().casefold()
    if kind == "data":
        name, file = "data URL", _decoded(url, policy)
    elif kind == "file":
        name, file = _local(url, policy)
    elif kind in _PORTS:
        name, file = Download(policy, resolver, verify).fetch(url)
    else:
        raise MediaError(f"{_shown(url)} is no address of audio: use http, https, data or file")
    with file:
        source = Source.of(file)
        source.name = name
        yield source


def _shown(url: str) -> str:
    """Return an address without what may be secret in it, and not too long."""
    text = re.sub(r"[?#].*", "", url, flags=re.DOTALL)
    text = re.sub(r"//[^/@]*@", "//", text)
    return repr(text if len(text) <= _NAME_SHOWN else text[:_NAME_SHOWN] + "…")


def _decoded(url: str, policy: MediaPolicy) -> IO[bytes]:
    """Return the bytes of a data URL (RFC 2397), in pieces so that they are never in memory as a whole."""
    start = url.find(",") + 1
    if not start:
        raise MediaError("the data URL has no comma before its data: write data:audio/flac;base64,...")
    if not url[:start].casefold().endswith(";base64,"):
        raise MediaError("the data URL is not in base64: write data:audio/flac;base64,...")
    policy.check_size("data URL", (len(url) - start) // 4 * 3 - 2)
    file: IO[bytes] = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - closed by whoever opens the media
    try:
        for first in range(start, len(url), _PIECE):
            file.write(binascii.a2b_base64(url[first : first + _PIECE], strict_mode=True))
    except (binascii.Error, ValueError) as error:
        file.close()
        raise MediaError(f"the data URL's base64 cannot be read ({error}): encode the file again") from error
    policy.check_size("data URL", file.tell())
    file.seek(0)
    return file


def _local(url: str, policy: MediaPolicy) -> tuple[str, IO[bytes]]:
    """Open a file below the allowed folder; a link out of it is not below it."""
    if policy.allowed_local_path is None:
        raise MediaError("this server reads no local files: upload the recording itself")
    parts = urlsplit(url)
    path = unquote(parts.path)
    refusal = MediaError(f"{_shown(url)} is not a file that this server may read: upload the recording itself")
    if parts.netloc not in ("", "localhost") or "\0" in path or not path.startswith("/"):
        raise refusal
    folder = os.path.realpath(policy.allowed_local_path)
    try:
        real = Path(path).resolve(strict=True)
        if not real.is_relative_to(folder):
            raise refusal
        # The file that is looked at is the one that is open, whatever the name comes to mean meanwhile. A pipe must not
        # keep the server waiting.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError, RuntimeError) as error:
        raise refusal from error
    try:
        size = _size_within(descriptor, folder)
        if size is not None:
            policy.check_size(_shown(url), size)
            return real.name, os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise refusal


def _size_within(descriptor: int, folder: str) -> int | None:
    """Return an open file's size; None if it is no regular file or, where the system can tell, not in the folder."""
    status = os.fstat(descriptor)
    link = f"/proc/self/fd/{descriptor}"
    is_elsewhere = os.path.exists(link) and not Path(os.path.realpath(link)).is_relative_to(folder)  # noqa: PTH110
    return None if is_elsewhere or not stat.S_ISREG(status.st_mode) else status.st_size


class Download:
    """One recording from the web.

    Each connection goes to an address that has been looked at, so that a name that is resolved anew leads nowhere
    else. Proxies are not used, for they resolve names by themselves.

    Parameters
    ----------
    policy : MediaPolicy
        What may be read.
    resolver : callable
        Gives the addresses of a host.
    verify : ssl.SSLContext or None
        Decides which certificates are trusted.

    """

    def __init__(self, policy: MediaPolicy, resolver: Resolver, verify: "ssl.SSLContext | None") -> None:
        self._policy = policy
        self._resolver = resolver
        self._verify = verify
        self._end = time.monotonic() + policy.deadline_seconds

    def fetch(self, url: str) -> tuple[str, IO[bytes]]:
        """Return the recording's name and its bytes; tried again after 408, 429, 5xx and broken connections.

        Raises
        ------
        MediaError
            It may not be read, is too large, or cannot be had in time.

        """
        import httpx2

        from engine_bridge.engines.http_answers import Busy, Failed
        from engine_bridge.engines.http_balance import backoff

        with httpx2.Client(trust_env=False, verify=self._verify or _trusted()) as client:
            for attempt in range(1, _ATTEMPTS + 1):
                pause = backoff(attempt)
                try:
                    return _shown(url), self._follow(client, url)
                except Busy as busy:
                    reason, pause = str(busy), pause if busy.pause is None else busy.pause
                except Failed as failure:
                    reason = str(failure)
                except httpx2.TransportError as error:
                    self._left(url)
                    # The text of such an error may hold an address of this network.
                    reason = f"the connection failed ({type(error).__name__})"
                if attempt == _ATTEMPTS or time.monotonic() + pause > self._end:
                    break
                time.sleep(pause)
        raise MediaError(f"{_shown(url)} cannot be fetched: {reason}; try again later, or upload the recording itself")

    def _follow(self, client: "httpx2.Client", url: str) -> IO[bytes]:
        for _ in range(self._policy.max_redirects + 1):
            found = self._get(client, url)
            if not isinstance(found, str):
                return found
            url = self._redirected(url, found)
        raise MediaError(f"{_shown(url)} is one redirect too many: name the recording's own address")

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        before, after = _parts(url), _parts(target)
        if before.scheme == "https" and after.scheme != "https":
            raise MediaError(
                f"{_shown(url)} redirects to an address without encryption: name the recording's own address"
            )
        if before.hostname != after.hostname and not self._policy.allowed_domains:
            raise MediaError(f"{_shown(url)} redirects to another host: name the recording's own address")
        return target

    def _get(self, client: "httpx2.Client", url: str) -> IO[bytes] | str:
        """Return what is at an address, or where it redirects to."""
        import httpx2

        parts = _parts(url)
        host = self._allowed_host(parts)
        port = parts.port or _PORTS[parts.scheme]
        address = choose_address(
            host, port, allow_private=self._policy.allow_private_addresses, resolver=self._resolver
        )
        literal = f"[{address}]" if ":" in address else address
        wanted = httpx2.URL(url).copy_with(host=literal, fragment=None)
        left = self._left(url)
        request = client.build_request(
            "GET",
            wanted,
            headers={"Host": parts.netloc, "Accept-Encoding": "identity", "User-Agent": "auricle"},
            timeout=httpx2.Timeout(min(_READ_SECONDS, left)),
            extensions={"sni_hostname": host},
        )
        response = client.send(request, stream=True)
        try:
            return self._received(response, url)
        finally:
            response.close()

    def _allowed_host(self, parts: SplitResult) -> str:
        host = (parts.hostname or "").rstrip(".").casefold()
        allowed = {domain.rstrip(".").casefold() for domain in self._policy.allowed_domains}
        if allowed and host not in allowed:
            raise MediaError(f"the host {host!r} is not one that this server fetches audio from")
        return host

    def _received(self, response: "httpx2.Response", url: str) -> IO[bytes] | str:
        from engine_bridge.engines.http_answers import BUSY_STATUSES, Busy, Failed, retry_after

        status = response.status_code
        if status in BUSY_STATUSES:
            raise Busy(f"the host answered {status}", retry_after(response.headers))
        if status >= 500:
            raise Failed(f"the host answered {status}")
        if status in (301, 302, 303, 307, 308) and "location" in response.headers:
            return str(response.headers["location"])
        if status != 200:
            raise MediaError(f"{_shown(url)} cannot be fetched: the host answered {status}; check the address")
        if response.headers.get("content-encoding", "identity").casefold() != "identity":
            raise MediaError(f"{_shown(url)} is sent compressed, which was not asked for: upload the recording itself")
        declared = response.headers.get("content-length", "")
        if declared.isdecimal():
            self._policy.check_size(_shown(url), int(declared))
        return self._spooled(response, url)

    def _spooled(self, response: "httpx2.Response", url: str) -> IO[bytes]:
        file: IO[bytes] = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - closed by whoever opens the media
        try:
            received = 0
            for piece in response.iter_raw():
                received += len(piece)
                self._policy.check_size(_shown(url), received)
                self._left(url)
                file.write(piece)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def _left(self, url: str) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            seconds = self._policy.deadline_seconds
            raise MediaError(f"{_shown(url)} took longer than {seconds:g} s to fetch: upload the recording itself")
        return left


@cache
def _trusted() -> "ssl.SSLContext":
    """Return the system's certificates; reading them takes longer than many a download."""
    import httpx2

    return httpx2.create_ssl_context()


def _parts(url: str) -> SplitResult:
    """Return the parts of a web address, or refuse one that is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise MediaError(f"{_shown(url)} cannot be read as an address: check it") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise MediaError(f"{_shown(url)} is no web address: use http or https")
    if parts.username is not None or parts.password is not None:
        raise MediaError(f"{_shown(url)} holds a name or password, which is not sent: upload the recording itself")
    if not url.isascii() or any(character <= " " or character == "\\" for character in url):
        raise MediaError(f"{_shown(url)} holds characters that no address has: encode them")
    return parts
