#!/usr/bin/env python3
"""What escrow --host run takes for a restart of the service and waits for: a service behind a socket that fails."""
import os
import socket
import threading

from host_test import run
from runs_test import asleep, until_woken, wake
from service import eventually, expect, expect_equal, main


class Between:
    """Passes connections on to the service; what `fail` returns for a request's first line is answered in its place."""

    def __init__(self, service, fail):
        self.service, self.fail = service, fail
        self.path = f'{service.directory}/between.sock'
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen()
        self.asked = []

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *why):
        self.listener.close()
        os.unlink(self.path)

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    @staticmethod
    def request_of(client):
        data = b''
        while b'\r\n\r\n' not in data:
            piece = client.recv(65536)
            if not piece:
                return b''
            data += piece
        head, _, body = data.partition(b'\r\n\r\n')
        length = [int(line.split(b':')[1]) for line in head.split(b'\r\n')
                  if line.lower().startswith(b'content-length')]
        while length and len(body) < length[0]:
            body += client.recv(65536)
        return head + b'\r\nConnection: close\r\n\r\n' + body

    def pass_on(self, client):
        """One request for each connection."""
        with client:
            request = self.request_of(client)
            if not request:
                return
            line = request.split(b'\r\n')[0].decode()
            self.asked.append(line)
            answer = self.fail(line, len(self.asked))
            if answer is not None:
                client.sendall(answer)
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as upstream:
                upstream.connect(self.service.socket)
                upstream.sendall(request)
                while piece := upstream.recv(65536):
                    client.sendall(piece)


def problem(status, code, retryable):
    body = (f'{{"type":"about:blank","title":"t","status":{status},"code":"{code}","detail":"it is {code}",'
            f'"retryable":{"true" if retryable else "false"},"exit_code":125}}').encode()
    return (f'HTTP/1.1 {status} X\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n'
            'Connection: close\r\n\r\n').encode() + body


def run_behind(service, fail, *words):
    """How it ended, and the first lines of what it asked."""
    with Between(service, fail) as between:
        result = run(service, '--host', f'unix://{between.path}', 'run', '--', *words)
        return result, between.asked


def WhatLooksLikeARestartIsWaitedFor(start):
    with start() as service:
        for answer in (b'', b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut short',
                       problem(503, 'unavailable', True)):
            failed = []
            def fail(line, number, answer=answer, failed=failed):
                if line.startswith('POST') or len(failed) >= 5 or number % 2:
                    return None
                failed.append(line)
                return answer
            def end_the_run():
                eventually('it has failed', lambda: len(failed) == 5)
                wake(33)
            waking = threading.Thread(target=end_the_run)
            waking.start()
            result, _ = run_behind(service, fail, 'sh', '-c',
                                   f'echo one; {until_woken(33)}; echo two; date +%N > new')
            waking.join()
            expect_equal(f'{answer[:30]}: {result.stderr}', (result.returncode, result.stdout), (0, 'one\ntwo\n'))
            expect_equal('it failed', len(failed), 5)


def WhatIsNoRestartIsSaidAtOnce(start):
    with start() as service:
        for answer, sentence in ((problem(500, 'internal', False), 'it is internal; the run goes on there'),
                                 (problem(500, 'damaged_repository', False), 'it is damaged_repository; the run goes'),
                                 (problem(507, 'no_space', True), 'it is no_space; the run goes on there'),
                                 (problem(503, 'unavailable', False), 'it is unavailable; the run goes on there'),
                                 (problem(404, 'not_found', False), 'it is not_found'),
                                 (b'HTTP/1.1 502 X\r\nContent-Length: 0\r\n\r\n', 'it said 502; the run goes on')):
            result, asked = run_behind(service, lambda line, _, answer=answer: answer if '/wait' in line else None,
                                       'sh', '-c', f'{until_woken(34)}; touch new-$ESCROW_SESSION')
            expect_equal(f'{answer[:30]}: {result.stderr}', result.returncode, 125)
            expect(sentence in result.stderr, result.stderr)
            expect_equal(f'{answer[:30]}: how often it was asked', sum('/wait' in line for line in asked), 1)
            # When there is no run there is nothing to wait for, whatever it looks like.
            result, asked = run_behind(service, lambda line, _: problem(503, 'unavailable', True)
                                       if line.startswith('POST') else None, 'true')
            expect_equal(f'no run: {result.stderr}', result.returncode, 125)
            expect_equal('no run: how often it was asked', sum(line.startswith('POST') for line in asked), 1)
        eventually('all six go on', lambda: len(asleep(34)) == 6)
        wake(34)
        runs = [service.get(f'/v1/runs/{one["run"]}/wait?timeout_ms=250000').expect(200) for one in
                service.get('/v1/runs').expect(200)['runs']]
        expect_equal('the runs went on', [one['session']['state'] for one in runs], ['committed'] * 6)


if __name__ == '__main__':
    main(globals())
