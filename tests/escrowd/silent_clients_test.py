#!/usr/bin/env python3
"""Clients that connect and say nothing, or nothing whole, in any number: they keep nobody out."""
import socket
import ssl
import subprocess
import sys

from authorization_test import descriptors
from remote_test import Remote
from service import NOBODY, eventually, expect, expect_equal, main, request

LIMIT, MANY = 40, 120
HEALTH = b'GET /v1/health HTTP/1.1\r\nHost: x\r\n'


def is_open(client):
    """Whether the service has not closed it."""
    client.settimeout(0)
    try:
        return client.recv(1) != b''
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False
    finally:
        client.settimeout(100)


def plain(remote, source='127.0.0.1'):
    return socket.create_connection(('127.0.0.1', remote.port), timeout=300, source_address=(source, 0))


def under_tls(remote, text=b''):
    client = plain(remote)
    try:
        client = remote.context.wrap_socket(client, server_hostname='127.0.0.1')
        client.sendall(text)
    except (OSError, ssl.SSLError):
        pass  # closed for a later one
    return client


def half_a_handshake(remote):
    client = plain(remote)
    client.sendall(b'\x16\x03\x01\x02\x00\x01')
    return client


def SilentClientsOverTcpKeepNobodyOut(start):
    with Remote(start, max_connections=LIMIT, idle_timeout_ms=300_000, request_timeout_ms=300_000) as remote:
        before = descriptors(remote.service)
        held = []
        for what, connect in (('nothing', plain), ('half a handshake', half_a_handshake), ('no request', under_tls),
                              ('half a request', lambda to: under_tls(to, HEALTH))):
            held += [connect(remote) for _ in range(MANY)]
            for _ in range(5):
                remote.ask('GET', '/v1/health').expect(200)
            eventually(f'{what} is bounded', lambda: descriptors(remote.service) <= before + LIMIT + 5)
            expect(is_open(held[-1]), f'the last one that said {what} is closed already')
        remote.service.get('/v1/health').expect(200)
        for client in held:
            client.close()
        eventually('every descriptor is given back', lambda: descriptors(remote.service) <= before + 2)


def WhoHasFewConnectionsKeepsThem(start):
    with Remote(start, tls=False, max_connections=LIMIT, idle_timeout_ms=300_000, request_timeout_ms=300_000) as remote:
        of_few = [plain(remote, '127.0.0.2') for _ in range(3)]
        of_many = [plain(remote) for _ in range(MANY)]
        eventually('the oldest of many are closed', lambda: not is_open(of_many[0]))
        request_of = HEALTH + f'Authorization: Bearer {remote.token}\r\n\r\n'.encode()
        for client in of_few:
            client.sendall(request_of)
            expect(client.recv(100).startswith(b'HTTP/1.1 200'), 'one of few was closed')
        # Known ones, that wait for their next request, are kept before strangers.
        of_many += [plain(remote, f'127.0.1.{number}') for number in range(1, MANY)]
        for client in of_few:
            client.recv(65536)
            client.sendall(request_of)
            expect(client.recv(100).startswith(b'HTTP/1.1 200'), 'a known one was closed')
        for client in of_few + of_many:
            client.close()


def WhoIsBeingServedIsNotInterrupted(start):
    with Remote(start, tls=False, max_connections=LIMIT, idle_timeout_ms=300_000, request_timeout_ms=300_000) as remote:
        session = remote.ask('POST', '/v1/sessions', {'repository': 'data'}).expect(201)['session']
        authorized = f'Authorization: Bearer {remote.token}\r\n\r\n'.encode()
        def asked(target):
            client = plain(remote)
            client.sendall(b'GET ' + target.encode() + b' HTTP/1.1\r\nHost: x\r\n' + authorized)
            return client
        waiting, following = asked(f'/v1/sessions/{session}/wait?timeout_ms=250000'), asked('/v1/events')
        expect(following.recv(100).startswith(b'HTTP/1.1 200'), 'the events are not told')
        silent = [plain(remote) for _ in range(MANY)]
        eventually('the oldest are closed', lambda: not is_open(silent[0]))
        remote.ask('POST', f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect(waiting.recv(100).startswith(b'HTTP/1.1 200'), 'who waited was closed')
        told = b''
        while b'committed' not in told:
            piece = following.recv(65536)
            expect(piece, f'who followed was closed: {told}')
            told += piece
        for client in (waiting, following, *silent):
            client.close()


SILENT_LOCALS = '''
import os, socket, sys
os.setgroups([int(sys.argv[3])]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
clients = []
for _ in range(int(sys.argv[2])):
    clients.append(socket.socket(socket.AF_UNIX))
    clients[-1].connect(sys.argv[1])
print('connected', flush=True)
sys.stdin.read()
'''


def AUserOfTheMachineLocksNoOtherOut(start):
    with start(max_connections=LIMIT, idle_timeout_ms=300_000, request_timeout_ms=300_000) as service:
        own = socket.socket(socket.AF_UNIX)
        own.connect(service.socket)
        theirs = subprocess.Popen([sys.executable, '-c', SILENT_LOCALS, service.socket, str(MANY), str(NOBODY)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        expect_equal('nobody', theirs.stdout.readline().strip(), 'connected')
        for _ in range(5):
            service.get('/v1/health').expect(200)
        own.settimeout(100)
        own.sendall(HEALTH + b'\r\n')
        expect(own.recv(100).startswith(b'HTTP/1.1 200'), "root's own was closed for nobody's")
        theirs.stdin.close()
        theirs.wait(100)


def WhereEveryConnectionIsUsedTheNextIsTold(start):
    with start(max_connections=8) as service:
        followers = []
        for _ in range(8):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(100)
            client.connect(service.socket)
            client.sendall(b'GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n')
            expect(client.recv(100).startswith(b'HTTP/1.1 200'), 'the events are not told')
            followers.append(client)
        request(service.socket, 'GET', '/v1/health').expect(503, 'unavailable')
        followers.pop().close()
        eventually('there is room again', lambda: request(service.socket, 'GET', '/v1/health').status == 200)
        for client in followers:
            client.close()


if __name__ == '__main__':
    main(globals())
