#!/usr/bin/env python3
"""escrowd over TCP: tokens, TLS, and what clients that mean harm, or are slow, or many, try there."""
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from description import DESCRIPTION
from authorization_test import descriptors
from service import Answer, JSON, eventually, expect, expect_equal, let_go, main, request, write

AGENT = 'agent:ci'


def free_port():
    """(port, what keeps it from everybody but who listens on it with SO_REUSEADDR, as escrowd does)"""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(('127.0.0.1', 0))
    return holder.getsockname()[1], holder


def make_token(service):
    """(token, hash), as the administrator makes them."""
    said = subprocess.run([service.escrowd_binary, '--make-token'], check=True, capture_output=True, text=True,
                          timeout=300).stdout
    match = re.fullmatch(r'token (escrow_[\w-]{43})\nhash  (sha256:[0-9a-f]{64})\n', said)
    expect(match, f'--make-token said {said!r}')
    return match.group(1), match.group(2)


def make_certificate(directory):
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
                    '-days', '2', '-subj', '/CN=escrowd', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout',
                    f'{directory}/key.pem', '-out', f'{directory}/cert.pem'], check=True, capture_output=True,
                   timeout=300)


class Remote:
    """A service that listens on a TCP port of this machine, with one token of agent:ci."""

    def __init__(self, start, tls=True, tokens=None, **config):
        self.port, self.holder = free_port()
        self.service = start(listen=f'127.0.0.1:{self.port}', **config)
        self.token, hashed = make_token(self.service)
        self.service.config['tokens'] = {AGENT: [hashed], **(tokens or {})}
        self.context = None
        if tls:
            make_certificate(self.service.directory)
            self.service.config['tls_certificate'] = f'{self.service.directory}/cert.pem'
            self.service.config['tls_key'] = f'{self.service.directory}/key.pem'
            self.context = ssl.create_default_context(cafile=f'{self.service.directory}/cert.pem')
        self.service.write_config()

    def __enter__(self):
        self.service.__enter__()
        return self

    def __exit__(self, *why):
        self.service.__exit__(*why)
        self.holder.close()

    def connect(self, handshake=True):
        plain = socket.create_connection(('127.0.0.1', self.port), timeout=300)
        if self.context is None or not handshake:
            return plain
        return self.context.wrap_socket(plain, server_hostname='127.0.0.1')

    def ask(self, method, target, body=None, token=None, headers=None):
        if self.context is None:
            connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=300)
        else:
            connection = http.client.HTTPSConnection('127.0.0.1', self.port, timeout=300, context=self.context)
        sent = {'Authorization': f'Bearer {self.token if token is None else token}', **(headers or {})}
        if body is not None:
            sent.update(JSON)
        connection.request(method, target, None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        answer = Answer(response.status, response.getheaders(), response.read())
        DESCRIPTION.check(method, target, body, answer)
        connection.close()
        return answer

    def raw(self, data, handshake=True, shut=False):
        """All that the service answers to these bytes until it closes."""
        answer = b''
        with self.connect(handshake) as client:
            try:
                client.sendall(data)
                if shut:
                    client.shutdown(socket.SHUT_WR)
            except OSError:  # it was answered, and closed, before it was sent
                pass
            try:
                while piece := client.recv(65536):
                    answer += piece
            except OSError:  # it was closed or reset, of TLS or below
                pass
        return answer


def starts(answer, status):
    expect(answer.startswith(f'HTTP/1.1 {status}'.encode()), f'expected {status}, got {answer[:200]!r}')


def ATokenOverTlsIsItsPrincipal(start):
    with Remote(start, run_as={AGENT: ['agent:helper']}) as remote:
        remote.ask('GET', '/v1/health').expect(200)
        opened = remote.ask('POST', '/v1/sessions', {'repository': 'data'}).expect(201)
        expect_equal('who', (opened['issuer'], opened['committer'], opened['uid']), (AGENT, AGENT, 65534))
        session = opened['session']
        other = remote.service.open()['session']
        # A token's principal is nobody else, least of all the user of the service.
        remote.ask('GET', f'/v1/sessions/{other}').expect(404, 'no_session')
        remote.ask('POST', '/v1/repositories', {'name': 'x', 'path': '/x'}).expect(403, 'forbidden')
        remote.ask('POST', '/v1/sessions', {'repository': 'data', 'committer': 'user:root'}).expect(403, 'forbidden')
        remote.ask('POST', '/v1/sessions', {'repository': 'data', 'uid': 0}).expect(403, 'forbidden')
        remote.ask('POST', '/v1/sessions', {'repository': 'data', 'committer': 'agent:helper'}).expect(201)
        ended = remote.ask('POST', f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the end', ended['state'], 'committed')
        # The same principal over the socket cannot be had: there the kernel decides, and a token is not looked at.
        answer = request(remote.service.socket, 'GET', '/v1/sessions?limit=1',
                         headers={'Authorization': f'Bearer {remote.token}'})
        expect_equal('the operator sees all', len(answer.expect(200)['sessions']), 1)


def WithoutAValidTokenNothingIsAnswered(start):
    with Remote(start) as remote:
        session = remote.service.open()['session']
        for target in ('/v1/health', '/metrics', '/v1/repositories', f'/v1/sessions/{session}'):
            for token in ('', 'wrong', remote.token[:-1], remote.token + 'x', remote.service.config['tokens'][AGENT][0],
                          remote.token.upper()):
                answer = remote.ask('GET', target, token=token)
                answer.expect(401, 'unauthenticated')
                expect_equal('the header', answer.headers['www-authenticate'], 'Bearer')
        for line in (b'', b'Authorization: Basic YTpi\r\n', b'Authorization: ' + remote.token.encode() + b'\r\n',
                     b'Authorization: Bearer\r\n'):
            starts(remote.raw(b'GET /v1/health HTTP/1.1\r\nHost: x\r\n' + line + b'\r\n'), 401)
        starts(remote.raw(b'GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n'), 401)
        # The body of a stranger is not waited for, and one connection's token is not the next request's.
        starts(remote.raw(b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n'), 401)
        with_token = f'GET /v1/health HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {remote.token}\r\n\r\n'.encode()
        answer = remote.raw(with_token + b'GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n')
        starts(answer, 200)
        expect(b'HTTP/1.1 401' in answer, f'the second request was answered: {answer!r}')


def TokensAreReplacedAndTheirRolesAreThePrincipals(start):
    with Remote(start, reviewers=['user:alice']) as remote:
        service = remote.service
        alice, hashed = make_token(service)
        second, second_hash = make_token(service)
        service.config['tokens'].update({'user:alice': [hashed, second_hash]})
        service.write_config()
        service.stop()
        service.start()
        session = service.open(require_approval=True)['session']
        for token in (alice, second):
            expect_equal('a reviewer', remote.ask('GET', f'/v1/sessions/{session}', token=token).expect(200)['session'],
                         session)
        remote.ask('POST', f'/v1/sessions/{session}/rollback', {}, token=alice).expect(403, 'forbidden')
        service.config['tokens']['user:alice'] = [second_hash]
        service.write_config()
        service.stop()
        service.start()
        remote.ask('GET', '/v1/health', token=alice).expect(401, 'unauthenticated')
        remote.ask('GET', '/v1/health', token=second).expect(200)


def TheConfigurationOfTcpIsCheckedByName(start):
    with Remote(start) as remote:
        service, good = remote.service, dict(remote.service.config)
        write(f'{service.directory}/no.pem', 'no certificate\n')
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', f'{service.directory}/other.pem'],
                       check=True, capture_output=True, timeout=300)
        left_out = object()
        no_tls = {'tls_certificate': left_out, 'tls_key': left_out}
        for change, said in (({'listen': f'0.0.0.0:{remote.port}', **no_tls}, 'on their way'),
                             ({'listen': f'[::]:{remote.port}', **no_tls}, 'on their way'),
                             ({'listen': 'localhost:80'}, 'numeric'), ({'listen': '127.0.0.1'}, 'numeric'),
                             ({'listen': '127.0.0.1:0'}, 'numeric'), ({'listen': '127.0.0.1:70000'}, 'numeric'),
                             ({'tls_key': left_out}, 'together'), ({'tls_key': f'{service.directory}/none'}, 'none'),
                             ({'tls_certificate': f'{service.directory}/no.pem'}, 'no.pem'),
                             ({'tls_key': f'{service.directory}/other.pem'}, 'other.pem'),
                             ({'tokens': {AGENT: ['secret']}}, 'secret'),
                             ({'accounts': {AGENT: 'user:root'}}, 'root'),
                             ({'accounts': {AGENT: 'user:no-such-user'}}, 'no-such-user'),
                             ({'accounts': {'somebody': 'user:nobody'}}, 'somebody'),
                             ({'tokens': {'somebody': []}}, 'somebody')):
            config = {**good, **change}
            service.config = {name: value for name, value in config.items() if value is not left_out}
            service.write_config()
            check = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--check-config'],
                                   capture_output=True, text=True, check=False, timeout=300)
            expect_equal(f'the exit status for {change}: {check.stderr}', check.returncode, 2)
            expect(said in check.stderr, f'{change}: {check.stderr!r} does not say {said!r}')
        service.config = good
        service.write_config()


def WithoutTlsItIsThisMachinesAlone(start):
    with Remote(start, tls=False) as remote:
        remote.ask('GET', '/v1/health').expect(200)
        remote.ask('GET', '/v1/health', token='wrong').expect(401, 'unauthenticated')
        second = subprocess.run([remote.service.escrowd_binary, '--config', remote.service.config_path, '--socket',
                                 f'{remote.service.directory}/2.sock', '--state-directory',
                                 f'{remote.service.directory}/2'], capture_output=True, text=True, check=False,
                                timeout=300)
        expect_equal('the exit status', second.returncode, 125)
        expect(f'127.0.0.1:{remote.port}' in second.stderr, second.stderr)


def OnlyTlsOfTodayIsSpoken(start):
    with Remote(start) as remote:
        for data in (b'GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n', b'\x00' * 100,
                     b'\x16\x03\x01\xff\xff' + b'x' * 70000):
            answer = remote.raw(data, handshake=False, shut=True)
            expect(not answer.startswith(b'HTTP'), f'{data[:20]!r} was answered with {answer!r}')
        old = ssl.create_default_context(cafile=f'{remote.service.directory}/cert.pem')
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        try:
            with socket.create_connection(('127.0.0.1', remote.port), timeout=300) as plain:
                old.wrap_socket(plain, server_hostname='127.0.0.1')
            expect(False, 'TLS 1.1 was spoken')
        except (ssl.SSLError, OSError):
            pass
        curl = subprocess.run(['curl', '--silent', '--fail-with-body', '--cacert',
                               f'{remote.service.directory}/cert.pem', '-H', f'Authorization: Bearer {remote.token}',
                               f'https://127.0.0.1:{remote.port}/v1/health'], check=True, capture_output=True,
                              text=True, timeout=300).stdout
        expect('"ok"' in curl, curl)


def TooLargeOverTcpIsRefused(start):
    with Remote(start, max_body_bytes=100_000) as remote:
        with_token = f'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {remote.token}\r\n'.encode()
        for size in (100_001, 3_000_000):
            answer = remote.raw(with_token + f'Content-Length: {size}\r\n\r\n'.encode() + b' ' * size)
            starts(answer, 413)
        chunks = b''.join(b'2000\r\n' + b' ' * 0x2000 + b'\r\n' for _ in range(20)) + b'0\r\n\r\n'
        starts(remote.raw(with_token + b'Transfer-Encoding: chunked\r\n\r\n' + chunks), 413)
        starts(remote.raw(b'GET /v1/health HTTP/1.1\r\nHost: x\r\nX: ' + b'y' * 100_000 + b'\r\n\r\n'), 431)
        remote.ask('GET', '/v1/health').expect(200)


def SlowAndHalfOpenClientsOverTcpCostOnlyThemselves(start):
    with Remote(start, request_timeout_ms=86_400_000, idle_timeout_ms=86_400_000) as remote:
        service = remote.service
        before = descriptors(service)
        header = (f'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {remote.token}\r\n'
                  'Content-Length: 10\r\n').encode()
        # The bytes, and whether they come after a handshake or in the middle of it.
        slow = ((header + b'\r\n{', True), (b'GET /v1/hea', True), (b'', True), (b'', False),
                (b'\x16\x03\x01\x02\x00\x01', False))
        earlier = []
        for data, handshake in slow:
            earlier.append(remote.connect(handshake))
            earlier[-1].sendall(data)
        remote.ask('GET', '/v1/health').expect(200)  # the earlier ones are accepted, with a day each
        # Longer than a client on a busy machine pauses, as in the middle of its handshake.
        service.config.update(request_timeout_ms=5_000, idle_timeout_ms=6_000)
        service.write_config()
        service.post('/v1/reload').expect(200)
        with ThreadPoolExecutor() as pool:
            body, begun, *silent = pool.map(lambda one: remote.raw(*one), slow)
        starts(body, 408)
        starts(begun, 408)
        expect_equal('an idle one, no handshake, half a handshake', silent, [b'', b'', b''])
        expect_equal('of those with a day', let_go(earlier), [])
        for client in earlier:
            client.close()
        # Clients that are gone without a word: the connection is reset in every phase.
        for data in (b'', b'GET /v1/he', header + b'\r\n{'):
            client = remote.connect()
            client.sendall(data)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\x01\x00\x00\x00\x00\x00\x00\x00')
            client.close()
        remote.ask('GET', '/v1/health').expect(200)
        eventually('every descriptor is given back', lambda: descriptors(service) <= before + 2)


def AThousandIdleTlsConnectionsAreServed(start):
    with Remote(start, max_connections=1010, idle_timeout_ms=300_000, request_timeout_ms=300_000) as remote:
        before = descriptors(remote.service)
        clients = [remote.connect() for _ in range(1000)]
        remote.ask('GET', '/v1/health').expect(200)
        expect_equal('one more client waited for the end of', let_go(clients), [])
        ask = f'GET /v1/health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {remote.token}\r\n\r\n'.encode()
        clients[500].sendall(ask)
        expect(clients[500].recv(100).startswith(b'HTTP/1.1 200'), 'an idle one is not served')
        more = [remote.connect(handshake=False) for _ in range(30)]
        # Of the silent ones the oldest are not missed.
        expect_equal('the oldest', clients[0].recv(100), b'')
        remote.ask('GET', '/v1/health').expect(200)
        # Strangers that take all there is of the port keep nobody from the socket.
        remote.service.get('/v1/health').expect(200)
        for client in clients + more:
            client.close()
        eventually('every descriptor is given back', lambda: descriptors(remote.service) <= before + 2)


def AClientThatGoesInTheMiddleOfACommitOverTlsLeavesNothingStuck(start):
    with Remote(start) as remote:
        service = remote.service
        for turn in range(6):
            point = f'{service.mounts}/work-{turn}'
            opening = {'repository': 'data', 'mountpoint': point}
            session = remote.ask('POST', '/v1/sessions', opening).expect(201)['session']
            for number in range(100):
                write(f'{point}/file-{turn}-{number}', 'x' * 100)
            body = b'{"exit_code": 0}'
            with remote.connect() as client:
                client.sendall((f'POST /v1/sessions/{session}/finish HTTP/1.1\r\nHost: x\r\n'
                                f'Authorization: Bearer {remote.token}\r\nContent-Type: application/json\r\n'
                                f'Content-Length: {len(body)}\r\n\r\n').encode() + body)
                time.sleep(0.003 * turn)
            view = remote.ask('GET', f'/v1/sessions/{session}/wait?timeout_ms=250000').expect(200)
            expect_equal('the state', view['state'], 'committed')
            eventually('the mount is gone', lambda point=point: not service.is_mounted(point))


if __name__ == '__main__':
    main(globals())
