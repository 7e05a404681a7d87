"""Sends requests, again where that is safe, and turns refusals into exceptions."""
from __future__ import annotations

import json
import random
import ssl
import time
import uuid
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, quote_from_bytes, urlencode

from ._channel import Channel, Request, Response
from ._errors import IdempotencyInFlight, NotFound, Problem, Unreachable, problem_of

Query = Sequence[Tuple[str, Union[str, bytes, int, bool, None]]]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
POLL_MS = 25_000  # of what is waited for; the request is sent again after it


def target_of(*parts: Union[str, bytes], query: Query = ()) -> str:
    """/v1/PART/PART?NAME=VALUE, encoded; of a path in bytes the slashes stay."""
    path = "/v1/" + "/".join(quote_from_bytes(one) if isinstance(one, bytes) else quote(one, safe="") for one in parts)
    given = [(name, ("true" if value else "false") if isinstance(value, bool) else value)
             for name, value in query if value is not None]
    return path + ("?" + urlencode(given) if given else "")


class Requests:
    """One service. `patience_s`: for how long a request is sent again while the service cannot be reached, or says that
    the same request may succeed later; `timeout_s`: how long one answer may take.
    """

    def __init__(self, channel: Channel, patience_s: float, timeout_s: float) -> None:
        self.channel = channel
        self.patience_s, self.timeout_s = patience_s, timeout_s
        self._was_reached = False

    async def send(self, method: str, target: str, document: Optional[Mapping[str, Any]] = None,
                   content: Optional[bytes] = None, repeats: bool = True) -> Response:
        """The answer, below 400. A POST has a key, so that the service carries it out once however often it is sent.
        Without `repeats` a refusal that may pass is raised at once.
        """
        headers: Dict[str, str] = {}
        body = content
        if content is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif method == "POST":
            body = json.dumps(document or {}).encode("ascii")
            headers["Content-Type"] = "application/json"
        if method == "POST":
            headers["Idempotency-Key"] = f"python-{uuid.uuid4().hex}"
        request = Request(method, target, headers, body, self.timeout_s)
        again = _Again(self, repeats)
        while True:
            try:
                answer = await self.channel.exchange(request)
            except OSError as error:
                await again.after_failure(error)
                continue
            self._was_reached = True
            if answer.status < 400:
                return answer
            problem = problem_in(answer)
            if method == "DELETE" and again.was_lost and isinstance(problem, NotFound):
                return answer  # the first request has done it
            await again.after_refusal(problem, answer)

    async def json(self, method: str, target: str, document: Optional[Mapping[str, Any]] = None,
                   content: Optional[bytes] = None, repeats: bool = True) -> Dict[str, Any]:
        answer = await self.send(method, target, document, content, repeats)
        found: Dict[str, Any] = json.loads(answer.body)
        return found

    async def pages(self, parts: Sequence[Union[str, bytes]], query: Query, name: str) -> AsyncIterator[Dict[str, Any]]:
        """What a list has, page after page."""
        cursor: Optional[str] = None
        while True:
            page = await self.json("GET", target_of(*parts, query=[*query, ("cursor", cursor)]))
            items: List[Dict[str, Any]] = page[name]
            for item in items:
                yield item
            cursor = page["next"]
            if cursor is None:
                return

    async def follow(self, parts: Sequence[str], query: Query) -> AsyncIterator[bytes]:
        """A stream of bytes that is taken up again where it broke off."""
        offset = 0
        again = _Again(self, True)
        while True:
            target = target_of(*parts, query=[*query, ("follow", True), ("offset", offset)])
            try:
                async for part in self.channel.stream(Request("GET", target, {}, None, self.timeout_s)):
                    if isinstance(part, bytes):
                        again = _Again(self, True)
                        offset += len(part)
                        yield part
                    elif part.status >= 400:
                        await again.after_refusal(problem_in(part), part)
                        break
                    else:
                        self._was_reached = True
                else:
                    return
            except OSError as error:
                await again.after_failure(error)


class _Again:
    """Decides whether one request is sent again, and waits until then."""

    def __init__(self, requests: Requests, repeats: bool) -> None:
        self._requests, self._repeats = requests, repeats
        self._since: Optional[float] = None
        self._tries = 0
        self.was_lost = False  # an answer may have been: what was asked may be done

    def _is_late(self, seconds: float) -> bool:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since >= seconds

    async def _pause(self, least: float) -> None:
        self._tries += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._tries, 10))
        await self._requests.channel.pause(max(least, pause * random.uniform(0.5, 1.0)))

    async def after_failure(self, error: OSError) -> None:
        # A service that was never there is named wrongly, rather than about to start again.
        is_first = not self._requests._was_reached and isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        is_hopeless = isinstance(error, (ssl.SSLCertVerificationError, PermissionError))
        patience_s = self._requests.patience_s
        if is_first or is_hopeless or self._is_late(patience_s):
            where = self._requests.channel.address.text
            raise Unreachable(f"the service at {where} does not answer: {error}") from error
        self.was_lost = True
        await self._pause(0)

    async def after_refusal(self, problem: Problem, answer: Response) -> None:
        patience_s = self._requests.patience_s
        if problem._repeats_for is not None:
            patience_s = min(patience_s, problem._repeats_for)
        if isinstance(problem, IdempotencyInFlight):
            self._since = None  # the service is at work on it
        elif not self._repeats or not problem._repeats or not problem.retryable or self._is_late(patience_s):
            raise problem
        after = answer.headers.get("retry-after", "")
        await self._pause(min(float(after), 5.0) if after.isdigit() else 0)


def problem_in(answer: Response) -> Problem:
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        document = {"status": answer.status, "detail": f"the service answered {answer.status} without saying why"}
    return problem_of(document)
