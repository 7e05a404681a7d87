"""How requests reach the service: HTTP/1.1 over its Unix socket or over TLS, one connection for each request.

A channel is asynchronous by its signature. SyncChannel never waits for another task, so that drive() can run what is
written over it to its end; AsyncChannel is the same over asyncio.
"""
from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Coroutine, Dict, Iterator, Optional, Protocol, Tuple, TypeVar, Union
from urllib.parse import urlsplit

from ._errors import EscrowError

DEFAULT_HOST = "unix:///run/escrowd/escrowd.sock"
PIECE = 256 * 1024
T = TypeVar("T")


class BrokenAnswer(OSError):
    """The connection ended before the answer did."""


@dataclass(frozen=True)
class Address:
    """Where the service is, and as whom it is asked."""

    socket: str  # of the Unix socket; empty: TCP
    name: str
    port: int
    tls: Optional[ssl.SSLContext]
    token: Optional[str] = field(repr=False)

    @property
    def text(self) -> str:
        return f"unix://{self.socket}" if self.socket else f"{self.name}:{self.port}"


def address_of(host: Optional[str], token: Optional[str], ca: Optional[str]) -> Address:
    """Of unix://PATH, a path, https://NAME[:PORT], or http:// to this machine. None: as the command line has it."""
    host = host or os.environ.get("ESCROW_HOST") or DEFAULT_HOST
    token = token or os.environ.get("ESCROW_TOKEN") or None
    if host.startswith(("unix://", "/")):
        return Address(host[len("unix://"):] if host.startswith("unix://") else host, "escrowd", 0, None, None)
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"the host {host!r} is neither unix://PATH nor https://NAME:PORT")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"{host!r}: without TLS a token could be read on its way; use https://")
    if not token:
        raise ValueError(f"{host!r} needs a token: the argument token, or ESCROW_TOKEN")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token is none that escrowd --make-token has made")
    tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
    return Address("", parts.hostname, parts.port or (443 if tls else 80), tls, token)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Dict[str, str]
    body: Optional[bytes]
    timeout: float


@dataclass(frozen=True)
class Response:
    status: int
    headers: Dict[str, str]  # lower-case names
    body: bytes


class Channel(Protocol):
    address: Address

    async def exchange(self, request: Request) -> Response:
        """Raises OSError when there is no whole answer."""

    def stream(self, request: Request) -> AsyncIterator[Union[Response, bytes]]:
        """The head, then the body as it comes. The body of a status of 400 and more is in the head."""

    async def pause(self, seconds: float) -> None:
        """Waits."""


def _headers(address: Address, request: Request) -> Dict[str, str]:
    headers = {"Connection": "close", "User-Agent": "escrow-python", **request.headers}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    return headers


# ---- Blocking.


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, timeout: float) -> None:
        super().__init__(address.name, address.port or None, timeout=timeout)
        self._address = address

    def connect(self) -> None:
        if not self._address.socket:
            plain = socket.create_connection((self._address.name, self._address.port), self.timeout)
            tls = self._address.tls
            self.sock = plain if tls is None else tls.wrap_socket(plain, server_hostname=self._address.name)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address.socket)


