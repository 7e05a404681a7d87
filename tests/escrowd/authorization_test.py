#!/usr/bin/env python3
"""What a hostile client tries on escrowd, as an unprivileged user of the machine: one test for each hole."""
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from description import DESCRIPTION
from service import (NOBODY, NOBODY_NAME, Answer, as_user, eventually, expect, expect_equal, let_go, main, request,
                     write)


def asked(service, method, target, body=None, headers=None, groups=None):
    """(status, document) that the user nobody gets."""
    def ask():
        answer = request(service.socket, method, target, body, headers)
        return answer.status, answer.json
    return as_user(NOBODY, ask, groups)


def refused(service, method, target, status, code, body=None):
    got, document = asked(service, method, target, body)
    expect_equal(f'{method} {target} {body}', (got, document.get('code')), (status, code))
    return document


def raw(service, data, seconds=100, shut=False):
    """All that the service answers to these bytes until it closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        client.connect(service.socket)
        answer = b''
        try:
            client.sendall(data)
            if shut:
                client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while piece := client.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    if answer.startswith(b'HTTP/1.1 4'):
        head, _, body = answer.partition(b'\r\n\r\n')
        status, *headers = head.decode().split('\r\n')
        DESCRIPTION.check('RAW', '*', None, Answer(int(status.split()[1]), [one.split(': ') for one in headers], body))
    return answer


def OnlyTheGroupOfTheSocketMayConnect(start):
    with start(socket_group='daemon') as service:
        expect_equal('the mode', os.stat(service.socket).st_mode & 0o777, 0o660)
        def connect():
            try:
                request(service.socket, 'GET', '/v1/health')
                return 'connected'
            except PermissionError:
                return 'refused'
        expect_equal('nobody', as_user(NOBODY, connect), 'refused')


def OnlyOperatorsRegisterRepositories(start):
    with start() as service:
        body = {'name': 'mine', 'path': service.repository}
        refused(service, 'POST', '/v1/repositories', 403, 'forbidden', body)
        expect_equal('the repositories', len(service.get('/v1/repositories').json['repositories']), 1)
    with start(operators=[NOBODY_NAME]) as service:
        expect_equal('an operator', asked(service, 'POST', '/v1/repositories',
                                          {'name': 'data', 'path': service.repository})[0], 200)


def RepositoriesOutsideTheRootsAreRefused(start):
    with start() as service:
        outside = f'{service.directory}/outside.git'
        os.system(f'git init -q --bare {outside}')
        os.symlink(outside, f'{service.repositories}/link.git')
        os.symlink(service.directory, f'{service.repositories}/up')
        for path in (outside, '/', '/etc', f'{service.repositories}/../outside.git', f'{service.repositories}/link.git',
                     f'{service.repositories}/up/outside.git', service.repositories, 'repositories/data.git',
                     f'{service.repositories}//data.git', f'{service.repositories}/./data.git',
                     f'{service.repositories}x/data.git'):
            service.post('/v1/repositories', {'name': 'other', 'path': path}).expect(403, 'forbidden')
        service.post('/v1/repositories', {'name': 'other', 'path': service.repository}).expect(409, 'exists')
        service.post('/v1/repositories', {'name': '../x', 'path': service.repository}).expect(400, 'invalid_value')
        missing = f'{service.repositories}/no'
        service.post('/v1/repositories', {'name': 'n', 'path': missing}).expect(400, 'invalid_value')


def ForeignSessionsDoNotExist(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/secret', 'secret')
        target = f'/v1/sessions/{session}'
        for method, path, body in (('GET', '', None), ('GET', '/wait?timeout_ms=0', None), ('GET', '/changes', None),
                                   ('GET', '/diff', None), ('POST', '/unmount', {}), ('POST', '/commit', {}),
                                   ('POST', '/rollback', {}), ('POST', '/finish', {'exit_code': 0}),
                                   ('POST', '/mount', {'mountpoint': f'{service.mounts}/x'})):
            theirs = refused(service, method, target + path, 404, 'no_session', body)
            unknown = refused(service, method, '/v1/sessions/0123456789abcdef' + path, 404, 'no_session', body)
            expect_equal('a foreign one looks like none', theirs['detail'].replace(session, ''),
                         unknown['detail'].replace('0123456789abcdef', ''))
        expect_equal('the list', asked(service, 'GET', '/v1/sessions')[1]['sessions'], [])
        expect_equal('the list by id', asked(service, 'GET', '/v1/sessions?principal=user:root')[1]['sessions'], [])
        def look():
            try:
                return os.listdir(point)
            except PermissionError:
                return 'refused'
        expect_equal('the mount', as_user(NOBODY, look), 'refused')
        expect_equal('the state', service.state(session), 'open')
        # Their own they may see and end.
        status, own = asked(service, 'POST', '/v1/sessions', {'repository': 'data'})
        expect_equal('their own', (status, own['issuer'], own['committer'], own['uid']),
                     (201, NOBODY_NAME, NOBODY_NAME, NOBODY))
        expect_equal('its list', len(asked(service, 'GET', '/v1/sessions')[1]['sessions']), 1)
        expect_equal('its end', asked(service, 'POST', f'/v1/sessions/{own["session"]}/rollback', {})[0], 200)


def AReviewerSeesEverySessionAndEndsNone(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        session, point = service.open_mounted()
        write(f'{point}/new', 'new')
        expect_equal('the changes', asked(service, 'GET', f'/v1/sessions/{session}/changes')[1]['changes'][0]['path'],
                     'new')
        for verb, body in (('commit', {}), ('rollback', {}), ('finish', {'cancelled': True}), ('unmount', {})):
            refused(service, 'POST', f'/v1/sessions/{session}/{verb}', 403, 'forbidden', body)
        expect_equal('the state', service.state(session), 'open')


def NobodyIsWhoTheyClaimToBe(start):
    with start(run_as={NOBODY_NAME: ['agent:helper']}) as service:
        for field, value in (('committer', 'user:root'), ('uid', 0), ('gid', 0)):
            problem = refused(service, 'POST', '/v1/sessions', 403, 'forbidden', {'repository': 'data', field: value})
            expect_equal('the field', problem['field'], field)
        refused(service, 'POST', '/v1/sessions', 400, 'unknown_field', {'repository': 'data', 'issuer': 'user:root'})
        refused(service, 'POST', '/v1/sessions', 400, 'unknown_field', {'repository': 'data', 'source': 'manual'})
        refused(service, 'POST', '/v1/sessions', 400, 'invalid_value',
                {'repository': 'data', 'image': 'x\nEscrow-Issuer: user:root'})
        status, own = asked(service, 'POST', '/v1/sessions', {'repository': 'data', 'committer': 'agent:helper'})
        expect_equal('a grant', (status, own['committer'], own['issuer']), (201, 'agent:helper', NOBODY_NAME))


def MountpointsOutsideTheRootsAreRefused(start):
    with start() as service:
        outside = f'{service.directory}/outside'
        os.mkdir(outside)
        os.symlink(outside, f'{service.mounts}/link')
        os.symlink('/', f'{service.mounts}/root')
        os.mkdir(f'{service.mounts}/open')
        os.chmod(f'{service.mounts}/open', 0o777)
        os.mkdir(f'{service.mounts}/theirs')
        os.chown(f'{service.mounts}/theirs', NOBODY, NOBODY)
        for point in (outside, '/', '/mnt', '/etc', f'{service.mounts}/../outside', f'{service.mounts}/link',
                      f'{service.mounts}/link/x', f'{service.mounts}/root/mnt', service.mounts, f'{service.mounts}/',
                      f'{service.mounts}/./x', f'{service.mounts}//x', 'work', f'{service.mounts}x',
                      f'{service.mounts}/open/x', f'{service.mounts}/theirs/x'):
            refused(service, 'POST', '/v1/sessions', 403, 'forbidden', {'repository': 'data', 'mountpoint': point})
        refused(service, 'POST', '/v1/sessions', 400, 'invalid_value',
                {'repository': 'data', 'mountpoint': f'{service.mounts}/no/such'})
        os.mkdir(f'{service.mounts}/full')
        write(f'{service.mounts}/full/file', '')
        refused(service, 'POST', '/v1/sessions', 400, 'bad_request',
                {'repository': 'data', 'mountpoint': f'{service.mounts}/full'})
        # Nothing of a session that could not be mounted is left open.
        expect_equal('open sessions', service.get('/v1/sessions?state=open').json['sessions'], [])
        body = {'repository': 'data', 'mountpoint': f'{service.mounts}/w'}
        status, own = asked(service, 'POST', '/v1/sessions', body)
        expect_equal('an allowed one', (status, own['attachment']), (201, 'mounted'))
        refused(service, 'POST', '/v1/sessions', 403, 'forbidden',
                {'repository': 'data', 'mountpoint': f'{service.mounts}/w'})
        refused(service, 'POST', '/v1/sessions', 403, 'forbidden',
                {'repository': 'data', 'mountpoint': f'{service.mounts}/w/dir'})
        os.listdir(f'{service.mounts}/w')


def ALinkThatLeadsOutOfAMountCannotBeRead(start):
    with start() as service:
        _, point = service.open_mounted()
        os.symlink('/etc/passwd', f'{point}/link')
        try:
            os.readlink(f'{point}/link')
            expect(False, 'the link was read')
        except PermissionError:
            pass


def IdsAndPathsThatLeadElsewhereNameNothing(start):
    with start() as service:
        session = service.open()['session']
        for target in ('/v1/sessions/..%2f..', f'/v1/sessions/{session[:6]}', f'/v1/sessions/{session.upper()}x',
                       '/v1/sessions/%00', f'/v1/sessions/{session}%2fdiff'):
            service.get(target).expect(404, 'no_session')
        for target in ('/', '/v1', '/v2/health', f'/v1/sessions/{session}/', f'/v1/sessions//{session}',
                       '/v1/../v1/health', '/v1/sessions/x/changes/a', '/v1/sessions/x/files', '/v1/sessions/x/files/'):
            service.get(target).expect(404, 'not_found')
        service.get('/v1/sessions/%zz').expect(400, 'malformed_request')
        for target in ('/v1/repositories/..%2fdata/log', '/v1/repositories/other/branches'):
            service.get(target).expect(404, 'no_repository')
        service.get('/v1/repositories/data/log?path=../x').expect(400, 'bad_request')
        service.get('/v1/repositories/data/log?branch=nope').expect(404, 'no_branch')
        service.get('/v1/repositories/data/log?branch=../../HEAD').expect(404, 'no_branch')
        answer = request(service.socket, 'DELETE', f'/v1/sessions/{session}')
        expect_equal('allow', (answer.expect(405, 'method_not_allowed')['allowed'], answer.headers['allow']),
                     ('GET, HEAD', 'GET, HEAD'))
        for prefix in ('../x', 'dir/../..', '/etc/../..', '.git', 'a/.GIT/b', 'git~1', '.gitmodules'):
            service.post('/v1/sessions', {'repository': 'data', 'path_prefix': prefix}).expect(400, 'invalid_value')
        service.post('/v1/sessions', {'repository': 'data', 'branch': '../evil'}).expect(400, 'bad_request')


def MalformedBodiesAreRefusedByName(start):
    with start() as service:
        def post(body, **keywords):
            return service.post('/v1/sessions', body, **keywords)
        for body in (b'{', b'[]', b'"x"', b'nul', b'{"a": }', b'{"repository": "data"} x', b'\xff\xfe',
                     b'{"repository": "data", "repository": "other"}', b'{"labels": ' + b'[' * 100000, b'\x00',
                     b'{"repository": "\xff"}', b'{"a":' * 20 + b'1' + b'}' * 20):
            post(body).expect(400, 'malformed_json')
        for body, field in (({'repository': 7}, 'repository'), ({}, 'repository'), ({'repository': ''}, 'repository'),
                            ({'repository': 'data', 'uid': -1}, 'uid'), ({'repository': 'data', 'uid': 1.5}, 'uid'),
                            ({'repository': 'data', 'uid': 4294967295}, 'uid'),
                            ({'repository': 'data', 'read_only': 'yes'}, 'read_only'),
                            ({'repository': 'data', 'umask': '999'}, 'umask'),
                            ({'repository': 'data', 'trigger': 'ci'}, 'trigger'),
                            ({'repository': 'data', 'labels': {'a': 1}}, 'labels.a'),
                            ({'repository': 'data', 'branch': 'x\x00y'}, 'branch'),
                            ({'repository': 'data', 'path_prefix_base64': '!'}, 'path_prefix_base64')):
            expect_equal('the field', post(body).expect(400, 'invalid_value')['field'], field)
        for body, field in (({'repository': 'data', 'colour': 'red'}, 'colour'),
                            ({'repository': 'data', 'trigger': {'name': 'x', 'when': 'now'}}, 'trigger.when')):
            expect_equal('the field', post(body).expect(400, 'unknown_field')['field'], field)
        post(b'repository=data', headers={'Content-Type': 'application/x-www-form-urlencoded'}).expect(
            415, 'unsupported_media_type')
        post({'repository': 'other'}).expect(404, 'no_repository')
        expect_equal('the sessions', service.get('/v1/sessions?state=open').json['sessions'], [])


def BodiesAndHeadersOverTheLimitAreRefused(start):
    with start(max_body_bytes=100_000) as service:
        for size in (100_001, 5_000_000):
            service.post('/v1/sessions', b'{' + b' ' * size).expect(413, 'body_too_large')
        chunks = b''.join(b'2000\r\n' + b' ' * 0x2000 + b'\r\n' for _ in range(20)) + b'0\r\n\r\n'
        answer = raw(service, b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' + chunks)
        expect(answer.startswith(b'HTTP/1.1 413'), f'chunks were answered with {answer!r}')
        answer = raw(service, b'GET /v1/health HTTP/1.1\r\nHost: x\r\nX: ' + b'y' * 100_000 + b'\r\n\r\n')
        expect(answer.startswith(b'HTTP/1.1 431'), f'a long header was answered with {answer!r}')
        for nonsense in (b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', b'hello\r\n\r\n', b'GET /\r\n\r\n',
                         b'POST /v1/sessions HTTP/1.1\r\nContent-Length: -1\r\n\r\n',
                         b'POST /v1/sessions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello'):
            answer = raw(service, nonsense, shut=True)
            expect(answer == b'' or answer.startswith(b'HTTP/1.1 400'), f'{nonsense!r} was answered with {answer!r}')
        service.get('/v1/health').expect(200)


def started(service, data):
    """A connection over which `data` was sent."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(service.socket)
    client.sendall(data)
    return client


