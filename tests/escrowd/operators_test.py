#!/usr/bin/env python3
"""What those who operate an escrowd rely on: it says how it is while it is busy, and why it refused somebody."""
import fcntl
import os
import re
import select
import socket
import sqlite3
import termios

from remote_test import Remote
from service import NOBODY, as_user, eventually, expect, expect_equal, main, read, request

LINE = re.compile(r'request ([0-9a-f]{16}) of (.+?): "([A-Z]*)" (".*?"): (\d{3}) (\w+): "(.*)"$')


def refusals(service):
    """(id, who, method, path, status, code) of each line of the log about one."""
    found = []
    for line in read(f'{service.directory}/log').splitlines():
        match = LINE.search(line)
        if match:
            found.append(match.groups()[:6])
    return found


def send(service, target, method='GET', body=b''):
    """A connection on which that has been asked."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(service.socket)
    client.sendall(f'{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n'
                   f'Content-Length: {len(body)}\r\n\r\n'.encode() + body)
    return client


def is_read(client):
    """Whether the service has read all bytes that this client sent."""
    return not any(fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))


def answered(clients):
    """The clients that have an answer to read."""
    return select.select(clients, [], [], 0)[0]


def HealthAndMetricsAreAnsweredWhileAllThreadsWait(start):
    with start() as service:
        with sqlite3.connect(f'{service.repository}/escrow/catalog.db', isolation_level=None) as catalog:
            catalog.execute('BEGIN IMMEDIATE')  # nobody else can write now: an opening waits for seconds
            openings = [send(service, '/v1/sessions', 'POST', b'{"repository": "data"}') for _ in range(60)]
            eventually('they are under way', lambda: all(map(is_read, openings)))
            waiting = send(service, '/v1/version')
            eventually('it comes behind them', lambda: is_read(waiting))
            for target in ('/v1/health', '/v1/ready', '/metrics'):
                expect_equal(target, service.get(target).status, 200)
            expect_equal('a request that came before was answered meanwhile', answered([waiting]), [])
            catalog.execute('ROLLBACK')
        eventually('it is answered', lambda: answered([waiting]))
        # It waited for a thread, and a thread was free only when an opening had ended.
        expect(answered(openings), 'not all threads were waiting')
        for client in [*openings, waiting]:
            client.close()
        service.get('/v1/version').expect(200)


def ARefusalIsInTheLogAndInTheMetricsByTheIdThatItsAnswerHas(start):
    with Remote(start) as remote:
        service = remote.service
        session = service.open()['session']
        def answered(answer, status, code):
            problem = answer.expect(status, code)
            expect_equal('the header', answer.headers['x-request-id'], problem['request_id'])
            return problem['request_id']
        path = f'/v1/sessions/{session}'
        expected = [
            (answered(service.get('/v1/sessions/0123456789abcdef?with_changes=true'), 404, 'no_session'), 'uid 0',
             'GET', '"/v1/sessions/0123456789abcdef"', '404', 'no_session'),
            (answered(service.post(f'{path}/approve', {'result': 'x'}), 400, 'invalid_value'), 'uid 0', 'POST',
             f'"{path}/approve"', '400', 'invalid_value'),
            (answered(remote.ask('GET', '/v1/health', token='wrong'), 401, 'unauthenticated'),
             'a stranger at 127.0.0.1', 'GET', '"/v1/health"', '401', 'unauthenticated'),
            (answered(remote.ask('GET', path), 404, 'no_session'), 'agent:ci', 'GET', f'"{path}"', '404', 'no_session'),
        ]
        refused = as_user(NOBODY, lambda: request(service.socket, 'POST', '/v1/repositories',
                                                  {'name': 'x', 'path': '/x'}).json)
        expected.append((refused['request_id'], f'uid {NOBODY}', 'POST', '"/v1/repositories"', '403', 'forbidden'))
        ids = [one[0] for one in expected]
        expect_equal('ids', len(set(ids)), len(ids))
        noted = {one[0]: one for one in refusals(service)}
        for one in expected:
            found = noted[one[0]]
            expect_equal('the line', found, one)
        shown = service.get('/metrics').body.decode()
        for status in (400, 401, 403, 404):
            counted = re.search(f'escrow_http_requests_total.*status="{status}".* [1-9]', shown)
            expect(counted, f'{status}: {shown}')
        # Nobody writes lines of their own: what does not print is escaped.
        before = len(read(f'{service.directory}/log').splitlines())
        client = send(service, '/v1/sessions/%0Arequest%1b[31m\x7f\xc3')
        expect(client.recv(4096).startswith(b'HTTP/1.1 4'), 'an odd target is refused')
        client.close()
        eventually('one line more', lambda: len(read(f'{service.directory}/log').splitlines()) > before)
        lines = read(f'{service.directory}/log').splitlines()[before:]
        expect_equal('lines', len(lines), 1)
        expect(all(32 <= ord(letter) < 127 for letter in lines[0].split('request ', 1)[1]), repr(lines))


def TooManyConnectionsAreCounted(start):
    with start(max_connections=1) as service:
        # One that is being used is closed for nobody.
        following = send(service, '/v1/events')
        expect(following.recv(100).startswith(b'HTTP/1.1 200'), 'it follows')
        service.get('/v1/health').expect(503, 'unavailable')
        following.close()
        def counted():
            answer = service.get('/metrics')
            return answer.status == 200 and re.search('escrow_http_requests_total.*status="503".* [1-9]',
                                                      answer.body.decode())
        eventually('it is counted', counted)
        expect(any(one[4:] == ('503', 'unavailable') for one in refusals(service)), 'it is not in the log')


def ARepositoryIsUnregisteredWhenNobodyWorksInIt(start):
    with start() as service:
        service.post('/v1/repositories', {'name': 'other', 'create': True}).expect(201)
        session = service.post('/v1/sessions', {'repository': 'other', 'external_id': 'job'}).expect(201)['session']
        problem = service.delete('/v1/repositories/other').expect(409, 'wrong_state')
        expect(session in problem['detail'], problem['detail'])
        expect_equal('it goes on', service.state(session), 'open')
        refused = as_user(NOBODY, lambda: request(service.socket, 'DELETE', '/v1/repositories/other').status)
        expect_equal('for another user', refused, 403)
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        service.delete('/v1/repositories/nothing').expect(404, 'no_repository')
        removed = service.delete('/v1/repositories/other').expect(200)
        expect_equal('what was removed', (removed['name'], removed['path']),
                     ('other', f'{service.repositories}/other.git'))
        service.delete('/v1/repositories/other').expect(404, 'no_repository')
        service.get('/v1/repositories/other/branches').expect(404, 'no_repository')
        service.get(f'/v1/sessions/{session}').expect(404, 'no_session')
        expect(os.path.isdir(f'{service.repositories}/other.git/objects'), 'the repository itself is gone')
        # Also for the next service; and all is there when it comes back.
        service.stop()
        service.start()
        service.get('/v1/repositories/other/branches').expect(404, 'no_repository')
        service.post('/v1/repositories', {'name': 'other', 'path': f'{service.repositories}/other.git'}).expect(201)
        again = service.get('/v1/sessions?external_id=job').json['sessions']
        expect_equal('its sessions', [one['session'] for one in again], [session])
        service.open()  # the others were not touched


def ARepositoryOfTheConfigurationIsNotUnregistered(start):
    with start() as service:
        service.stop()
        service.config['repositories'] = {'data': service.repository}
        service.write_config()
        service.start()
        problem = service.delete('/v1/repositories/data').expect(409, 'wrong_state')
        expect('configuration' in problem['detail'], problem['detail'])
        service.open()


def OneRepositoryThatIsMissingMakesNobodyUnready(start):
    with start() as service:
        other = f'{service.repositories}/other.git'
        service.post('/v1/repositories', {'name': 'other', 'create': True}).expect(201)
        service.stop()
        os.rename(other, other + '.away')
        service.start()
        expect_equal('the one that is missing', service.get('/v1/ready').expect(200)['unusable'], ['other'])
        service.open()
        # Whoever operates the service need not have it back to be rid of it.
        service.delete('/v1/repositories/other').expect(200)
        expect_equal('none is missing', service.get('/v1/ready').expect(200)['unusable'], [])


if __name__ == '__main__':
    main(globals())
