#!/usr/bin/env python3
"""The socket of a session's host speaks the routes and documents of escrowd: whoever is asked answers the same."""
import json
import os
import socket
import subprocess
import threading

from service import JSON, UnixConnection, eventually, expect, expect_equal, host_of, main, read, request, write

# What the service alone knows of a session.
OF_THE_SERVICE = {'repository', 'external_id', 'labels', 'lease_ms', 'lease_expires', 'deadline'}
HEADERS = ('content-type', 'escrow-mode', 'escrow-size', 'escrow-omitted', 'etag')


def socket_of(service, session):
    return f'{service.repository}/escrow/sessions/{session}/control.sock'


def refusal(path, method, target, body=None):
    """A problem of whoever listens there; its id is of whoever was asked."""
    connection = UnixConnection(path, 60)
    try:
        connection.request(method, target, None if body is None else json.dumps(body), JSON if body is not None else {})
        response = connection.getresponse()
        expect_equal(f'the type of {target}', response.getheader('content-type'), 'application/problem+json')
        document = json.loads(response.read())
        document.pop('request_id', None)
        return response.status, document
    finally:
        connection.close()


# request() holds each answer to the description of the API, also those of the host.
def TheSocketOfASessionAnswersAsTheServiceDoes(start):
    with start() as service:
        session, point = service.open_mounted(message='from the API')
        base, own = f'/v1/sessions/{session}', socket_of(service, session)
        write(f'{point}/new.txt', 'new\n' * 1000)
        write(f'{point}/a.txt', 'changed')
        os.remove(f'{point}/dir/b.txt')
        os.mkfifo(f'{point}/pipe')
        write(os.fsencode(point) + b'/odd \xff%?#', 'odd')
        for target in ('/changes', '/diff', '/diff?format=stat', '/diff?format=name_status&path=new.txt', '/entries',
                       '/entries?path=dir&limit=1', '/files/new.txt', '/files/odd%20%FF%25%3F%23',
                       '/files/dir/sub/c.txt'):
            answers = [request(path, 'GET', base + target) for path in (service.socket, own)]
            there, here = [(a.status, a.body, {name: a.headers.get(name) for name in HEADERS}) for a in answers]
            expect_equal(f'GET {target}', here, there)
            expect_equal(f'the status of {target}', here[0], 200)
        for query in ('', '?with_changes=true'):
            there, here = [request(path, 'GET', base + query).json for path in (service.socket, own)]
            expect_equal(f'the members{query}', set(here) - set(there), {'staged'} if query == '' else set())
            for name in set(there) - OF_THE_SERVICE:
                expect_equal(f'{name} of the session{query}', here[name], there[name])
        expect_equal('what is staged', here['counts'], {'added': 2, 'modified': 1, 'deleted': 1})
        for method, target, body, status in (('PUT', '/files/put.txt', b'put', 200),
                                             ('PUT', '/files/put.txt?mode=100755', b'again', 200),
                                             ('POST', '/update', {}, 200)):
            request(service.socket, method, base + target, body)  # from here on it is done again
            there, here = [request(path, method, base + target, body) for path in (service.socket, own)]
            expect_equal(f'{method} {target}', (here.status, here.json), (status, there.json))
        for path in (service.socket, own):
            expect_equal('a new file', request(path, 'PUT', base + '/files/one.txt', b'one').status, 201)
            gone = request(path, 'DELETE', base + '/files/one.txt').expect(200)
            expect_equal('what is gone', gone, {'path': 'one.txt', 'mode': '100644', 'size': 3})
        for path, names in ((service.socket, ['a.txt']), (own, ['new.txt'])):
            done = request(path, 'POST', base + '/discard', {'paths': names}).expect(200)
            expect_equal('what was discarded', done, {'session': session, 'discarded': 1})
        expect_equal('the base again', read(f'{point}/a.txt'), 'a.txt\n')
        here = request(own, 'POST', base + '/commit', {'message': 'over its own socket'}).expect(200)
        there = service.get(base).expect(200)
        for name in set(there) - OF_THE_SERVICE - {'attachment', 'omitted', 'changed', 'io', 'mountpoint'}:
            expect_equal(f'{name} of what was committed', here.get(name), there[name])
        expect({'path': 'pipe', 'kind': 'fifo'} in here['omitted'], f'it leaves out {here["omitted"]}')
        expect_equal('the branch', service.git('rev-parse', 'main'), here['commit'])