def _send(connection: http.client.HTTPConnection, address: Address, request: Request) -> http.client.HTTPResponse:
    try:
        connection.request(request.method, request.target, request.body, _headers(address, request))
    except (BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise
        # A refusal may come before the whole body was taken.
    return connection.getresponse()


class SyncChannel:
    def __init__(self, address: Address) -> None:
        self.address = address

    async def exchange(self, request: Request) -> Response:
        connection = _Connection(self.address, request.timeout)
        try:
            answer = _send(connection, self.address, request)
            return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        except http.client.HTTPException as error:
            raise BrokenAnswer(f"the answer broke off: {error!r}") from error
        finally:
            connection.close()

    async def stream(self, request: Request) -> AsyncIterator[Union[Response, bytes]]:
        connection = _Connection(self.address, request.timeout)
        try:
            answer = _send(connection, self.address, request)
            headers = {k.lower(): v for k, v in answer.getheaders()}
            yield Response(answer.status, headers, answer.read() if answer.status >= 400 else b"")
            while answer.status < 400:
                piece = answer.read1(PIECE)
                if not piece:
                    break
                yield piece
        except http.client.HTTPException as error:
            raise BrokenAnswer(f"the answer broke off: {error!r}") from error
        finally:
            connection.close()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Runs what is written over a SyncChannel, which never waits for another task."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise EscrowError("a blocking call waited for another task")


def drive_all(work: AsyncIterator[T]) -> Iterator[T]:
    items: Any = work
    try:
        while True:
            try:
                yield drive(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        drive(items.aclose())


# ---- asyncio.


async def _head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    line = await reader.readline()
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise BrokenAnswer(f"the answer begins with {line[:80]!r}")
    headers: Dict[str, str] = {}
    while True:
        line = await reader.readline()
        if line in (b"\r\n", b"\n"):
            return int(words[1]), headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise BrokenAnswer("the header of the answer broke off")
        headers[name.strip().lower()] = value.strip()


async def _body(reader: asyncio.StreamReader, headers: Dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            line = await reader.readline()
            try:
                left = int(line.split(b";")[0], 16)
            except ValueError:
                raise BrokenAnswer("the answer broke off between two chunks") from None
            if left == 0:
                await reader.readline()
                return
            yield await reader.readexactly(left)
            await reader.readexactly(2)
    elif "content-length" in headers:
        left = int(headers["content-length"])
        while left > 0:
            piece = await reader.read(min(PIECE, left))
            if not piece:
                raise BrokenAnswer(f"the answer broke off {left} bytes before its end")
            left -= len(piece)
            yield piece
    else:
        while True:
            piece = await reader.read(PIECE)
            if not piece:
                return
            yield piece


@contextlib.contextmanager
def _ending(writer: asyncio.StreamWriter) -> Iterator[None]:
    """A request that is cancelled is sent no further: it would be carried out later. close() sends what is left."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    writer.close()


class AsyncChannel:
    def __init__(self, address: Address) -> None:
        self.address = address

    async def _open(self) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        at = self.address
        if at.socket:
            return await asyncio.open_unix_connection(at.socket)
        return await asyncio.open_connection(at.name, at.port, ssl=at.tls)

    async def _send(self, writer: asyncio.StreamWriter, request: Request) -> None:
        at = self.address
        headers = {"Host": at.name, **_headers(at, request)}
        if request.body is not None:
            headers["Content-Length"] = str(len(request.body))
        head = f"{request.method} {request.target} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(head.encode("latin-1") + b"\r\n" + (request.body or b""))
        try:
            await writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # a refusal may come before the whole body was taken

    async def _whole(self, request: Request) -> Response:
        reader, writer = await self._open()
        try:
            with _ending(writer):
                await self._send(writer, request)
                status, headers = await _head(reader)
                return Response(status, headers, b"".join([piece async for piece in _body(reader, headers)]))
        except asyncio.IncompleteReadError as error:
            raise BrokenAnswer("the answer broke off") from error

    async def exchange(self, request: Request) -> Response:
        try:
            return await asyncio.wait_for(self._whole(request), request.timeout)
        except asyncio.TimeoutError as error:
            raise BrokenAnswer(f"no answer within {request.timeout:g} s") from error

    async def stream(self, request: Request) -> AsyncIterator[Union[Response, bytes]]:
        reader, writer = await self._open()
        try:
            with _ending(writer):
                await self._send(writer, request)
                status, headers = await asyncio.wait_for(_head(reader), request.timeout)
                body = _body(reader, headers)
                refusal = b"".join([piece async for piece in body]) if status >= 400 else b""
                yield Response(status, headers, refusal)
                async for piece in body:
                    yield piece
        except asyncio.IncompleteReadError as error:
            raise BrokenAnswer("the answer broke off") from error
        except asyncio.TimeoutError as error:
            raise BrokenAnswer(f"no answer within {request.timeout:g} s") from error

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
