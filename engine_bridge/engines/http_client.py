"""Requests to servers that may be busy, broken or restarting, until there is an answer or no more hope."""

import asyncio
import threading
from typing import Any

from engine_bridge.engines.http_answers import Busy, Failed, Refused, read_answer
from engine_bridge.engines.http_balance import Balancer, Endpoint, NoServerError, backoff
from engine_bridge.engines.http_requests import ClipRequest
from engine_bridge.errors import EngineError, EngineSpecError, EngineUnavailableError

try:
    import httpx2
except (ImportError, OSError) as problem:
    raise EngineUnavailableError(
        f"httpx2 cannot load here: {problem}. Install it with: pip install httpx2"
    ) from problem

FAILED_ATTEMPTS = 5
"""How often a request is sent that makes a server fail (500 and the like): it may be the request's own doing."""

CONNECT_SECONDS = 10.0
"""How long a server may take to accept a connection."""


class HttpClient:
    """Sends requests to whichever server has room, again and again where that makes sense.

    Everything but `seconds` is for one event loop.

    Parameters
    ----------
    endpoints : tuple of str
        The servers' base addresses.
    key : str or None
        Sent as a bearer token; no message holds it.
    most : int
        Requests that one server has at once, at the most.
    deadline : float
        Seconds that a request is tried for, from when it is first sent.
    request_seconds : float
        Seconds that one answer may take.

    Attributes
    ----------
    balancer : Balancer
        The servers and how they fare.

    """

    def __init__(
        self, endpoints: tuple[str, ...], key: str | None, *, most: int, deadline: float, request_seconds: float
    ) -> None:
        self.balancer = Balancer(endpoints, most, deadline)
        self._deadline = deadline
        self._key = key
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(request_seconds, connect=CONNECT_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=most * len(endpoints)),
        )
        self._lock = threading.Lock()
        self._seconds = {"wait for a server": 0.0, "server": 0.0}

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent waiting for a place at a server and for answers, added up over all requests."""
        with self._lock:
            return dict(self._seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(self, request: ClipRequest, attempts: int = FAILED_ATTEMPTS) -> dict[str, Any]:
        """Send a request until a server answers it, and return the answer.

        Parameters
        ----------
        request : ClipRequest
            What to send.
        attempts : int
            How often it is sent where it makes servers fail.

        Raises
        ------
        EngineError
            Caused by a `Refused` where a server will not do it; else no server did it in time.

        """
        give_up_at: float | None = None
        failures = 0
        while True:
            endpoint = await self._place(give_up_at)
            sent_at = self._now()
            give_up_at = give_up_at if give_up_at is not None else sent_at + self._deadline
            pause = ahead = 0.0  # seconds to wait here, and those that the balancer is known to wait
            try:
                answer = await self._post(endpoint, request)
            except Refused as refusal:
                self.balancer.answered(endpoint, sent_at)
                raise EngineError(f"{endpoint.url} {refusal}") from refusal
            except Busy as busy:
                reason = str(busy)
                self.balancer.refused(endpoint, sent_at, busy.pause, reason)
                if busy.pause is not None and len(self.balancer.endpoints) == 1:
                    ahead = busy.pause
            except Failed as failure:
                reason = str(failure)
                self.balancer.answered(endpoint, sent_at)
                failures += 1
                if failures >= attempts:
                    raise EngineError(
                        f"{endpoint.url} {reason}, {failures} times: look at the server's log"
                    ) from failure
                pause = backoff(failures)
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                reason = f"is out of reach ({_told(error)})"
                self.balancer.broke(endpoint, sent_at, reason)
            else:
                self.balancer.answered(endpoint, sent_at)
                return answer
            finally:
                self._count("server", self._now() - sent_at)
                self.balancer.release(endpoint)
            if self._now() + max(pause, ahead) > give_up_at or self.balancer.is_hopeless:
                raise self._no_hope(f"{endpoint.url} {reason}")
            await asyncio.sleep(pause)

    async def _place(self, give_up_at: float | None) -> Endpoint:
        """Wait for a place at a server; what has been tried before goes first, and does not wait for ever."""
        start = self._now()
        try:
            if give_up_at is None:
                return await self.balancer.acquire()
            async with asyncio.timeout_at(give_up_at):
                return await self.balancer.acquire(first=True)
        except (TimeoutError, NoServerError) as error:
            raise self._no_hope(self.balancer.reason) from error
        finally:
            self._count("wait for a server", self._now() - start)

    def _no_hope(self, reason: str) -> EngineError:
        return EngineError(
            f"{reason}, and no attempt succeeded within {self._deadline:g} s: "
            "see to the server, or allow a longer deadline"
        )

    async def _post(self, endpoint: Endpoint, request: ClipRequest) -> dict[str, Any]:
        response = await self._client.post(endpoint.url + request.path, **request.content)
        return self._read(response)

    def _read(self, response: httpx2.Response) -> dict[str, Any]:
        """Return an answer; the key is taken out first, for a server may repeat it in what it says is wrong."""
        body = response.content.replace(self._key.encode(), b"***") if self._key else response.content
        return read_answer(response.status_code, response.headers, body)

    async def find_model(self, wanted: str | None, patience: float) -> str:
        """Return the name of the model to use, from what the servers list.

        A server that does not answer is left out, unless none does; it is tried again later.

        Parameters
        ----------
        wanted : str or None
            The model that is asked for; None for the only one there is.
        patience : float
            Seconds to wait for a first server.

        Raises
        ------
        EngineSpecError
            A server has no such model, or the model is to be chosen among several.
        EngineUnavailableError
            No server answers with a list.

        """
        end = self._now() + patience
        failures = 0
        while True:
            listed = await asyncio.gather(*(self._models(endpoint.url) for endpoint in self.balancer.endpoints))
            known = {
                endpoint.url: models
                for endpoint, models in zip(self.balancer.endpoints, listed, strict=True)
                if not isinstance(models, str)
            }
            if known:
                break
            failures += 1
            pause = backoff(failures)
            if self._now() + pause > end:
                told = "; ".join(str(problem) for problem in listed)
                raise EngineUnavailableError(f"no server answers: {told}. Start it, or check the address")
            await asyncio.sleep(pause)
        for url, models in known.items():
            if wanted is None and len(models) == 1:
                wanted = models[0]
            elif wanted is None or wanted not in models:
                asked = f"no model {wanted!r}" if wanted else "several models, and the address names none"
                raise EngineSpecError(
                    f"{url} has {asked}: end the address with # and one of {', '.join(models) or '(it lists none)'}"
                )
        assert wanted is not None  # noqa: S101 - every server that is known has been compared with it
        return wanted

    async def _models(self, url: str) -> list[str] | str:
        """Return the names of a server's models, or why it does not tell."""
        try:
            response = await self._client.get(f"{url}/models", timeout=CONNECT_SECONDS)
            answer = self._read(response)
        except Refused as refusal:
            advice = "; set AURICLE_API_KEY to its key" if refusal.status in (401, 403) else ""
            raise EngineUnavailableError(f"{url} does not list its models: it {refusal}{advice}") from refusal
        except (Busy, Failed) as failure:
            return f"{url} {failure}"
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return f"{url} is out of reach ({_told(error)})"
        listed = answer.get("data")
        named = [item.get("id") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        return [name for name in named if isinstance(name, str)]

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _count(self, stage: str, seconds: float) -> None:
        with self._lock:
            self._seconds[stage] += seconds


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
