#!/usr/bin/env python3
"""Requests of the Python client that are sent again: over a restart, after a lost answer, after "try again"."""
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import tempfile
import threading

from client import escrow, eventually, expect, expect_equal, main, raised
from remote_test import AGENT, Remote
from escrow._channel import Address, AsyncChannel, Request


class Between:
    """A Unix socket before the service's. `lose(request, number)`: whether the service gets this request (counted from
    1), and its answer is thrown away; `instead(...)`: an answer of its own, or None.
    """

    def __init__(self, service, lose=lambda request, number: False, instead=lambda request, number: None):
        self.path, self.service = f'{service.directory}/between', service
        self.lose, self.instead, self.seen = lose, instead, []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self):
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                self.pass_on(client)

    def pass_on(self, client):
        request = b''
        while not self.is_whole(request):
            request += client.recv(65536)
        self.seen.append(request)
        own = self.instead(request, len(self.seen))
        if own is not None:
            client.sendall(own)
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            there.connect(self.service.socket)
            there.sendall(request)
            answer = b''
            while piece := there.recv(65536):
                answer += piece
        if not self.lose(request, len(self.seen)):
            client.sendall(answer)
        elif len(self.seen) % 2 == 0:
            client.sendall(answer[:-2])  # cut short, which is no answer either

    @staticmethod
    def is_whole(request):
        head, end, body = request.partition(b'\r\n\r\n')
        lengths = [int(line.split(b':')[1]) for line in head.lower().split(b'\r\n')
                   if line.startswith(b'content-length:')]
        return bool(end) and len(body) >= sum(lengths)

    def keys(self):
        lines = [line for request in self.seen for line in request.split(b'\r\n')]
        return [line for line in lines if line.lower().startswith(b'idempotency-key:')]


def pauses(client):
    """Counts the client's pauses: that it has met the failure."""
    channel, before = client.requests.channel, client.requests.channel.pause
    counted = []

    async def pause(seconds):
        counted.append(seconds)
        await before(min(seconds, 0.05))
    channel.pause = pause
    return counted


def WorkGoesOnOverARestartOfTheService(start):
    with start() as service:
        client = escrow.connect(service.socket, patience=300)
        counted = pauses(client._inner)
        for how in (signal.SIGTERM, signal.SIGKILL):
            session = client.session('data', mountpoint=f'{service.mounts}/work')
            session.write('first.txt', 'one')
            del counted[:]
            service.stop(how)
            failures = []

            def work(one=session, problems=failures, name=how):
                try:
                    with one:
                        one.write(f'{name}.txt', 'two')
                        one.delete('first.txt')
                except BaseException as error:  # pylint: disable=broad-except
                    problems.append(error)
            worker = threading.Thread(target=work)
            worker.start()
            eventually('it has met the service that is away', lambda: counted)
            service.start()
            worker.join(200)
            expect_equal('the failures', (failures, worker.is_alive()), ([], False))
            expect_equal('the state', session.state, 'committed')
            expect_equal('the file', service.git('show', f'main:{how}.txt'), 'two')
        run = client.spawn('data', ['sh', '-c', 'while [ ! -e a.txt ]; do sleep 0.1; done; echo done'])
        service.stop(signal.SIGKILL)
        ended = []
        worker = threading.Thread(target=lambda: ended.append(run.result()))
        del counted[:]
        worker.start()
        eventually('it has met the service that is away', lambda: counted)
        service.start()
        worker.join(200)
        expect_equal('the run', [(one.stdout, one.state) for one in ended], [(b'done\n', 'committed')])

        async def asynchronous():
            other = escrow.aio.connect(service.socket, patience=300)
            met = pauses(other)
            async with other.session('data') as s:
                service.stop(signal.SIGKILL)
                write = asyncio.ensure_future(s.write('async.txt', 'three'))
                while not met:
                    await asyncio.sleep(0.01)
                service.start()
                await write
            return s.state
        expect_equal('asyncio', asyncio.run(asynchronous()), 'committed')
        impatient = escrow.connect(service.socket, patience=0)
        impatient.repositories()
        service.stop()
        raised(escrow.Unreachable, impatient.repositories)


def ALostAnswerIsAskedForAgainAndCarriedOutOnce(start):
    """Of every request the first two answers are lost, or cut short."""
    with start() as service:
        with Between(service, lambda request, number: number % 3 != 0) as between:
            client = escrow.connect(between.path, patience=300)
            pauses(client._inner)
            with client.session('data') as s:
                s.write('new.txt', 'one')
                s.delete('a.txt')
                expect_equal('a content', s.read('new.txt'), b'one')
                expect_equal('the names', [one.name for one in s.list()], ['dir', 'new.txt'])
            expect_equal('the sessions', [one.id for one in client.sessions() if one.document['source'] != 'import'],
                         [s.id])
            run = client.spawn('data', ['sh', '-c', 'echo x >> count.txt'])
            expect_equal('the run', run.result().state, 'committed')
            expect_equal('it ran once', service.git('show', 'main:count.txt'), 'x')
            run.free()
            keys = between.keys()
            expect_equal('three requests with each key', [keys.count(one) for one in set(keys)], [3] * 3)
        expect_equal('the commits', service.git('rev-list', '--count', 'main'), '3')