def WhatAHostRefusesIsPassedOnUnchanged(start):
    policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['read'], 'paths': ['dir/b.txt']}]}
    with start() as service:
        session, _ = service.open_mounted(policy=policy)
        base, own = f'/v1/sessions/{session}', socket_of(service, session)
        for method, target, body, status, code, error in (
                ('GET', '/files/none', None, 404, 'not_found', None),
                ('DELETE', '/files/none', None, 404, 'not_found', None),
                ('GET', '/files/dir/sub', None, 409, 'wrong_state', 'is_a_directory'),
                ('GET', '/entries?path=a.txt', None, 409, 'wrong_state', 'not_a_directory'),
                ('GET', '/files/dir/b.txt', None, 403, 'forbidden', 'access_denied'),
                ('GET', '/diff?format=colour', None, 400, 'invalid_value', None),
                ('GET', '/diff?since=yesterday', None, 404, 'not_found', None),
                ('GET', '/entries?colour=red', None, 400, 'unknown_field', None),
                ('POST', '/commit', {'colour': 'red'}, 400, 'unknown_field', None),
                ('POST', '/commit', {'message': 7}, 400, 'invalid_value', None),
                ('POST', '/discard', {}, 400, 'invalid_value', None),
                ('POST', '/discard', {'paths': ['none']}, 404, 'not_found', None)):
            there, here = [refusal(path, method, base + target, body) for path in (service.socket, own)]
            expect_equal(f'{method} {target} {body}', (here[0], here[1]['code'], here[1].get('error')),
                         (status, code, error))
            expect_equal(f'{method} {target} {body}', here, there)
        service.get(base + '/diff?since=yesterday').expect(404, 'not_found')
        denied = refusal(own, 'GET', base + '/files/dir/b.txt')[1]
        expect_equal('what was denied', (denied['path'], denied['action']), ('dir/b.txt', 'read'))
        expect('rule' in denied, f'{denied} names no rule')
        # A host answers for its own session alone.
        other = service.open()['session']
        expect_equal('of another session', refusal(own, 'GET', f'/v1/sessions/{other}')[1]['code'], 'no_session')


def AConflictIsTheSameWhoeverIsAsked(start):
    with start() as service:
        sessions = [service.open_mounted(f'work{number}') for number in range(3)]
        for number, (_, point) in enumerate(sessions):
            write(f'{point}/a.txt', str(number))
        service.post(f'/v1/sessions/{sessions[0][0]}/commit').expect(200)
        problems = []
        for (session, point), path in zip(sessions[1:], (service.socket, socket_of(service, sessions[2][0]))):
            status, problem = refusal(path, 'POST', f'/v1/sessions/{session}/commit', {})
            problems.append((status, json.loads(json.dumps(problem).replace(session, 'ID'))))
            expect(service.is_mounted(point), 'the session is not mounted any more')
        expect_equal('the conflict', problems[0], problems[1])
        expect_equal('its paths', problems[0][1]['conflicts'], [{'path': 'a.txt', 'ours': 'modified',
                                                                 'theirs': 'modified'}])
        # The command line says it with its own exit status, here and there.
        for options in (('--repo', service.repository), ('--host', f'unix://{service.socket}', '--repo', 'data')):
            result = subprocess.run([service.escrow_binary, *options, 'commit', sessions[1][0]], check=False,
                                    capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
            expect_equal(f'the exit status with {options}', result.returncode, 122)


class EarlierHost:
    """A host of before HTTP: each line is a request to it, and none that comes is one that it knows."""

    def __init__(self, path):
        os.remove(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.refuse, args=(connection,), daemon=True).start()

    @staticmethod
    def refuse(connection):
        with connection, connection.makefile('rb') as lines:
            for _ in lines:
                try:
                    connection.sendall(b'{"answer":"error","code":"bad_request","message":"the request is not JSON"}\n')
                except OSError:
                    return


# As after an upgrade: escrowd is new, and hosts of before go on.
def AHostOfAnEarlierVersionIsNamedAndLeftAlone(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/kept', 'kept')
        service.stop()
        host = host_of(session)
        EarlierHost(socket_of(service, session))
        service.start()
        for method, verb in (('POST', 'commit'), ('GET', 'changes'), ('POST', 'unmount')):
            status, problem = refusal(service.socket, method, f'/v1/sessions/{session}/{verb}',
                                      {} if method == 'POST' else None)
            expect_equal(f'{verb}', (status, problem['code']), (503, 'unavailable'))
            expect('earlier version' in problem['detail'] and session in problem['detail'], problem['detail'])
        expect_equal('the file', read(f'{point}/kept'), 'kept')
        expect_equal('the host', host_of(session), host)
        # As it says: an unmounted session is anybody's, with all that is in it.
        subprocess.run(['umount', point], check=True)
        eventually('the host has let go of it', lambda: host_of(session) is None)
        view = service.post(f'/v1/sessions/{session}/commit').expect(200)
        expect_equal('what is committed', service.git('show', f'{view["commit"]}:kept'), 'kept')


if __name__ == '__main__':
    main(globals())