def SlowAndHalfOpenClientsCostOnlyThemselves(start):
    with start(request_timeout_ms=86_400_000, idle_timeout_ms=86_400_000) as service:
        slow = (b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{', b'GET /v1/hea', b'')
        earlier = [started(service, data) for data in slow]
        service.get('/v1/health').expect(200)  # the earlier ones are accepted, with a day each
        # Longer than a client on a busy machine pauses.
        service.config.update(request_timeout_ms=5_000, idle_timeout_ms=6_000)
        service.write_config()
        service.post('/v1/reload').expect(200)
        with ThreadPoolExecutor() as pool:
            body, header, idle = pool.map(lambda data: raw(service, data), slow)
        expect(body.startswith(b'HTTP/1.1 408'), f'a slow body was answered with {body!r}')
        expect(header.startswith(b'HTTP/1.1 408'), f'a slow header was answered with {header!r}')
        expect_equal('an idle one', idle, b'')
        expect_equal('of those with a day', let_go(earlier), [])
        expect_equal('half closed', raw(service, b'GET /v1/health HTT', shut=True), b'')
        answer = raw(service, b'GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', shut=True)
        expect(answer.startswith(b'HTTP/1.1 200'), f'half closed after a request: {answer!r}')


def AThousandIdleConnectionsAreServed(start):
    with start(max_connections=1100, idle_timeout_ms=300_000, request_timeout_ms=300_000) as service:
        before = descriptors(service)
        clients = []
        for _ in range(1000):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(service.socket)
            clients.append(client)
        service.get('/v1/health').expect(200)
        expect_equal('one more client waited for the end of', let_go(clients), [])
        expect(threads(service) < 40, f'{threads(service)} threads')
        clients[500].sendall(b'GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n')
        expect(clients[500].recv(100).startswith(b'HTTP/1.1 200'), 'an idle one is not served')
        for _ in range(150):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(service.socket)
            clients.append(client)
        # Those over the limit are served, and of the silent ones the oldest are not missed.
        clients[-1].sendall(b'GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n')
        expect(clients[-1].recv(100).startswith(b'HTTP/1.1 200'), 'one over the limit is not served')
        expect_equal('the oldest', clients[0].recv(100), b'')
        for client in clients:
            client.close()
        eventually('every descriptor is given back', lambda: descriptors(service) <= before + 2)


def descriptors(service):
    """Those of packs apart: the repository has as many open as it has."""
    return sum(not link.endswith('.pack') for link in service.open_files())


def threads(service):
    return len(os.listdir(f'/proc/{service.process.pid}/task'))


def AClientThatGoesInTheMiddleOfACommitLeavesNothingStuck(start):
    with start() as service:
        before = None
        for turn in range(10):
            session, point = service.open_mounted()
            for number in range(200):
                write(f'{point}/file-{turn}-{number}', 'x' * 100)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(service.socket)
                body = b'{"exit_code": 0}'
                client.sendall(f'POST /v1/sessions/{session}/finish HTTP/1.1\r\nHost: x\r\nContent-Type: '
                               f'application/json\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body)
                time.sleep(0.002 * turn)
            view = service.get(f'/v1/sessions/{session}/wait?timeout_ms=250000').expect(200)
            expect_equal('the state', view['state'], 'committed')
            again = service.finish(session, {'exit_code': 0}).expect(200)
            expect_equal('the answer to a retry', again['commit'], view['commit'])
            eventually('the mount is gone', lambda: not service.is_mounted(point))
            before = before or descriptors(service)
        eventually('every descriptor is given back', lambda: descriptors(service) <= before + 5)


def TwoEndingsAtOnceHaveOneOutcome(start):
    with start() as service:
        for turn in range(10):
            session, point = service.open_mounted()
            write(f'{point}/file-{turn}', 'x')
            answers = []
            def end(body):
                answers.append(service.finish(session, body))
            enders = [threading.Thread(target=end, args=(body,)) for body in
                      ({'exit_code': 0}, {'cancelled': True}, {'exit_code': 0}, {'timed_out': True})]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()
            state = service.state(session)
            good = [answer for answer in answers if answer.status == 200]
            expect(good and all(answer.json['state'] == state for answer in good), f'{state}: {answers}')
            for answer in answers:
                if answer.status != 200:
                    expect_equal('the state', answer.expect(409, 'session_finished')['state'], state)


if __name__ == '__main__':
    main(globals())