def refusal(status, code, retryable):
    body = json.dumps({'type': 'x', 'title': 'x', 'status': status, 'code': code, 'retryable': retryable,
                       'exit_code': 1, 'detail': f'said {code}'}).encode()
    after = b'Retry-After: 1\r\n' if retryable else b''
    return (f'HTTP/1.1 {status} No\r\nContent-Type: application/problem+json\r\n'.encode() + after
            + f'Content-Length: {len(body)}\r\n\r\n'.encode() + body)


def WhatMayPassIsTriedAgainAndWhatMayNotIsRaised(start):
    said = {}

    def instead(request, number):
        del request
        return said['refusal'] if number - said['begun'] <= 3 else None
    with start() as service, Between(service, instead=instead) as between:
        for kind, status, code in ((escrow.Busy, 409, 'busy'), (escrow.Unavailable, 503, 'unavailable'),
                                   (escrow.IdempotencyInFlight, 409, 'idempotency_in_flight'),
                                   (escrow.BranchMoved, 503, 'branch_moved'),
                                   (escrow.RequestTimeout, 408, 'request_timeout')):
            said.update(refusal=refusal(status, code, True), begun=len(between.seen))
            client = escrow.connect(between.path)
            pauses(client._inner)
            session = client.session('data')
            expect_equal(f'requests after {code}', len(between.seen) - said['begun'], 4)
            session.rollback()
            if kind is not escrow.IdempotencyInFlight:  # the service is at work on that
                said.update(begun=len(between.seen))
                raised(kind, escrow.connect(between.path, patience=0).repositories)
                expect_equal(f'requests without patience after {code}', len(between.seen) - said['begun'], 1)
        for kind, status, code, retryable in ((escrow.NoSpace, 507, 'no_space', True),
                                              (escrow.Internal, 500, 'internal', False),
                                              (escrow.Conflict, 409, 'conflict', False)):
            said.update(refusal=refusal(status, code, retryable), begun=len(between.seen))
            raised(kind, lambda: escrow.connect(between.path).session('data'))
            expect_equal(f'requests after {code}', len(between.seen) - said['begun'], 1)
        said.update(refusal=b'HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\nugly', begun=len(between.seen))
        expect_equal('no problem at all', raised(escrow.Problem, escrow.connect(between.path).repositories).status, 502)


def ARequestThatIsCancelledIsSentNoFurther(start):
    """Else a write that was given up overwrites a later one, once the service comes to it."""
    del start

    async def received(directory, size):
        begun, goes_on = asyncio.Event(), asyncio.Event()
        got = asyncio.get_running_loop().create_future()

        async def serve(reader, writer):
            await reader.readuntil(b'\r\n\r\n')
            begun.set()
            await goes_on.wait()
            count = 0
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(1 << 20):
                    count += len(piece)
            writer.close()
            got.set_result(count)
        server = await asyncio.start_unix_server(serve, f'{directory}/socket')
        channel = AsyncChannel(Address(f'{directory}/socket', 'escrowd', 0, None, None))
        write = asyncio.ensure_future(channel.exchange(Request('PUT', '/v1/x', {}, bytes(size), 300)))
        await begun.wait()
        write.cancel()
        await asyncio.wait([write])
        expect(write.cancelled(), 'it was not cancelled')
        goes_on.set()
        count = await got
        server.close()
        return count
    with tempfile.TemporaryDirectory() as directory:
        size = 10 << 20
        expect(asyncio.run(received(directory, size)) < size, 'the whole of it has come')


def ATokenOverTlsIsItsPrincipal(start):
    with Remote(start) as remote:
        host, ca = f'https://127.0.0.1:{remote.port}', f'{remote.service.directory}/cert.pem'
        client = escrow.connect(host, token=remote.token, ca=ca)
        with client.session('data') as s:
            s.write('over-tls.txt', b'x' * 1_000_000)
            expect_equal('a content', s.read('over-tls.txt'), b'x' * 1_000_000)
        expect_equal('the committer', (s.state, s.info.committer), ('committed', AGENT))
        raised(escrow.Unauthenticated, escrow.connect(host, token='escrow_wrong', ca=ca).repositories)
        raised(escrow.Unreachable, escrow.connect(host, token=remote.token).repositories)  # who signed that?
        raised(escrow.Forbidden, lambda: client.register('other', create=True))

        async def asynchronous():
            async with escrow.aio.connect(host, token=remote.token, ca=ca).session('data') as opened:
                await opened.write('large', b'y' * 1_000_000)
                return await opened.read('large') == b'y' * 1_000_000
        expect(asyncio.run(asynchronous()), 'asyncio')
        by_environment = ['python3', '-c', 'import escrow; print(escrow.connect(ca=__import__("sys").argv[1])'
                          '.repositories()[0].name)', ca]
        ran = subprocess.run(by_environment, check=False, capture_output=True, text=True, timeout=300,
                             env={'PYTHONPATH': f'{escrow.__path__[0]}/..', 'PYTHONDONTWRITEBYTECODE': '1',
                                  'ESCROW_HOST': host, 'ESCROW_TOKEN': remote.token, 'PATH': '/usr/bin:/bin'})
        expect_equal(f'by the environment: {ran.stderr}', ran.stdout, 'data\n')


if __name__ == '__main__':
    main(globals())
